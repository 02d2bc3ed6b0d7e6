"""What a function does, measured: one tiny probe for each field of `Conventions`.

A probe calls the function with a few numbers that give its answer away: values that
are the identity read the weights out, a NaN shows where it spreads.  What cannot be
measured so is said to be not measured, and why; nothing is guessed.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from attncheck.calling import Calling
from attncheck.case import DTYPES
from attncheck.collect import PATIENCE, run_worker
from attncheck.exchange import RESULTS
from attncheck.fingerprint.probes import NAMES, PROBES
from attncheck.fingerprint.reading import Fingerprint, Reading
from attnref.spec import SPEC

__all__ = ["NAMES", "PROBES", "Fingerprint", "Reading", "fingerprint"]


def fingerprint(
    target: str,
    *,
    framework: str | None = None,
    keywords: Mapping[str, str] | None = None,
    timeout: float = 60.0,
    progress: Callable[[int], None] = lambda done: None,
) -> Fingerprint:
    """The conventions of the function that `target` names, measured in a process.

    A probe that crashes the process or hangs is lost, and the others go on.

    Args:
        target: as for `attncheck.target.load`.
        framework: of its arrays, where its module does not say.
        keywords: part of a call, as in `attncheck.calling.PARTS` → the function's
            keyword for it, where its name does not say.
        timeout: seconds that one probe may take, the import included.
        progress: called with the number of finished probes.

    Raises:
        SubjectError: the target is no function, or cannot be called.
    """
    command = [sys.executable, "-m", "attncheck.fingerprint.worker"]
    command += [f"--framework={framework}"] if framework else []
    command += [f"--map={json.dumps(dict(keywords or {}))}"]
    with tempfile.TemporaryDirectory(prefix="attncheck-") as place:
        folder = Path(place)
        command += [str(folder), target]
        lost, before = 0, len(NAMES)
        while True:
            # The first line is no reading, but says what the function is.
            status, why = run_worker(
                command, folder, timeout, lambda lines: progress(max(lines - 1, 0))
            )
            described, readings = _read(folder / RESULTS)
            left = [name for name in NAMES if name not in readings]
            if not left:
                return _fingerprint(described, readings)
            lost = lost + 1 if len(left) == before else 1
            before = len(left) - 1
            for name in left if lost == PATIENCE else left[:1]:
                _append(folder / RESULTS, Reading(probe=name, shown=f"{status}: {why}"))
                why = f"not run: {PATIENCE} processes in a row were lost"


def _append(path: Path, reading: Reading) -> None:
    with path.open("a", encoding="utf-8") as lines:
        print(json.dumps(asdict(reading)), file=lines)


def _fingerprint(
    described: Mapping[str, Any], readings: Mapping[str, Reading]
) -> Fingerprint:
    """The parts of a fingerprint, put together."""
    layout = readings["layout"]
    given = described["calling"]
    calling = Calling(
        keywords=given["keywords"],
        layout=layout.value if layout.measured else SPEC.layout,
        arrays=tuple(given["arrays"]),
        ignored=tuple(given["ignored"]),
    )
    return Fingerprint(
        name=described["name"],
        framework=described["framework"],
        version=described["version"],
        calling=calling,
        returns=tuple(described["returns"]),
        readings={name: readings[name] for name in PROBES},
        profiles={dtype: readings[dtype] for dtype in DTYPES},
    )


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Reading]]:
    """What a worker left: what the function is, and the readings by their probes."""
    first, *lines = path.read_text("utf-8").splitlines()
    readings = [Reading(**json.loads(line)) for line in lines]
    return json.loads(first), {reading.probe: reading for reading in readings}

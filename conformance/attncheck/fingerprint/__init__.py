"""What a function does, measured: one tiny probe for each field of `Conventions`.

A probe calls the function with a few numbers that give its answer away: values that
are the identity read the weights out, a NaN shows where it spreads.  What cannot be
measured so is said to be not measured, and why; nothing is guessed.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from attncheck.calling import Calling
from attncheck.case import DTYPES
from attncheck.crew import Crew, Limits, Lost
from attncheck.fingerprint.probes import NAMES, PROBES
from attncheck.fingerprint.reading import Fingerprint, Reading, reading_of
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
    command = [sys.executable, "-m", "attncheck.fingerprint.worker", target]
    command += [f"--framework={framework}"] if framework else []
    command += [f"--map={json.dumps(dict(keywords or {}))}"]
    readings: dict[str, Reading] = {}
    with Crew(command, 1, Limits.of(timeout)) as crew:
        crew.lay_out(_tasks(readings))
        while not crew.is_done:
            for task, answer in crew.attend():
                name = json.loads(task)["probe"]
                if isinstance(answer, Lost):
                    shown = f"{answer.status}: {answer.message}"
                    readings[name] = Reading(probe=name, shown=shown)
                else:
                    readings[name] = reading_of(answer)
            progress(len(readings))
    return _fingerprint(crew.hello, readings)


def _tasks(readings: Mapping[str, Reading]) -> Iterator[list[str]]:
    """One after the other, each with what the readings by then say."""
    for name in NAMES:
        known = {probe: one.value for probe, one in readings.items() if one.measured}
        yield [json.dumps({"probe": name, "known": known})]


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
        keyword_only=tuple(given["keyword_only"]),
        ignored=tuple(given["ignored"]),
    )
    return Fingerprint(
        name=described["name"],
        framework=described["framework"],
        version=described["version"],
        home=described["home"],
        calling=calling,
        returns=tuple(described["returns"]),
        readings={name: readings[name] for name in PROBES},
        profiles={dtype: readings[dtype] for dtype in DTYPES},
    )

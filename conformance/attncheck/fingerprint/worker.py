"""The probes of one function, in a process of their own.

Run as `python -m attncheck.fingerprint.worker FOLDER TARGET`.  The first line of the
results says what the function is, and every other is one reading.  A probe that has a
line is not run again, so a process that was lost loses one probe.
"""

import argparse
import json
import os
import sys
from contextlib import redirect_stdout
from dataclasses import asdict
from pathlib import Path
from threading import Thread
from typing import Any

from attncheck import frameworks
from attncheck.calling import calling_of
from attncheck.exchange import LOADED, RESULTS, repair
from attncheck.fingerprint.function import Function
from attncheck.fingerprint.probes import NAMES, read
from attncheck.subject import Subject, SubjectError
from attncheck.suggest import no_such
from attncheck.target import find, framework_of
from attncheck.worker import EXIT_SUBJECT, end_with


def main(argv: list[str] | None = None) -> int:
    """Runs every probe that has no line yet."""
    parser = argparse.ArgumentParser(prog="python -m attncheck.fingerprint.worker")
    parser.add_argument("folder", type=Path)
    parser.add_argument("target")
    parser.add_argument("--framework")
    parser.add_argument("--map", type=json.loads, default={})
    given = parser.parse_args(argv)
    folder = given.folder.resolve()
    Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    with redirect_stdout(sys.stderr):  # a function may print
        try:
            f, described = load(given.target, given.framework, given.map)
        except SubjectError as error:
            print(*str(error).split("\n"), file=sys.stderr)  # one line
            return EXIT_SUBJECT
        (folder / LOADED).parent.mkdir(exist_ok=True)
        (folder / LOADED).touch()
        repair(folder)
        _probe(f, described, folder / RESULTS)
    return 0


def load(
    target: str, framework: str | None, declared: dict[str, str]
) -> tuple[Function, dict[str, Any]]:
    """The function that a target names, ready for probes, and what it is.

    Raises:
        SubjectError: as for `attncheck.target.load`.
    """
    found = find(target)
    if isinstance(found, Subject):
        own = {name: name for name in found.accepts}
        declared = {**own, **found.keywords, **declared}
        call, returns, framework = found.call, found.returns, found.framework
    else:
        call, returns = found, ()
        framework = framework or framework_of(call, target)
    if framework not in frameworks.NAMES:
        raise SubjectError(no_such("framework", framework, frameworks.NAMES))
    calling = calling_of(call, declared, target)
    adapter = frameworks.adapter(framework)
    described = {
        "name": target,
        "framework": framework,
        "version": adapter.describe(),
        "calling": asdict(calling),
        "returns": returns,
    }
    return Function(call, adapter, calling, returns), described


def _probe(f: Function, described: dict[str, Any], path: Path) -> None:
    text = path.read_text("utf-8") if path.exists() else ""
    readings = [json.loads(line) for line in text.splitlines()][1:]
    done = {reading["probe"] for reading in readings}
    f.known |= {r["probe"]: r["value"] for r in readings if r["measured"]}
    with path.open("a", encoding="utf-8") as lines:
        if not text:
            print(json.dumps(described), file=lines, flush=True)
        for name in NAMES:
            if name not in done:
                reading = asdict(read(f, name))
                print(json.dumps(reading), file=lines, flush=True)


if __name__ == "__main__":
    sys.exit(main())

"""The probes of one function, in a process of their own.

Run as `python -m attncheck.fingerprint.worker TARGET`: a process of
`attncheck.serving`.  It first says what the function is.  A task is a probe, with what
is known by then, and its answer a reading.
"""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from attncheck import frameworks
from attncheck.calling import calling_of
from attncheck.fingerprint.function import Function
from attncheck.fingerprint.probes import read
from attncheck.serving import Answer, serve
from attncheck.subject import Subject, SubjectError
from attncheck.suggest import no_such
from attncheck.target import find, framework_of


def main(argv: list[str] | None = None) -> int:
    """Runs the probes that it is asked for until there are no more."""
    parser = argparse.ArgumentParser(prog="python -m attncheck.fingerprint.worker")
    parser.add_argument("target")
    parser.add_argument("--framework")
    parser.add_argument("--map", type=json.loads, default={})
    given = parser.parse_args(argv)

    def start() -> tuple[Answer, Callable[[str], Answer]]:
        f, described = load(given.target, given.framework, given.map)

        def probe(task: str) -> Answer:
            asked = json.loads(task)
            f.known |= asked["known"]
            return asdict(read(f, asked["probe"]))

        return described, probe

    return serve(start)


def load(
    target: str, framework: str | None, declared: dict[str, str]
) -> tuple[Function, dict[str, Any]]:
    """The function that a target names, ready for probes, and what it is.

    Raises:
        SubjectError: as for `attncheck.target.load`.
    """
    found, full = find(target), ""
    if isinstance(found, Subject) and found.library is not None:
        library, framework = found.library, found.framework
        call, returns = library.function, tuple[str, ...]()
        declared = {**library.keywords, **declared}
        full = library.full
    elif isinstance(found, Subject):
        own = {name: name for name in found.accepts}
        declared = {**own, **found.keywords, **declared}
        call, returns, framework = found.call, found.returns, found.framework
    else:
        call, returns = found, ()
        framework = framework or framework_of(call, target)
    if framework not in frameworks.NAMES:
        raise SubjectError(no_such("framework", framework, frameworks.NAMES))
    calling = replace(calling_of(call, declared, target), full=full)
    adapter = frameworks.adapter(framework)
    described = {
        "name": target,
        "framework": framework,
        "version": found.version if isinstance(found, Subject) else adapter.describe(),
        "home": _home(call) if isinstance(found, Subject) else target,
        "calling": asdict(calling),
        "returns": returns,
    }
    return Function(call, adapter, calling, returns), described


def _home(call: Any) -> str | None:
    """`module:name` of a function that is to be found there."""
    module, name = getattr(call, "__module__", ""), getattr(call, "__qualname__", "")
    found = getattr(sys.modules.get(module), name, None)
    return f"{module}:{name}" if found is call else None


if __name__ == "__main__":
    sys.exit(main())

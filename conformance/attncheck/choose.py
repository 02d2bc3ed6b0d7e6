"""The cases of a run: those of a set and the real ones, or some of them."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from attncheck import minilm
from attncheck.case import Case
from attncheck.suite import cases, operation_cases


class NoCaseError(ValueError):
    """No case is what was asked for."""


def every(set_name: str) -> list[Case]:
    """All cases of a set, and the real ones where the model is installed."""
    real = [] if minilm.available() else minilm.cases()
    return [*cases(set_name), *operation_cases(set_name), *real]


def choose(set_name: str, dtypes: Sequence[str] = (), pattern: str = "*") -> list[Case]:
    """The cases of a set in some dtypes, or in all, whose ids match a glob.

    Raises:
        NoCaseError: there is none.
    """
    chosen = [
        case
        for case in every(set_name)
        if (not dtypes or case.dtype in dtypes) and fnmatchcase(case.id, pattern)
    ]
    if not chosen:
        where = f" in {', '.join(dtypes)}" if dtypes else ""
        raise NoCaseError(f"no case of the set {set_name} matches {pattern!r}{where}")
    return chosen

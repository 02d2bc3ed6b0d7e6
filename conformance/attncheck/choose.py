"""The cases of a run: those of a set and the real ones, or some of them."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from attncheck import minilm
from attncheck.case import DTYPES, Case
from attncheck.clauses import CLAUSES, NUMERIC, OPERATION_CLAUSES
from attncheck.suggest import near
from attncheck.suite import SETS, cases, operation_cases

ASKED_OF_CONVENTIONS = ("F32", "BF16")
"""The storage types that a smoke run of all types asks for conventions, and for the
operations beside attention: one of each width that kernels are made for.  What it asks
of the others is about the numbers of attention."""


class NoCaseError(ValueError):
    """No case is what was asked for."""


def every(set_name: str, dtypes: Sequence[str] = tuple(DTYPES)) -> list[Case]:
    """All cases of a set, and the real ones where the model is installed."""
    no_real = minilm.DTYPE not in dtypes or minilm.available()
    real = [] if no_real else minilm.cases(every_layer=set_name == "full")
    return [*cases(set_name, dtypes), *operation_cases(set_name, dtypes), *real]


def bare(id: str) -> str:
    """A case's id without its dtype: `decode` of `decode/F32`."""
    name, _, dtype = id.rpartition("/")
    return name if dtype in DTYPES else id


def matches(id: str, pattern: str) -> bool:
    """Whether a case's id, or its bare one, matches a glob: `decode`, `causal*/F32`."""
    return fnmatchcase(id, pattern) or fnmatchcase(bare(id), pattern)


def choose(set_name: str, dtypes: Sequence[str] = (), pattern: str = "*") -> list[Case]:
    """The cases of a set in some dtypes, or in all, that match a glob.

    Of the smoke set, where neither is given, conventions are asked for in two types.

    Raises:
        NoCaseError: there is none; it says what may have been meant.
    """
    if set_name == "smoke" and not dtypes and pattern == "*":
        return list(filter(is_asked, every(set_name)))
    chosen = [c for c in _of(set_name, dtypes) if matches(c.id, pattern)]
    if not chosen:
        where = f" in {', '.join(dtypes)}" if dtypes else ""
        raise NoCaseError(
            f"no case of the set {set_name} matches {pattern!r}{where}"
            f"{_meant(pattern, set_name, dtypes)}"
        )
    return chosen


def is_asked(case: Case) -> bool:
    """Whether a smoke run of all types has the case."""
    is_numeric = bool(NUMERIC & set(case.clauses))
    return is_numeric or case.dtype in ASKED_OF_CONVENTIONS


def _of(set_name: str, dtypes: Sequence[str]) -> list[Case]:
    return every(set_name, [x for x in DTYPES if not dtypes or x in dtypes])


def _meant(pattern: str, set_name: str, dtypes: Sequence[str]) -> str:
    """What else a glob that no case matches may be."""
    clauses = [clause.name for clause in (*CLAUSES, *OPERATION_CLAUSES)]
    if bare(pattern) in clauses:
        command = f"attncheck list --cases --clause {bare(pattern)}"
        return f": it is a clause, of which `{command}` shows the cases"
    for other in SETS:
        if other != set_name and any(
            matches(case.id, pattern) for case in _of(other, dtypes)
        ):
            return f": the set {other} has some"
    if pattern.startswith("real") and (missing := minilm.available()):
        return f": there are no real cases: {missing}"
    ids = [case.id for case in _of(set_name, dtypes)]
    names = ids if "/" in pattern else [bare(id) for id in ids]
    hint = near(pattern.replace("*", ""), dict.fromkeys(names))
    return hint or "; `attncheck list --cases` shows them"

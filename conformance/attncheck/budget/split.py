"""Where the bound of one element comes from."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from attncheck.budget.bounds import assemble, output_dtype
from attncheck.budget.problem import Problem
from attncheck.budget.profile import Profile, Units, units
from attncheck.budget.randomness import why_dependent
from attncheck.budget.rounding import half_ulp
from attncheck.case import Case
from attncheck.definition import Expected

SOURCES: Mapping[str, tuple[str, ...]] = {
    "scores": ("dot", "s"),
    "operands": ("operand",),
    "exp, log and tanh": ("exp", "log", "tanh"),
    "elementwise": ("a",),
    "weights": ("p", "row_sum"),
    "sums": ("sum",),
    "stored output": ("o",),
    "dP": ("dp",),
    "dS": ("ds",),
    "heads": ("heads",),
    "underflow": ("eta", "tiny"),
}
"""Every source of error by the units that it has."""

ROUNDING = "output rounding"
ALL = "all"
"""The bound itself, beside its parts: they do not add up to it."""


Index = tuple[int, ...]


def split(
    case: Case, expected: Expected, profile: Profile, name: str, index: Index
) -> dict[str, float]:
    """The shares of what is allowed at one element of a result, largest first; sum 1.

    Each is the bound when its source is the only one, beside the output's rounding.
    Where an intermediate may overflow, that is the only source.
    """
    found = parts(case, expected, profile, name, index)
    want = float(getattr(expected, name)[index])
    return as_shares(found, want, output_dtype(case, name))


def parts(
    case: Case,
    expected: Expected,
    profile: Profile,
    name: str,
    index: Index,
    *,
    queries: int | None = None,
) -> dict[str, float]:
    """The bound of one element when each source is the only one, and with all.

    What is summed over queries has the parts of all blocks added up; `queries` is that
    of `derive`.
    """
    problem = Problem(case, expected, units(case, profile), queries=queries)
    dependent = why_dependent(problem)

    def bound(unit: Units) -> float:
        part = replace(problem, unit=unit)
        return float(assemble(part, dependent).bounds[name][index])

    found = {source: bound(alone(problem.unit, source)) for source in SOURCES}
    return found | {ALL: bound(problem.unit)}


def as_shares(
    parts: Mapping[str, float], want: float, dtype: np.dtype
) -> dict[str, float]:
    """`parts` and the rounding of the result itself, scaled to add up to 1."""
    whole = parts[ALL]
    if not np.isfinite(whole):
        return {"overflow": 1.0}
    found = {source: parts[source] for source in SOURCES}
    found[ROUNDING] = float(half_ulp(np.array(abs(want) + whole), dtype))
    total = sum(found.values())
    order = sorted(found, key=found.__getitem__, reverse=True)
    return {source: found[source] / total for source in order if found[source] > 0}


def alone(unit: Units, source: str) -> Units:
    """Units of which only those of one source are not 0."""
    letters = {letter for group in SOURCES.values() for letter in group}
    off: dict[str, Any] = dict.fromkeys(letters - set(SOURCES[source]), 0.0)
    return unit._replace(**off)

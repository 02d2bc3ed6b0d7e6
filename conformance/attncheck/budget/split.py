"""Where the bound of one element comes from."""

from collections.abc import Mapping
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


def split(
    case: Case,
    expected: Expected,
    profile: Profile,
    name: str,
    index: tuple[int, ...],
) -> dict[str, float]:
    """The shares of what is allowed at one element of a result, largest first; sum 1.

    Each is the bound when its source is the only one, beside the output's rounding.
    Where an intermediate may overflow, that is the only source.
    """
    problem = Problem(case, expected, units(case, profile))
    dependent = why_dependent(problem)

    def bound(unit: Units) -> float:
        part = Problem(case, expected, unit)
        return float(assemble(part, dependent).bounds[name][index])

    whole = bound(problem.unit)
    if not np.isfinite(whole):
        return {"overflow": 1.0}
    want = abs(float(getattr(expected, name)[index]))
    parts = {source: bound(alone(problem.unit, source)) for source in SOURCES}
    parts[ROUNDING] = float(half_ulp(np.array(want + whole), output_dtype(case, name)))
    total = sum(parts.values())
    order = sorted(parts, key=parts.__getitem__, reverse=True)
    return {source: parts[source] / total for source in order if parts[source] > 0}


def alone(unit: Units, source: str) -> Units:
    """Units of which only those of one source are not 0."""
    letters = {letter for group in SOURCES.values() for letter in group}
    off: dict[str, Any] = dict.fromkeys(letters - set(SOURCES[source]), 0.0)
    return unit._replace(**off)

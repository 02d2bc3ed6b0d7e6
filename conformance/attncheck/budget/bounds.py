"""The budget of a case: one bound for every element of every result."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from attncheck.budget.backward import Backward, backward_values, gradient_bounds
from attncheck.budget.bounded import Bounded, Bounds
from attncheck.budget.forward import (
    Forward,
    forward_bounds,
    forward_errors,
    scores_overflow,
)
from attncheck.budget.problem import Problem
from attncheck.budget.profile import Profile, units
from attncheck.budget.quadrature import (
    forward_deviations,
    gradient_deviations,
    row_deviations,
    without_random,
)
from attncheck.budget.randomness import deviations_allowed, why_dependent
from attncheck.budget.rounding import half_ulp
from attncheck.case import DTYPES, INTERMEDIATES, RESULTS, Case
from attncheck.definition import Expected, unrefined
from attncheck.operations import OPERATIONS, RETURNED, Reduced


@dataclass(frozen=True)
class Budget:
    """The bounds of a case, and what they are made of, each by name of the result."""

    bounds: dict[str, np.ndarray]
    """Of |got − expected| before the result is rounded to its own type.

    One float64 array for each of `RESULTS` that is expected, of the same shape.  It is
    0 where the result must be exact: −∞ logits, blocked weights, empty rows, gradients
    of what is never attended.  It is +∞ where nothing is promised: `scores` and
    `logits` of blocked keys, and what an overflow of an intermediate could reach.
    """
    dependent: str | None
    """Why roundings are not taken as independent; None where they are, and there the
    bound is at most `linear + λ · deviation`."""
    linear: dict[str, np.ndarray]
    """What errors that may have a bias can add up to; empty unless independent."""
    deviation: dict[str, np.ndarray]
    """(Σ c²u²)^½ of all other errors; a third of its square bounds the variance."""

    @property
    def random(self) -> bool:
        """Whether the roundings are taken as independent of each other."""
        return self.dependent is None


def budget(
    case: Case, expected: Expected, profile: Profile, *, queries: int | None = None
) -> dict[str, np.ndarray]:
    """The bound of |got − expected| before the result is rounded: `Budget.bounds`."""
    return derive(case, expected, profile, queries=queries).bounds


def derive(
    case: Case, expected: Expected, profile: Profile, *, queries: int | None = None
) -> Budget:
    """All that is derived from a case: the bounds, and their parts.

    Args:
        queries: those of the whole call, if the case is a block of them.  The bounds of
            what is summed over queries are then this block's part: those of all blocks
            add up to the bound of the whole.

    The expected values of a float64 case are themselves rounded to float64, once; that
    rounding is counted in.  Of intermediates there are bounds alone: no statistics are
    made of them.
    """
    problem = Problem(case, expected, units(case, profile), queries=queries)
    found = assemble(problem, why_dependent(problem))
    linear, deviation = _returned(found.linear), _returned(found.deviation)
    found = replace(found, linear=linear, deviation=deviation)
    return _around_rounded(found, expected) if case.dtype == "F64" else found


def _returned(part: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: array for name, array in part.items() if name not in INTERMEDIATES}


def assemble(problem: Problem, dependent: str | None) -> Budget:
    """The budget of a problem, when it is known whether roundings are independent."""
    if problem.case.op in OPERATIONS:
        with np.errstate(all="ignore"):
            return Budget(_of_operation(problem), dependent, {}, {})
    linear: dict[str, np.ndarray] = {}
    deviation: dict[str, np.ndarray] = {}
    with np.errstate(all="ignore"):
        bounds, errors = _deterministic(problem)
        if dependent is None:
            linear, _ = _deterministic(without_random(problem))
            deviation = _deviations(problem, *errors)
            bounds = {
                name: _smaller(bound, linear[name], deviation[name])
                for name, bound in bounds.items()
            }
    return Budget(bounds, dependent, linear, deviation)


def _of_operation(problem: Problem) -> dict[str, np.ndarray]:
    """The bounds of an operation, from those of the plain attention in it."""
    case, numbers = problem.case, Bounds(problem.unit)
    found = OPERATIONS[case.op].results(case, numbers, partial(_attended, problem))
    return {
        name: np.nan_to_num(one.error, nan=np.inf, posinf=np.inf)
        for name, one in found.items()
    }


def _attended(problem: Problem, reduced: Reduced) -> dict[str, Bounded]:
    """The results of plain attention, whose operands come with errors."""
    plain = unrefined(reduced.case)
    errors = {name: _error(x) for name, x in reduced.operands.items()}
    bounds, _ = _deterministic(
        replace(problem, case=reduced.case, expected=plain, errors=errors)
    )
    return {
        name: _stored(Bounded(getattr(plain, name), bounds[name], problem.unit))
        for name in RETURNED
        if name in bounds
    }


def _error(operand: Bounded) -> np.ndarray:
    """The bound of an operand's error; 0 where it is no number, as the operand is."""
    return np.where(np.isfinite(operand.value), operand.error, 0.0)


def _stored(result: Bounded) -> Bounded:
    """A result of plain attention as unfused code keeps it before it goes on."""
    unit, reach = result.unit, result.reach
    finite = (reach > 0) & np.isfinite(reach)
    stored = np.where(finite, unit.s * reach + unit.small("s"), 0.0)
    return replace(result, error=result.error + stored)


def _around_rounded(found: Budget, expected: Expected) -> Budget:
    """The budget around expected values that are the true ones rounded to float64."""

    def last(name: str) -> np.ndarray:
        return half_ulp(getattr(expected, name), np.dtype(np.float64))

    def widened(
        parts: dict[str, np.ndarray], add: Callable[..., np.ndarray]
    ) -> dict[str, np.ndarray]:
        return {
            name: np.where(part > 0, add(part, last(name)), part)
            for name, part in parts.items()
        }

    return replace(
        found,
        bounds=widened(found.bounds, np.add),
        deviation=widened(found.deviation, np.hypot),
    )


def _deterministic(
    problem: Problem,
) -> tuple[dict[str, np.ndarray], tuple[Forward, Backward | None]]:
    """The bound of every result that is expected, whatever the roundings."""
    forward, backward = forward_errors(problem), None
    bounds = forward_bounds(problem, forward)
    if problem.expected.dq is not None:
        backward = backward_values(problem, forward)
        bounds |= gradient_bounds(problem, forward, backward)
    if scores_overflow(problem, forward.scores):
        bounds = {name: np.full_like(bounds[name], np.inf) for name in bounds}
    bounds = {
        name: np.nan_to_num(bounds[name], nan=np.inf, posinf=np.inf)
        for name in RESULTS
        if getattr(problem.expected, name) is not None
    }
    return bounds, (forward, backward)


def _deviations(
    problem: Problem, forward: Forward, backward: Backward | None
) -> dict[str, np.ndarray]:
    rows = row_deviations(problem, forward)
    deviations = forward_deviations(problem, rows)
    if backward is not None:
        deviations |= gradient_deviations(problem, rows, backward)
    return deviations


def _smaller(
    certain: np.ndarray, linear: np.ndarray, deviation: np.ndarray
) -> np.ndarray:
    """The smaller of the two bounds; the certain one where it is not finite."""
    likely = linear + deviations_allowed() * deviation
    return np.where((likely < certain) & np.isfinite(certain), likely, certain)


def output_dtype(case: Case, name: str) -> np.dtype:
    """The accumulator's type for steps and lse, the storage type for the others."""
    return case.accumulation if name in (*INTERMEDIATES, "lse") else DTYPES[case.dtype]

"""Whether a case is conditioned well enough for its bounds to say anything."""

import numpy as np

from attncheck.budget.problem import Problem
from attncheck.budget.profile import PROFILES, units
from attncheck.case import INTERMEDIATES, Case
from attncheck.definition import Expected


def is_void(
    case: Case, expected: Expected, bounds: dict[str, np.ndarray]
) -> str | None:
    """Why the case can say nothing under these bounds, or None where it can.

    A bound of the output above a tenth of the greatest value that the row attends (of
    multi-head cases, one of the log-sum-exp above a tenth; where there is none, of the
    head's greatest value) means that the scores are too large for the accumulator; an
    infinite one that an intermediate could overflow.
    """
    for name, bound in bounds.items():
        if name not in INTERMEDIATES and np.isinf(bound).any():
            return f"an intermediate of `{name}` could overflow"
    if "lse" not in bounds:
        values = np.abs(case.inputs["v"].astype(np.float64)).repeat(case.sizes["g"], 1)
        greatest = values.max(axis=(-2, -1), keepdims=True, initial=0.0)
        return _too_wide("output", bounds["output"], greatest)
    if case.op != "attention":
        # Merged values have no row of their own: judge the weights by their sum.
        return _too_wide("lse", bounds["lse"], np.ones_like(bounds["lse"]))
    problem = Problem(case, expected, units(case, PROFILES["strict"]))
    values = np.abs(problem.v).max(axis=-1)[..., None, :]
    greatest = np.where(problem.live, values, 0.0).max(axis=-1, initial=0.0)
    # Underflow alone says nothing about the scores.
    bound = bounds["output"] - 2 * problem.floor(case.sizes["j"])
    return _too_wide("output", bound, greatest[..., None])


def _too_wide(name: str, bound: np.ndarray, magnitude: np.ndarray) -> str | None:
    excess = bound - magnitude / 10
    if not (excess > 0).any():
        return None
    worst = tuple(map(int, np.unravel_index(excess.argmax(), excess.shape)))
    return (
        f"ill-conditioned: the bound of {name}{list(worst)} is {bound[worst]:.2g}, "
        f"more than a tenth of {np.broadcast_to(magnitude, bound.shape)[worst]:.2g}"
    )

r"""How much error is legal: an elementwise bound, derived from the case, never tuned.

The model is the standard one of rounding, fl(a ∘ b) = (a ∘ b)(1 + e) + f with |e| ≤ u
and |f| ≤ `tiny` (underflow).  The bound composes such errors step by step, for every
implementation that is legal under a profile: any order of summation, blocks of 16 keys
or more with running maxima, splits merged by log-sum-exp, exp or exp2 with log₂e folded
into the scale, a shift of up to 8 ln 2 below the running maximum, normalising before or
after the product with V, a backward pass from stored output and log-sum-exp or from
row sums of weights times their gradients.  Rescale factors are the exponential of a
difference of two maxima.  Tiles are unknown to the judge, so R = ⌈j/16⌉ rescales are
always allowed.

Weights are bounded in the exponent, p·e^±a, because a logit of −10⁹ has an a in the
hundreds and p = 0.  Products of (1 + e) are compounded, not added to first order.
Sources: Higham, Accuracy and Stability of Numerical Algorithms, §3.1 (γ) and §2.1
(underflow); Blanchard, Higham & Higham (2021), doi 10.1093/imanum/draa038 (softmax).
"""

import numpy as np

from attncheck.budget.backward import gradient_bounds
from attncheck.budget.forward import forward_bounds, forward_errors, scores_overflow
from attncheck.budget.problem import Problem
from attncheck.budget.profile import PROFILES, Profile, units
from attncheck.budget.rounding import half_ulp, interval, nearest
from attncheck.case import DTYPES, RESULTS, STEPS, Case
from attncheck.definition import Expected

__all__ = [
    "PROFILES",
    "Profile",
    "budget",
    "half_ulp",
    "interval",
    "is_void",
    "nearest",
    "output_dtype",
]


def budget(case: Case, expected: Expected, profile: Profile) -> dict[str, np.ndarray]:
    """The bound of |got − expected| before the result is rounded to its own type.

    One float64 array for each of `RESULTS` that is expected, of the same shape.  It is
    0 where the result must be exact: −∞ logits, blocked weights, empty rows, gradients
    of what is never attended.  It is +∞ where nothing is promised: `scores` and
    `logits` of blocked keys, and what an overflow of an intermediate could reach.

    The expected values of a float64 case are themselves a float64 computation that
    obeys the bound, so there it is doubled.
    """
    with np.errstate(all="ignore"):
        problem = Problem(case, expected, units(case, profile))
        forward = forward_errors(problem)
        bounds = forward_bounds(problem, forward)
        if expected.dq is not None:
            bounds |= gradient_bounds(problem, forward)
        if scores_overflow(problem, forward.scores):
            bounds = {name: np.full_like(bounds[name], np.inf) for name in bounds}
    factor = 2.0 if case.dtype == "F64" else 1.0
    wanted = [name for name in RESULTS if getattr(expected, name) is not None]
    return {
        name: factor * np.nan_to_num(bounds[name], nan=np.inf, posinf=np.inf)
        for name in wanted
    }


def is_void(
    case: Case, expected: Expected, bounds: dict[str, np.ndarray]
) -> str | None:
    """Why the case can say nothing under these bounds, or None where it can.

    A bound of the output above a tenth of the greatest value that the row attends (of
    multi-head cases, one of the log-sum-exp above a tenth) means that the scores are
    too large for the accumulator; an infinite one that an intermediate could overflow.
    """
    for name, bound in bounds.items():
        if name not in STEPS and np.isinf(bound).any():
            return f"an intermediate of `{name}` could overflow"
    if case.op == "multi_head_attention":
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


def output_dtype(case: Case, name: str) -> np.dtype:
    """The accumulator's type for steps and lse, the storage type for the others."""
    return case.accumulation if name in (*STEPS, "lse") else DTYPES[case.dtype]

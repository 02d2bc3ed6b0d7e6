r"""Whether the roundings of a case may be taken as independent of each other.

They may not where values are equal, or so near each other that they round alike: the
errors of equal weights are one number, and a sum of n of them grows like n, not √n.
What is checked is the data, not what the case is said to be.  Roundings of few numbers
that lie near each other need no check: of n ≤ λ² equal ones, Σ|x| ≤ √n (Σx²)^½ ≤ λ
(Σx²)^½ (Cauchy–Schwarz).
"""

from collections.abc import Iterator

import numpy as np

from attncheck.budget.problem import Problem, finite
from attncheck.budget.rounding import unit_roundoff
from attncheck.case import DTYPES
from attncheck.definition import operands
from attncheck.operations import OPERATIONS

CHANCE = 1e-6
"""Of a false alarm in a run, if the model is true."""

ENTRIES = 10**8
"""Results that a run may compare."""

APART = 4.0
"""Two units in the last place, in unit roundoffs of the number that is rounded.

Rounding to multiples of h leaves values that scatter normally by 2h a mean error below
h·exp(−8π²): none."""

DISTINCT = 0.9
"""The least share of distinct values among many."""


RANDOM_INPUTS = ("q", "k", "v", "d_out", "x", "context", "w_q", "w_k", "w_v", "w_o")
"""Inputs whose numbers have to differ."""


def deviations_allowed(entries: int = ENTRIES, chance: float = CHANCE) -> float:
    """λ = (⅔ ln(2N/δ))^½: how many standard deviations N results may be off.

    An error uniform in [−u, u] is sub-Gaussian with variance u²/3; so is, with
    Σ c²u²/3, a sum of independent ones times c.  Here a "deviation" is (Σ c²u²)^½.
    """
    return float(np.sqrt(2 / 3 * np.log(2 * entries / chance)))


def why_dependent(problem: Problem) -> str | None:
    """Why the roundings of a case are not independent of each other, or None."""
    if problem.case.op in OPERATIONS:
        return "the errors of operands are not followed one by one"
    return (
        _by_profile(problem)
        or _by_values(problem)
        or _by_coincidence(problem)
        or _by_narrowness(problem)
    )


def _by_profile(problem: Problem) -> str | None:
    unit = problem.unit
    if problem.case.op != "attention" and unit.operand:
        return "the rounding of an operand is common to all heads"
    if unit.s:
        return "stored scores coincide, and so do the errors of their weights"
    nearest = unit_roundoff(DTYPES[problem.case.dtype])
    if max(unit.p, unit.ds, unit.dp) > nearest or unit.operand > 2.0**-11:
        return "a rounding is coarser than one to nearest, so it may have a bias"
    return None


def _by_values(problem: Problem) -> str | None:
    """Not finite, or of few distinct values."""
    for name in ("output", "heads", "lse", "dq", "dk", "dv", "dbias"):
        array = getattr(problem.expected, name)
        if array is not None and not (np.isfinite(array) | (array == -np.inf)).all():
            return f"{name} is not finite"
    for name in RANDOM_INPUTS:
        array = problem.case.inputs.get(name, np.zeros(0))
        if np.unique(array.astype(np.float64)).size < min(array.size, 64) / 4:
            return f"{name} has few distinct values"
    return None


def _by_coincidence(problem: Problem) -> str | None:
    """Equal keys or queries make equal scores, whatever the bias adds to them."""
    found = {"scores": problem.scores, "logits": problem.logits}
    if "d_out" in problem.case.inputs:
        found["gradients of weights"] = _d_weights(problem)
    for name, values in found.items():
        for axis, array, live in _every_way(problem, values):
            if _repeats(array, live):
                return f"many {name} of one {axis} are equal"
    for name, channels in _projected(problem).items():
        if _repeats(channels, np.ones_like(channels, bool)):
            return f"many channels of a projected {name} are equal"
    return None


def _by_narrowness(problem: Problem) -> str | None:
    """What is rounded to storage has to scatter by more than the rounding."""
    unit = problem.unit
    exponent = np.where(problem.live, problem.exponent, 0.0)
    for axis, array, live in _every_way(problem, exponent):
        if _scatter(array, live) < APART * max(unit.p, unit.ds, unit.operand):
            return f"the weights of one {axis} are nearly equal"
    if "d_out" not in problem.case.inputs:
        return None
    for axis, array, live in _every_way(problem, _d_weights(problem)):
        largest = np.abs(np.where(live, array, 0.0)).max(axis=-1, initial=0.0)
        if _scatter(array, live, largest) < APART * max(unit.dp, unit.operand):
            return f"the gradients of the weights of one {axis} are nearly equal"
    out = finite(problem.expected.heads)
    live = np.broadcast_to(problem.live.any(axis=-1, keepdims=True), out.shape)
    if _scatter(out, live, np.abs(out).max(axis=-1)) < APART * unit.o:
        return "the channels of one output are nearly equal"
    return None


def _d_weights(problem: Problem) -> np.ndarray:
    """`b n i j`, before dropout."""
    d_out = problem.case.inputs["d_out"].astype(np.float64)
    return d_out @ np.swapaxes(problem.v, -1, -2)


def _projected(problem: Problem) -> dict[str, np.ndarray]:
    """What is projected at one position, `b i x`: its errors must not be the same."""
    if problem.case.op == "attention":
        return {}
    q, k, v = (np.swapaxes(x, 1, 2) for x in operands(problem.case))
    q, k, v = (x.reshape(*x.shape[:2], -1) for x in (q, k, v))
    if "context" in problem.case.inputs:
        return {"query": q, "key and value": np.concatenate([k, v], axis=-1)}
    return {"position": np.concatenate([q, k, v], axis=-1)}


def _every_way(
    problem: Problem, values: np.ndarray
) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """`b n i j` as it is summed, over the last axis: by query, by key `b h j (g i)`,
    and by merged position `b i (n j)`."""
    b, n, i, j = values.shape
    h = problem.case.sizes["h"]

    def by_key(array: np.ndarray) -> np.ndarray:
        return np.swapaxes(array.reshape(b, h, n // h * i, j), -1, -2)

    def by_position(array: np.ndarray) -> np.ndarray:
        return np.swapaxes(array, 1, 2).reshape(b, i, n * j)

    yield "query", values, problem.live
    if problem.case.op == "attention":
        yield "key", by_key(values), by_key(problem.live)
    else:
        yield "position", by_position(values), by_position(problem.live)


def _many(live: np.ndarray) -> np.ndarray:
    """Whether more than λ² of the last axis are live."""
    return live.sum(axis=-1) > deviations_allowed() ** 2


def _repeats(values: np.ndarray, live: np.ndarray) -> bool:
    """Whether too many live values along the last axis are equal in float32."""
    with np.errstate(over="ignore"):  # beyond float32's range all are alike
        ordered = np.sort(np.where(live, values, np.inf).astype(np.float32), axis=-1)
    new = np.isfinite(ordered)
    new[..., 1:] &= ordered[..., 1:] != ordered[..., :-1]
    return bool((new.sum(-1) < DISTINCT * live.sum(-1)).any())


def _scatter(
    values: np.ndarray, live: np.ndarray, magnitude: np.ndarray | float = 1.0
) -> float:
    """The least standard deviation along the last axis, as a share of `magnitude`."""
    many = _many(live)
    if not many.any():
        return np.inf
    deviation = values[many].std(axis=-1, where=live[many])
    magnitude = np.broadcast_to(magnitude, many.shape)[many]
    return float((deviation / np.maximum(magnitude, np.finfo(float).tiny)).min())

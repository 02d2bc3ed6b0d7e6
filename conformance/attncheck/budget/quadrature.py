r"""Standard deviations of the results, if roundings are independent of each other.

To first order a result's error is Σ c e over elementary roundings e, |e| ≤ u.  The
deterministic bound is Σ|c|u; independent roundings of mean 0 make (Σ c²u²)^½, which is
called the deviation here.  It has only what `RANDOM` names; all other errors, those of
exp and underflow among them, may have a bias and stay in the deterministic bound of a
`Problem` whose random units are 0.

What two terms of a sum share is never put in quadrature.  The rounding of an operand,
or the error of a projected query or key, enters all scores of a row or column: it is
kept apart, as `shared`, and its deviations are added.  Where one rounding reaches a
result on several paths, the deviations of the paths are added too: the deviation of a
sum is at most the sum of the deviations.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from attncheck.budget.backward import Backward
from attncheck.budget.forward import Forward, transposed
from attncheck.budget.problem import Problem, finite
from attncheck.budget.rounding import half_ulp
from attncheck.case import DTYPES
from attncheck.definition import sum_to

RANDOM = ("dot", "sum", "p", "ds", "dp", "o", "operand")
"""The units whose roundings are put in quadrature."""


class Deviation(NamedTuple):
    """Deviations of the entries of a matrix `b n i j`."""

    own: np.ndarray
    """Of errors that every entry has for itself."""
    shared: np.ndarray
    """Of errors that it may have in common with its row or its column."""

    def times(self, factor: np.ndarray, *rounded: float) -> "Deviation":
        """Of entries times `factor`, every product with its relative roundings."""
        own = np.hypot(self.own, quadrature(*rounded))
        return Deviation(own * factor, self.shared * factor)

    def through(self, matrix: np.ndarray) -> np.ndarray:
        """Deviation of the product with a matrix, from the right."""
        return np.sqrt(self.own**2 @ matrix**2) + self.shared @ np.abs(matrix)


class Rows(NamedTuple):
    """Deviations up to the row sums: what the backward pass needs of the forward's."""

    weights: np.ndarray
    """`b n i j`: the weights at their largest."""
    scores: Deviation
    """After the softcap."""
    bend: np.ndarray
    """d(dX)/ds over the gradient of the logits, at most; 1 without a softcap."""
    lse: np.ndarray
    """`b n i 1`: of the row sum, relative, and of its logarithm."""
    sums: float
    """Of a sum over the keys, relative to the sum of magnitudes."""


def without_random(problem: Problem) -> Problem:
    """The problem whose deterministic bound has all errors that may have a bias."""
    off: dict[str, Any] = dict.fromkeys(RANDOM, 0.0)
    return replace(problem, unit=problem.unit._replace(**off), random=True)


def quadrature(*values: np.ndarray | float) -> np.ndarray:
    """(Σ x²)^½."""
    return np.sqrt(np.asarray(sum(np.square(value) for value in values)))


def forward_deviations(problem: Problem, rows: Rows) -> dict[str, np.ndarray]:
    """The deviation of every forward result by name."""
    p, scores = rows.weights, rows.scores
    logits = scores.own + scores.shared
    raw = _products(problem, 1.0, np.ones_like(p))
    return {
        "scores": raw.own + raw.shared,
        "logits": logits,
        "masked": logits,
        "weights": p * (logits + rows.lse),
        "output": (_heads if problem.case.op == "attention" else _merged)(
            problem, rows
        ),
        "lse": rows.lse[..., 0],
    }


def _heads(problem: Problem, rows: Rows) -> np.ndarray:
    """Of every head's output, `b n i e`: of the numerator, and of the row sum."""
    unit, weights = problem.unit, _kept_weights(problem, rows.weights)
    entries = rows.scores.times(weights, unit.p, unit.operand, unit.operand)
    summed = rows.sums * (weights @ np.abs(problem.v))
    heads = np.abs(finite(problem.expected.heads))
    return quadrature(entries.through(problem.v), summed) + heads * rows.lse


def _merged(problem: Problem, rows: Rows) -> np.ndarray:
    """Of the merged heads, `b i c`.

    An error of a weight enters all channels of its head, so it is followed through W_o:
    it meets the merged value Σ_e v_je W_ec.  Heads have errors of their own, but for
    those of the keys and values that they share with their group.
    """
    unit, w = problem.unit, problem.case.inputs["w_o"].astype(np.float64)
    weights = _kept_weights(problem, rows.weights)
    heads = finite(problem.expected.heads)
    entries, values = rows.scores.times(weights, unit.p), problem.v @ w
    whole = np.abs(heads @ w)
    ones = np.ones((weights.shape[-1], 1))
    by_sum = rows.scores.times(rows.weights)
    numerator = np.sqrt(
        entries.own**2 @ values**2
        + (rows.sums * (weights @ np.abs(problem.v))) ** 2 @ w**2
    )
    row_sum = quadrature(np.sqrt(by_sum.own**2 @ ones), rows.sums)
    own = numerator + whole * row_sum
    shared = entries.shared @ np.abs(values) + whole * (by_sum.shared @ ones)
    projected = np.sqrt(weights**2 @ (problem.projection_deviations[2] ** 2 @ w**2))
    total = np.einsum("bnie,nec->bic", np.abs(heads), np.abs(w), optimize=True)
    total = total + np.abs(problem.case.inputs.get("b_o", np.zeros(1)).astype(float))
    merging = (w.shape[0] * w.shape[1]) ** 0.5 * unit.sum * total
    of_groups = [_by_group(problem, part) for part in (shared, projected)]
    over_heads = (part**2 for part in (own, *of_groups))
    return quadrature(merging, *(np.sqrt(part.sum(axis=1)) for part in over_heads))


def _by_group(problem: Problem, array: np.ndarray) -> np.ndarray:
    """`b n i x` added up over each group, `b h i x`."""
    b, n, i, x = array.shape
    g = problem.case.sizes["g"]
    return array.reshape(b, n // g, g, i, x).sum(axis=2)


def _kept_weights(problem: Problem, weights: np.ndarray) -> np.ndarray:
    """The weights times their dropout's factor."""
    return np.where(problem.live, problem.kept, 0.0) * weights


def gradient_deviations(
    problem: Problem, rows: Rows, back: Backward
) -> dict[str, np.ndarray]:
    """The deviation of every gradient by name."""
    unit, p = problem.unit, back.upper
    slope = 1 - problem.tanh**2
    dp = _dp(problem, back)
    mean = _mean(problem, rows, back, dp)
    difference = np.abs(back.dp - back.mean + back.d_lse)
    ds = _combined(rows.scores.times(p * difference), dp.times(p))
    bent = rows.scores.times(p * difference * rows.bend)
    dx = _combined(bent, dp.times(p * slope))
    size = p * difference * slope
    rounding = quadrature(unit.ds, unit.operand, unit.operand)
    dx = Deviation(quadrature(dx.own, size * rounding), dx.shared)
    common = p * mean + p * difference * rows.lse
    deviations = {
        "dq": _dq(problem, rows, back, dx, size, mean),
        "dk": _over_rows(problem, dx, size, common * slope, problem.q) * problem.scale,
        "dv": _dv(problem, rows, back),
    }
    if "bias" in problem.case.inputs:
        stored = Deviation(quadrature(ds.own, unit.ds * p * difference), ds.shared)
        deviations["dbias"] = _dbias(problem, stored, common, p * difference)
    return deviations


def row_deviations(problem: Problem, forward: Forward) -> Rows:
    """The scores' deviations, and the row sum's."""
    left = np.maximum(1 - forward.weights.under, 0.0)
    p = np.where(problem.live, forward.weights.upper / left, 0.0)
    tanh, cap = np.abs(problem.tanh), problem.case.softcap
    slope = bend = 1 - tanh**2
    if cap is not None:
        slope = np.minimum(1.0, slope + forward.scores.scaled / cap)
        # d(1 − t²) = −2t/c · (1 − t²) dx, and (1 − t²) dx is the capped score's error.
        bend = bend + 2 * tanh / cap
    scores = _products(problem, problem.scale, slope)
    sums = problem.row_terms**0.5 * problem.unit.sum
    ones = np.ones((p.shape[-1], 1))
    lse = quadrature(scores.times(p).through(ones), sums)
    lse = np.where(problem.live.any(axis=-1, keepdims=True), lse, 0.0)
    return Rows(p, scores, bend, lse, sums)


def _products(problem: Problem, scale: float, slope: np.ndarray) -> Deviation:
    """Of scale · q·k: d roundings of partial sums, and errors of the operands."""
    unit, q, k = problem.unit, problem.q, transposed(problem.k)
    own = problem.case.sizes["d"] ** 0.5 * unit.dot * (np.abs(q) @ np.abs(k))
    q_error, k_error, _ = problem.projection_deviations
    shared = 2 * unit.operand**2 * (q**2 @ k**2)
    shared = np.sqrt(shared + q_error**2 @ k**2 + q**2 @ transposed(k_error) ** 2)
    factor = np.where(problem.expected.visible, scale * slope, 0.0)
    return Deviation(own, shared).times(factor)


def _combined(*parts: Deviation) -> Deviation:
    """Of the sum of errors of different roundings."""
    own, shared = zip(*parts, strict=True)
    return Deviation(quadrature(*own), np.sum(shared, axis=0))


def _dp(problem: Problem, back: Backward) -> Deviation:
    """Of dP = d_out Vᵀ."""
    unit, d_out, v = problem.unit, back.d_out, transposed(problem.v)
    summed = problem.case.sizes["e"] ** 0.5 * unit.sum * (np.abs(d_out) @ np.abs(v))
    shared = 2**0.5 * unit.operand * np.sqrt(d_out**2 @ v**2)
    times = (1 + problem.drops) ** 0.5
    own = quadrature(summed * problem.kept, times * unit.dp * back.dp)
    return Deviation(own, shared * problem.kept)


def _mean(problem: Problem, rows: Rows, back: Backward, dp: Deviation) -> np.ndarray:
    """Of D, `b n i 1`, from the stored output and from a sum over the keys alike.

    An error of a weight enters all channels of the output, and Σ d_out·o as it enters
    Σ p·dP: times dP.
    """
    unit, p = problem.unit, back.upper
    d_out, out = np.abs(back.d_out), np.abs(finite(problem.expected.heads))
    size = np.abs(back.dp)
    weights = _kept_weights(problem, p)
    entries = rows.scores.times(p * size, unit.p, unit.operand, unit.operand)
    ones = np.ones((p.shape[-1], 1))
    by_keys = rows.sums * ((p * size) @ ones)
    by_channels = rows.sums * np.sqrt(
        ((d_out * (weights @ np.abs(problem.v))) ** 2).sum(axis=-1, keepdims=True)
    )
    width = problem.case.sizes["e"]
    summed = width**0.5 * unit.sum * (d_out * out).sum(axis=-1, keepdims=True)
    storing = half_ulp(out, DTYPES[problem.case.dtype]) * (unit.o > 0)
    stored = np.sqrt(((d_out * storing) ** 2).sum(axis=-1, keepdims=True))
    through = _combined(entries, dp.times(p)).through(ones)
    independent = quadrature(through, by_keys, by_channels, summed, stored)
    return independent + np.abs(back.mean) * rows.lse


def _dq(
    problem: Problem,
    rows: Rows,
    back: Backward,
    dx: Deviation,
    size: np.ndarray,
    mean: np.ndarray,
) -> np.ndarray:
    """Of dq; what a row has in common goes through signed sums."""
    slope = 1 - problem.tanh**2
    entries, k = dx.through(problem.k), problem.k
    keys = problem.case.sizes["j"]
    summed = keys**0.5 * problem.unit.sum * (size @ np.abs(k))
    by_mean = mean * np.abs((problem.weights * slope) @ k)
    by_lse = rows.lse * np.abs((back.ds * slope) @ k)
    return problem.scale * (quadrature(entries, summed) + by_mean + by_lse)


def _dv(problem: Problem, rows: Rows, back: Backward) -> np.ndarray:
    unit = problem.unit
    weights = _kept_weights(problem, back.upper)
    entries = rows.scores.times(weights, unit.p, unit.operand, unit.operand)
    return _over_rows(problem, entries, weights, weights * rows.lse, back.d_out)


def _over_rows(
    problem: Problem,
    entries: Deviation,
    size: np.ndarray,
    common: np.ndarray,
    matrix: np.ndarray,
) -> np.ndarray:
    """Of entriesᵀ · matrix, summed over the group, `b h j x`.

    Errors that are common to a row are independent from one row to the next.
    """
    sizes = problem.case.sizes

    def summed(array: np.ndarray) -> np.ndarray:
        b, _, j, x = array.shape
        return array.reshape(b, sizes["h"], sizes["g"], j, x).sum(axis=2)

    squares = summed(transposed(entries.own + common) ** 2 @ matrix**2)
    magnitude = summed(transposed(size) @ np.abs(matrix))
    shared = summed(transposed(entries.shared) @ np.abs(matrix))
    sums = problem.group_rows * (problem.unit.sum * magnitude) ** 2
    return np.sqrt(squares + sums) + shared


def _dbias(
    problem: Problem, ds: Deviation, common: np.ndarray, size: np.ndarray
) -> np.ndarray:
    """Of dbias: along a row that the bias is broadcast over, `common` adds up."""
    shape = problem.case.inputs["bias"].shape
    own = ds.own
    if shape[3] != size.shape[3]:
        own = np.sqrt((own**2).sum(axis=-1, keepdims=True))
        common = common.sum(axis=-1, keepdims=True)
    squares = sum_to((own + common) ** 2, shape)
    added = problem.unit.sum * sum_to(size, shape)
    blocks = problem.blocks if shape[2] == 1 else 1
    added = added * (blocks * size.size / max(squares.size, 1)) ** 0.5
    return np.sqrt(squares + added**2) + sum_to(ds.shared, shape)

"""Errors of the forward pass: scores, logits, weights, output and log-sum-exp."""

from typing import NamedTuple

import ml_dtypes
import numpy as np

from attncheck.budget.problem import Problem, finite
from attncheck.budget.rounding import compound, gamma
from attncheck.case import DTYPES

SHIFT = 8.0
"""Room for the logarithm of a row sum beyond ln j: a shift of 8 ln 2 = 5.5, and 2.5."""


class Scores(NamedTuple):
    """Errors up to the logits, each `b n i j`."""

    raw: np.ndarray
    scaled: np.ndarray
    tanh: np.ndarray
    """Of the softcap's tanh, which its derivative is made of."""
    logits: np.ndarray
    exponent: np.ndarray
    """The a of p·e^±a, before the row's division."""
    reach: np.ndarray
    """`b n i 1`: greatest magnitude that the row's maximum can be computed as."""


class Weights(NamedTuple):
    """Softmax before the division, in units in which the exact row sum is 1."""

    upper: np.ndarray
    """P⁺ = p eᵃ."""
    excess: np.ndarray
    """P⁺ − p."""
    over: np.ndarray
    """`b n i 1`: how far the row sum may lie above 1."""
    under: np.ndarray
    """`b n i 1`: how far below."""


class Forward(NamedTuple):
    """The errors of the whole forward pass."""

    scores: Scores
    weights: Weights
    heads: np.ndarray
    """`b n i e`: of every head's output."""
    lse: np.ndarray
    """`b n i 1`."""


def forward_errors(problem: Problem) -> Forward:
    """All errors from the operands to the heads' outputs."""
    scores = _scores(problem)
    weights = _weights(problem, scores)
    heads = _heads_error(problem, weights)
    return Forward(scores, weights, heads, _lse_error(problem, scores, weights))


def forward_bounds(problem: Problem, errors: Forward) -> dict[str, np.ndarray]:
    """The bound of every forward result by name."""
    unspecified = np.where(problem.expected.visible, 0.0, np.inf)
    attention = problem.case.op == "attention"
    heads = errors.heads
    return {
        "scores": errors.scores.raw + unspecified,
        "logits": errors.scores.logits + unspecified,
        "masked": errors.scores.logits,
        "weights": _weights_error(problem, errors.weights),
        "output": heads if attention else _merge_error(problem, heads),
        "lse": errors.lse[..., 0],
    }


def _scores(problem: Problem) -> Scores:
    """Errors of the scores, step by step."""
    raw = _product_error(problem, 1.0, scalings=0, stored=1)
    # The scale, its root, and the two products that put it on q and on k.
    scaled = _product_error(problem, problem.scale, scalings=5, stored=2)
    tanh, capped = _softcap_error(problem, scaled)
    logits = np.where(problem.scored, _bias_error(problem, capped), 0.0)
    exponent, reach = _exponent_error(problem, logits)
    return Scores(raw, scaled, tanh, logits, exponent, reach)


def _product_error(
    problem: Problem, scale: float, *, scalings: int, stored: int
) -> np.ndarray:
    """Error of scale · q·k, the scale put on q, on k, on both or on the product."""
    unit, width = problem.unit, problem.case.sizes["d"]
    q, k = np.abs(problem.q), np.abs(problem.k)
    q_error, k_error, _ = problem.operand_errors
    relative = compound(
        gamma(width, unit.dot),
        gamma(scalings, unit.a),
        *[unit.operand, unit.s] * 2,
    )
    error = (q + q_error) @ transposed(k + k_error) * relative
    error += q_error @ transposed(k + k_error) + q @ transposed(k_error)
    # An operand may be flushed, or underflow when the scale is put on it.
    lost = unit.tiny + unit.small("s")
    sums = q.sum(axis=-1)[..., :, None] + k.sum(axis=-1)[..., None, :]
    underflow = lost * (1 + max(1.0, scale) * (2 * width + sums))
    storing = compound(*[unit.s] * stored)
    error = scale * (error * (1 + storing) + storing * np.abs(problem.scores))
    return np.where(problem.expected.visible, error + underflow, 0.0)


def _softcap_error(
    problem: Problem, scaled: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Errors of tanh(x/c) and of c·tanh(x/c).

    The derivative of tanh' is at most 4/(3√3) < 1, so over an error δ of its argument
    tanh' stays below tanh' + δ.  A relative error of the argument becomes at most the
    same one of tanh.  As 2 sigmoid(2x) − 1, tanh has an absolute error.
    """
    cap, unit = problem.case.softcap, problem.unit
    if cap is None:
        return np.zeros_like(scaled), scaled
    tanh = np.abs(problem.tanh)
    shift = scaled / cap
    slope = np.minimum(1.0, 1 - tanh**2 + shift)
    # The cap's own rounding, its inverse, the product; log2(e) on the way out.
    relative = compound(unit.tanh, gamma(7, unit.a), *[unit.s] * 2)
    absolute = unit.exp / 2 + 3 * unit.a + unit.tiny + unit.small("s")
    error = (slope * shift + absolute) * (1 + relative) + relative * tanh
    return error, cap * (error * (1 + unit.s) + unit.s * tanh)


def _bias_error(problem: Problem, error: np.ndarray) -> np.ndarray:
    """Error of the sum with the bias."""
    if "bias" not in problem.case.inputs:
        return error
    unit, logits = problem.unit, np.abs(problem.logits)
    bias = problem.case.inputs["bias"].astype(np.float64)
    bias = np.where(problem.scored, np.abs(bias), 0.0)
    given = problem.errors.get("bias", np.zeros(1))
    bias = bias + given
    # log2(e), folded into the scale, has to be put on the bias as well.
    error = error + given + 2 * unit.a * (logits + 2 * bias)
    relative = compound(unit.a, unit.s)
    return error * (1 + relative) + relative * logits + unit.tiny * (1 + bias)


def _exponent_error(
    problem: Problem, error: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The a of p·e^±a, and the greatest magnitude of the row's computed maximum.

    While key j is live the running maximum lies between its logit and the row's
    greatest, so all roundings of s − m, of their products with log2(e), and of a
    split's log-sum-exp and its merge are at most 12 units of the larger of the two.
    """
    unit, live = problem.unit, problem.live
    lowest = np.finfo(np.float64).min
    logits, attended = problem.logits, live.any(axis=-1, keepdims=True)

    def highest(values: np.ndarray) -> np.ndarray:
        top = values.max(axis=-1, keepdims=True, initial=lowest, where=live)
        return np.where(attended, top, 0.0)

    top = highest(logits)
    reach = np.abs(top) + (highest(logits + error) - top)
    exponent = (
        error
        + unit.exp
        + 12 * unit.a * np.maximum(np.abs(logits) + error, reach)
        + problem.changes * (unit.exp + 2 * unit.a)
        + (unit.log + 2 * unit.a) * (problem.log_keys + SHIFT)
        + 12 * unit.a
    )
    return np.where(live, exponent, 0.0), reach


def _weights(problem: Problem, scores: Scores) -> Weights:
    """Errors of the exponentials and of their sum over the row."""
    unit, keys = problem.unit, problem.case.sizes["j"]
    upper, excess = raised(problem.exponent, scores.exponent)
    lower = np.exp(problem.exponent - scores.exponent)
    deficit = problem.weights * -np.expm1(-scores.exponent)
    summing = compound(gamma(problem.row_terms, unit.sum), unit.row_sum)
    underflow = keys * (unit.tiny + unit.small("row_sum"))

    def off(difference: np.ndarray, total: np.ndarray) -> np.ndarray:
        sums = difference + summing * total
        return sums.sum(axis=-1, keepdims=True) + underflow

    return Weights(upper, excess, off(excess, upper), off(deficit, lower))


def raised(exponent: np.ndarray, a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """p eᵃ and p (eᵃ − 1), from the logarithm of p."""
    upper = np.exp(exponent + a)
    return upper, upper * -np.expm1(-a)


def _weights_error(problem: Problem, weights: Weights) -> np.ndarray:
    """Error of the weights themselves: (P⁺ − p + p·(sum's error)) / (1 − under)."""
    unit = problem.unit
    # Weights are returned in the accumulator, unless all that has a name is stored.
    rounding = compound(gamma(3, unit.a), unit.p if unit.s else 0.0)
    error = weights.excess + rounding * weights.upper + problem.weights * weights.over
    underflow = 2 * unit.tiny + unit.small("s")
    return np.where(problem.live, error / _left(weights.under) + underflow, 0.0)


def _heads_error(problem: Problem, weights: Weights) -> np.ndarray:
    """Error of every head's output, `b n i e`.

    Numerator and denominator may come from differently rounded scores (two-pass
    kernels), so their errors are not allowed to cancel.
    """
    unit, keys = problem.unit, problem.case.sizes["j"]
    v, v_error = np.abs(problem.v), problem.operand_errors[2]
    out = np.abs(finite(problem.expected.heads))
    carried = compound(
        unit.p,
        unit.operand,
        unit.operand,
        gamma(problem.row_terms, unit.sum),
        gamma(2, unit.a),
        problem.dropout,
        unit.s if problem.drops else 0.0,
    )
    kept = np.where(problem.live, problem.kept, 0.0)
    spread = kept * (weights.excess + carried * weights.upper + problem.lost)
    numerator = spread @ (v + v_error) + (kept * weights.upper) @ v_error
    error = (numerator + out * weights.over) / _left(weights.under)
    flushed = (kept * weights.upper).sum(axis=-1, keepdims=True) * unit.tiny
    error = error + 3 * unit.a * (out + error) + flushed + problem.floor(keys)
    return np.where(problem.live.any(axis=-1, keepdims=True), error, 0.0)


def _lse_error(problem: Problem, scores: Scores, weights: Weights) -> np.ndarray:
    """Error of the log-sum-exp, `b n i 1`: the row sum's, the logarithm's, the shift's.

    Six units of the maximum: the shift may be kept in base 2 and have to be converted.
    """
    unit = problem.unit
    sums = np.maximum(
        np.log1p(weights.over), -np.log1p(-np.minimum(weights.under, 1.0))
    )
    error = (
        sums
        + (unit.log + 2 * unit.a) * (problem.log_keys + SHIFT)
        + unit.a * np.abs(problem.lse)
        + 6 * unit.a * scores.reach
        + 2 * unit.tiny
    )
    return np.where(problem.live.any(axis=-1, keepdims=True), error, 0.0)


def _left(under: np.ndarray) -> np.ndarray:
    """What is surely left of a row sum of 1; 0, for an infinite bound, at worst."""
    return np.maximum(1 - under, 0.0)


def _merge_error(problem: Problem, heads: np.ndarray) -> np.ndarray:
    """Error of the output projection, `b i c`, from that of the heads."""
    unit, arrays = problem.unit, problem.case.inputs
    w = np.abs(arrays["w_o"].astype(np.float64))
    out = np.abs(finite(problem.expected.heads))
    if unit.s:
        heads = heads * (1 + unit.s) + unit.s * out + unit.small("s")
    terms = w.shape[0] * w.shape[1]
    relative = compound(gamma(terms, unit.sum), unit.a, unit.operand, unit.operand)
    through = np.einsum("bnie,nec->bic", heads, w, optimize=True)
    total = np.einsum("bnie,nec->bic", out + heads, w, optimize=True)
    total = total + np.abs(arrays.get("b_o", np.zeros(1)).astype(np.float64))
    flushed = (out + heads).sum(axis=(1, 3))[..., None] + w.sum(axis=(0, 1))
    return through + relative * total + unit.tiny * flushed + problem.floor(terms)


def scores_overflow(problem: Problem, scores: Scores) -> bool:
    """Whether a score can reach the largest number of the type that it is kept in."""
    magnitude = np.abs(problem.q) @ transposed(np.abs(problem.k))
    accumulated = np.where(problem.expected.visible, magnitude, 0.0)
    raw = np.abs(problem.scores)
    factor = max(1.0, problem.scale)
    if factor * greatest(accumulated) >= _largest(problem.case.accumulation):
        return True
    kept = max(
        greatest(raw + scores.raw),
        greatest(problem.scale * raw + scores.scaled),
        greatest(np.abs(problem.logits) + scores.logits),
    )
    return problem.unit.s > 0 and kept >= largest_stored(problem)


def greatest(values: np.ndarray) -> float:
    """The greatest of non-negative values; 0 of none."""
    return float(values.max(initial=0.0))


def largest_stored(problem: Problem) -> float:
    """The largest finite number of the storage type."""
    return _largest(DTYPES[problem.case.dtype])


def _largest(dtype: np.dtype) -> float:
    return float(ml_dtypes.finfo(dtype).max)


def transposed(array: np.ndarray) -> np.ndarray:
    """The last two axes swapped."""
    return np.swapaxes(array, -1, -2)

"""Errors of the backward pass: the gradients of q, k, v and the bias."""

from math import prod
from typing import NamedTuple

import numpy as np

from attncheck.budget.forward import (
    Forward,
    greatest,
    largest_stored,
    raised,
    transposed,
)
from attncheck.budget.problem import Problem, finite
from attncheck.budget.rounding import compound, gamma, half_ulp
from attncheck.case import DTYPES
from attncheck.definition import sum_to


class Backward(NamedTuple):
    """Exact values of the backward pass, and the recomputed weights."""

    d_out: np.ndarray
    """`b n i e`; 0 in rows that are not live."""
    d_lse: np.ndarray
    """`b n i 1`."""
    dp: np.ndarray
    """`b n i j`: gradient of the weights, after dropout."""
    mean: np.ndarray
    """`b n i 1`: D, the mean of `dp` under the weights."""
    ds: np.ndarray
    """`b n i j`: gradient of the logits."""
    upper: np.ndarray
    """Weights recomputed from the saved log-sum-exp, at most."""
    excess: np.ndarray


class Slack(NamedTuple):
    """Errors on the way back; what a row has in common is kept apart from the rest."""

    dp: np.ndarray
    mean: np.ndarray
    """`b n i 1`: of D, one number per row, which only signed sums see."""
    ds: np.ndarray
    """Of `ds`, but for p times the error of D."""
    dx: np.ndarray
    """Of the gradient of the scaled scores, likewise, as the products take it."""


def gradient_bounds(
    problem: Problem, forward: Forward, back: Backward
) -> dict[str, np.ndarray]:
    """The bound of every gradient by name."""
    slack = _slack(problem, forward, back)
    bounds = {
        "dq": _dq_error(problem, back, slack),
        "dk": _dk_error(problem, back, slack),
        "dv": _dv_error(problem, back),
    }
    if "bias" in problem.case.inputs:
        bounds["dbias"] = _dbias_error(problem, back, slack)
    if _gradients_overflow(problem, back, slack):
        return {name: np.full_like(bound, np.inf) for name, bound in bounds.items()}
    return bounds


def backward_values(problem: Problem, forward: Forward) -> Backward:
    """The exact backward pass, and the weights from a saved log-sum-exp."""
    inputs, live, p = problem.case.inputs, problem.live, problem.weights
    attended = live.any(axis=-1, keepdims=True)
    zero = np.zeros(1)
    d_out = np.where(attended, finite(inputs.get("d_out", zero).astype(float)), 0.0)
    d_out = np.broadcast_to(d_out, problem.expected.heads.shape)
    d_lse = np.broadcast_to(inputs.get("d_lse", zero), problem.expected.lse.shape)
    d_lse = np.where(attended, finite(d_lse.astype(float))[..., None], 0.0)
    dp = np.where(live, d_out @ transposed(problem.v) * problem.kept, 0.0)
    mean = (p * dp).sum(axis=-1, keepdims=True)
    saved = forward.lse + 2 * problem.unit.a * (np.abs(problem.lse) + forward.lse)
    upper, excess = raised(problem.exponent, forward.scores.exponent + saved)
    return Backward(d_out, d_lse, dp, mean, p * (dp - mean + d_lse), upper, excess)


def _slack(problem: Problem, forward: Forward, back: Backward) -> Slack:
    """Errors of dP, D, dS = P (dP − D + d_lse) and dX = dS · softcap'."""
    unit, live, p = problem.unit, problem.live, problem.weights
    dp = _dp_error(problem, back)
    mean = _mean_error(problem, back, dp, forward.heads)
    # Unfused code puts the rounded weights into the softmax's backward.
    rounded = unit.p if unit.s else 0.0
    upper = back.upper * (1 + rounded)
    off = back.excess + rounded * back.upper
    difference = np.abs(back.dp - back.mean + back.d_lse)
    errors = dp + mean
    # P∘dP and P·D may be formed apart, after a division each by the row sum.
    worked = difference + np.abs(back.dp) + np.abs(back.d_lse) + errors
    lost = unit.tiny + unit.small("s")
    ds = off * (difference + mean) + upper * (dp + 4 * unit.a * worked)
    ds = ds + lost * (difference + errors)
    ds = ds * (1 + unit.s) + unit.s * np.abs(back.ds) + lost
    ds = np.where(live, ds, 0.0)
    return Slack(
        dp, mean, ds, _dx_error(problem, forward.scores.tanh, back, ds, p * mean)
    )


def _dp_error(problem: Problem, back: Backward) -> np.ndarray:
    """Error of dP = d_out Vᵀ, times the dropout's factor."""
    unit, width = problem.unit, problem.case.sizes["e"]
    d_out, v = np.abs(back.d_out), np.abs(problem.v)
    relative = compound(
        gamma(width, unit.sum), unit.operand, unit.operand, problem.dropout
    )
    v_error, d_out_error = problem.operand_errors[2], problem.d_out_error
    d_out, v = d_out + d_out_error, v + v_error
    error = d_out @ transposed(v) * relative + np.abs(back.d_out) @ transposed(v_error)
    error = error + d_out_error @ transposed(v)
    sums = d_out.sum(axis=-1)[..., :, None] + v.sum(axis=-1)[..., None, :]
    error = error + unit.tiny * (2 * width + 1 + sums)
    error = error * problem.kept + unit.tiny
    times = 1 + problem.drops
    storing = compound(*[unit.dp] * times)
    error = error * (1 + storing) + storing * np.abs(back.dp)
    error = error + times * np.maximum(1.0, problem.kept) * unit.small("dp")
    return np.where(problem.live, error, 0.0)


def _mean_error(
    problem: Problem, back: Backward, dp: np.ndarray, heads: np.ndarray
) -> np.ndarray:
    """Error of D − d_lse, by the worse of the two legal ways, `b n i 1`.

    Either D = Σ d_out·o from the *stored* output, or D = Σ P·dP.
    """
    unit, sizes = problem.unit, problem.case.sizes
    d_out, out = np.abs(back.d_out), np.abs(finite(problem.expected.heads))
    stored = heads
    if unit.o:
        stored = heads + half_ulp(out + heads, DTYPES[problem.case.dtype])
    error = stored + gamma(sizes["e"], unit.sum) * (out + stored)
    by_output = d_out * error + problem.d_out_error * (out + error)
    by_output = (by_output + unit.tiny * (out + d_out)).sum(axis=-1, keepdims=True)
    by_output = by_output + problem.floor(sizes["e"])
    rounded = compound(unit.p if unit.s else 0.0, gamma(problem.row_terms, unit.sum))
    spread = back.excess + rounded * back.upper
    spread = spread + np.where(problem.live, unit.tiny + unit.small("s"), 0.0)
    by_weights = spread * (np.abs(back.dp) + dp) + problem.weights * dp
    by_weights = by_weights.sum(axis=-1, keepdims=True) + problem.floor(sizes["j"])
    error = np.maximum(by_output, by_weights)
    return error + unit.a * (np.abs(back.mean) + error + np.abs(back.d_lse))


def _dx_error(
    problem: Problem,
    tanh_error: np.ndarray,
    back: Backward,
    ds: np.ndarray,
    common: np.ndarray,
) -> np.ndarray:
    """Error of the gradient of the scaled scores, with what its rounding adds."""
    unit, tanh = problem.unit, np.abs(problem.tanh)
    error, slope = ds, 1 - tanh**2
    stored = 2
    if problem.case.softcap is not None:
        slope_error = (2 * tanh + tanh_error) * tanh_error + 2 * (unit.a + unit.s)
        error = ds * slope + (np.abs(back.ds) + ds + common) * slope_error
        stored = 5
    magnitude = np.abs(back.ds) * slope + error + common * slope
    rounding = compound(unit.ds, unit.operand, unit.operand, *[unit.s] * stored)
    return np.where(problem.live, error + rounding * magnitude, 0.0)


def _dx(problem: Problem, back: Backward) -> np.ndarray:
    """Magnitude of the gradient of the scaled scores."""
    return np.abs(back.ds) * (1 - problem.tanh**2)


def _small_dx(problem: Problem) -> np.ndarray:
    """Absolute error of scale · dX when it is small, in the accumulator or in storage.

    The scale may be put on it before or after it is rounded; unfused code stores it
    after each of the softcap's factors too, one of which is 1/c.
    """
    unit, cap = problem.unit, problem.case.softcap
    times = 1 + 4 * (unit.s > 0)
    factor = max(1.0, problem.scale) / min(1.0, cap or 1.0)
    lost = factor * times * (unit.small("ds") + unit.tiny)
    return np.where(problem.live, lost, 0.0)


def _dq_error(problem: Problem, back: Backward, slack: Slack) -> np.ndarray:
    """Error of dq = scale · dX K; that of D goes through the signed sum of p K."""
    unit, keys = problem.unit, problem.case.sizes["j"]
    p = problem.weights * (1 - problem.tanh**2)
    worst = _dx(problem, back) + slack.dx + p * slack.mean
    # Beyond the sum: the softcap's factors and the scale.
    summing = compound(gamma(keys, unit.sum), gamma(6, unit.a))
    spread = slack.dx + summing * worst
    spread = problem.scale * spread + _small_dx(problem)
    k, k_error = np.abs(problem.k), problem.operand_errors[1]
    common = slack.mean * (np.abs(p @ problem.k) + p @ k_error)
    common = problem.scale * (common + _dx(problem, back) @ k_error)
    flushed = problem.scale * unit.tiny * worst.sum(axis=-1, keepdims=True)
    error = spread @ (k + k_error) + common + flushed
    error = error + (1 + problem.scale) * problem.floor(keys)
    return np.where(problem.live.any(axis=-1, keepdims=True), error, 0.0)


def _dk_error(problem: Problem, back: Backward, slack: Slack) -> np.ndarray:
    """Error of dk = scale · dXᵀ Q, over all rows of the group."""
    unit, sizes = problem.unit, problem.case.sizes
    p = problem.weights * (1 - problem.tanh**2)
    worst = _dx(problem, back) + slack.dx + p * slack.mean
    summing = compound(
        gamma(problem.group_rows, unit.sum), gamma(6, unit.a), unit.heads
    )
    spread = slack.dx + p * slack.mean + summing * worst
    spread = problem.scale * spread + _small_dx(problem)
    q_error = problem.operand_errors[0]
    error = transposed(spread) @ (np.abs(problem.q) + q_error)
    error = error + problem.scale * transposed(_dx(problem, back)) @ q_error
    flushed = problem.scale * unit.tiny * worst.sum(axis=-2)[..., None]
    underflow = (1 + problem.scale) * problem.floor(sizes["i"])
    return _over_group(problem, error + flushed + underflow)


def _dv_error(problem: Problem, back: Backward) -> np.ndarray:
    """Error of dv = Pᵀ d_out, over all rows of the group."""
    unit, sizes = problem.unit, problem.case.sizes
    carried = compound(
        unit.p,
        unit.operand,
        unit.operand,
        gamma(problem.group_rows, unit.sum),
        gamma(2, unit.a),
        problem.dropout,
        unit.s if problem.drops else 0.0,
        unit.heads,
    )
    kept = np.where(problem.live, problem.kept, 0.0)
    spread = kept * (back.excess + carried * back.upper + problem.lost)
    flushed = unit.tiny * (kept * back.upper).sum(axis=-2)[..., None]
    d_out_error = problem.d_out_error
    error = transposed(spread) @ (np.abs(back.d_out) + d_out_error) + flushed
    error = error + transposed(kept * problem.weights) @ d_out_error
    return _over_group(problem, error + problem.floor(sizes["i"]))


def _dbias_error(problem: Problem, back: Backward, slack: Slack) -> np.ndarray:
    """Error of dbias: that of dS, rounded once, summed over broadcast axes."""
    unit, shape = problem.unit, problem.case.inputs["bias"].shape
    error = slack.ds + problem.weights * slack.mean
    error = error * (1 + unit.ds) + unit.ds * np.abs(back.ds)
    lost = unit.tiny + unit.small("ds")
    error = error + np.where(problem.live, lost, 0.0)
    summed = prod(problem.live.shape) // max(prod(shape), 1)
    # A block of a single query does not tell whether its bias is that query's alone.
    if shape[2] == 1:
        summed = round(summed * problem.blocks)
    summing = gamma(summed - 1, unit.sum) if summed > 1 else 0.0
    return sum_to(error + summing * (np.abs(back.ds) + error), shape)


def _over_group(problem: Problem, error: np.ndarray) -> np.ndarray:
    """`b n j x` → `b h j x`, 0 where no row of the group attends the key."""
    attended = transposed(np.any(problem.live, axis=-2, keepdims=True))
    stored = problem.unit.small("heads")
    error = np.where(attended, error + stored, 0.0)
    b, _, j, x = error.shape
    h, g = problem.case.sizes["h"], problem.case.sizes["g"]
    return error.reshape(b, h, g, j, x).sum(axis=2)


def _gradients_overflow(problem: Problem, back: Backward, slack: Slack) -> bool:
    """Whether a stored gradient of weights or logits can reach the largest number."""
    unit, p = problem.unit, problem.weights
    largest = largest_stored(problem)
    dp = greatest(np.abs(back.dp) + slack.dp)
    ds = greatest(np.abs(back.ds) + slack.ds + p * slack.mean)
    if unit.dp > 0 and dp >= largest:
        return True
    return unit.ds > 0 and ds * max(1.0, problem.scale) >= largest

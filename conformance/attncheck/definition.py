"""The axiom in float64, row by row: a blocked key does not exist.

Every query is treated alone, over the keys that it may see and no others.  Nothing is
fast here and nothing is shared with the code that is judged.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from attncheck import floats, formulas, pairs
from attncheck.case import ALL_GRADIENTS, Case
from attncheck.operations import OPERATIONS, RETURNED, Reduced


@dataclass(frozen=True, eq=False)
class Expected:
    """What a case must give, in float64.

    A blocked key has no score and no logit, so `scores` and `logits` hold NaN there and
    are comparable where `visible` only.  All else is comparable everywhere.  Of another
    operation, what comes before the output is that of the plain attention which it is
    reduced to.
    """

    visible: np.ndarray
    """`b n i j`, boolean: the query may see the key."""
    scores: np.ndarray
    """`b n i j`: raw dot products."""
    logits: np.ndarray
    """`b n i j`: after scale, softcap and bias."""
    masked: np.ndarray
    """`b n i j`: logits, −∞ where blocked."""
    weights: np.ndarray
    """`b n i j`: softmax over `j`, before dropout; empty rows are 0."""
    heads: np.ndarray
    """`b n i e`: the weighted sum of values of every query head."""
    output: np.ndarray
    """`b n i e`; of a multi-head case the merged heads, `b i c`."""
    lse: np.ndarray
    """`b n i`: natural logarithm of the sum of exp(logits); −∞ for an empty row."""
    dq: np.ndarray | None = None
    """Gradients of sum(output · d_out) + sum(lse · d_lse), each in the shape of its
    input; None where the case has neither, and `dbias` where it has no bias."""
    dk: np.ndarray | None = None
    dv: np.ndarray | None = None
    dbias: np.ndarray | None = None
    dslopes: np.ndarray | None = None
    """Those of the other operations' own inputs, from here on."""
    dtable: np.ndarray | None = None
    dkey_table: np.ndarray | None = None
    dvalue_table: np.ndarray | None = None
    dsinks: np.ndarray | None = None
    dtemperature: np.ndarray | None = None
    dw_q: np.ndarray | None = None
    dw_k: np.ndarray | None = None
    dw_s: np.ndarray | None = None
    dx: np.ndarray | None = None
    dcontext: np.ndarray | None = None
    dw_qr: np.ndarray | None = None
    dw_kr: np.ndarray | None = None
    dw_c: np.ndarray | None = None
    dw_v: np.ndarray | None = None
    dw_o: np.ndarray | None = None


def expected(case: Case) -> Expected:
    """The results of `case` by the axiom; inputs are cast exactly to float64.

    NaN and infinity are data: they spread as IEEE 754 has them spread, over the keys
    that exist.  Of a multi-head case only the forward results are given.  Those of a
    float64 case are computed in twice the precision, and rounded once.
    """
    with np.errstate(all="ignore"):
        if case.op in OPERATIONS:
            result = _of_operation(case)
        else:
            result = dict(vars(unrefined(case)))
        if case.dtype == "F64":
            result |= _refined(case, result)
        return Expected(**result)


def _of_operation(case: Case) -> dict[str, Any]:
    """Its results beside those of the last plain attention that it is reduced to."""
    last: dict[str, Any] = {}

    def attention(reduced: Reduced) -> dict[str, np.ndarray]:
        last.update(vars(unrefined(reduced.case)))
        return {name: last[name] for name in RETURNED if last[name] is not None}

    own = OPERATIONS[case.op].results(case, floats, attention)
    return last | dict.fromkeys(ALL_GRADIENTS) | own


def unrefined(case: Case) -> Expected:
    """The results of plain or multi-head attention in float64, of every type."""
    with np.errstate(all="ignore"):
        result = _forward(case)
        if case.op == "multi_head_attention":
            result["output"] = _merge(case, result["heads"])
        else:
            result["output"] = result["heads"]
            if {"d_out", "d_lse"} & set(case.inputs):
                result |= _backward(case, result)
        return Expected(**result)


def operands(case: Case) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """q `b n i d`, k `b h j d` and v `b h j e` in float64, projected if need be."""
    if case.op == "attention":
        return _float64(case, "q"), _float64(case, "k"), _float64(case, "v")
    x = _float64(case, "x")
    context = _float64(case, "context") if "context" in case.inputs else x
    q = np.einsum("bic,cnd->bnid", x, _float64(case, "w_q"), optimize=True)
    k = np.einsum("bjm,mhd->bhjd", context, _float64(case, "w_k"), optimize=True)
    v = np.einsum("bjm,mhe->bhje", context, _float64(case, "w_v"), optimize=True)
    return (
        q + _projection_bias(case, "b_q"),
        k + _projection_bias(case, "b_k"),
        v + _projection_bias(case, "b_v"),
    )


def visible(case: Case) -> np.ndarray:
    """Whether the query may see the key: the mask at full size, `b n i j`."""
    mask = case.inputs.get("mask", np.array(True))
    return np.broadcast_to(mask, _size(case, "bnij"))


def kept(case: Case) -> np.ndarray:
    """The factor that dropout puts on every weight, `b n i j`: 0 or 1/(1 − rate)."""
    if "dropout_keep" not in case.inputs:
        return np.ones(_size(case, "bnij"))
    factor = case.inputs["dropout_keep"] / (1 - case.dropout_rate)
    return np.broadcast_to(factor, _size(case, "bnij"))


def softmax(logits: np.ndarray) -> tuple[np.ndarray, float]:
    """Weights and log-sum-exp of one row; a row of only −∞ is empty."""
    top = logits.max(initial=-np.inf)
    if top == -np.inf:
        return np.zeros_like(logits), -np.inf
    exponentials = np.exp(logits - top)
    total = exponentials.sum()
    return exponentials / total, top + np.log(total)


def _forward(case: Case) -> dict[str, np.ndarray]:
    q, k, v = operands(case)
    bias, seen, factor = _bias(case), visible(case), kept(case)
    scores = np.full(seen.shape, np.nan)
    logits = np.full(seen.shape, np.nan)
    weights = np.zeros(seen.shape)
    lse = np.full(seen.shape[:3], -np.inf)
    heads = np.zeros(_size(case, "bnie"))
    for b, n, i in np.ndindex(seen.shape[:3]):
        keys = np.flatnonzero(seen[b, n, i])
        h, row = n // case.sizes["g"], (b, n, i)
        scores[row][keys] = k[b, h, keys] @ q[row]
        logits[row][keys] = _capped(case, scores[row][keys]) + bias[row][keys]
        weights[row][keys], lse[row] = softmax(logits[row][keys])
        if lse[row] != -np.inf:
            heads[row] = (weights[row] * factor[row])[keys] @ v[b, h, keys]
    masked = np.where(seen, logits, -np.inf)
    return {
        "visible": seen,
        "scores": scores,
        "logits": logits,
        "masked": masked,
        "weights": weights,
        "heads": heads,
        "lse": lse,
    }


def _backward(case: Case, forward: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    q, k, v = operands(case)
    factor, seen, lse = kept(case), forward["visible"], forward["lse"]
    d_out = _given(case, "d_out", "bnie")
    d_lse = _given(case, "d_lse", "bni")
    dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    d_logits = np.zeros(seen.shape)
    for b, n, i in np.ndindex(seen.shape[:3]):
        h, row = n // case.sizes["g"], (b, n, i)
        if lse[row] == -np.inf:
            continue
        keys = np.flatnonzero(seen[row])
        p, drop = forward["weights"][row][keys], factor[row][keys]
        dp = v[b, h, keys] @ d_out[row] * drop
        ds = p * (dp - p @ dp + d_lse[row])
        dx = case.scale_value * ds * _slope(case, forward["scores"][row][keys])
        d_logits[row][keys] = ds
        dq[row] = dx @ k[b, h, keys]
        dk[b, h, keys] += np.outer(dx, q[row])
        dv[b, h, keys] += np.outer(p * drop, d_out[row])
    gradients = {"dq": dq, "dk": dk, "dv": dv}
    if "bias" in case.inputs:
        gradients["dbias"] = sum_to(d_logits, case.inputs["bias"].shape)
    return gradients


def _refined(case: Case, result: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same results rounded once, from pairs of float64, where they are finite."""
    refined = {}
    for name, pair in formulas.results(case, pairs).items():
        rough, fine = result[name], pairs.nearest(pair)
        either = np.isfinite(rough) & np.isfinite(fine)
        refined[name] = np.where(either, fine, rough)
    return refined


def sum_to(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """`array` summed over the axes that broadcasting `shape` made, kept as 1."""
    axes = tuple(a for a, size in enumerate(shape) if size != array.shape[a])
    return array.sum(axis=axes, keepdims=True)


def _capped(case: Case, scores: np.ndarray) -> np.ndarray:
    """Scale, then softcap."""
    scaled = case.scale_value * scores
    if case.softcap is None:
        return scaled
    return case.softcap * np.tanh(scaled / case.softcap)


def _slope(case: Case, scores: np.ndarray) -> np.ndarray:
    """Derivative of the softcap at the scaled scores: sech², which never cancels."""
    if case.softcap is None:
        return np.ones_like(scores)
    return np.cosh(case.scale_value * scores / case.softcap) ** -2.0


def _merge(case: Case, heads: np.ndarray) -> np.ndarray:
    w_o = _float64(case, "w_o")
    merged = np.einsum("bnie,nec->bic", heads, w_o, optimize=True)
    return merged + case.inputs.get("b_o", np.zeros(1)).astype(np.float64)


def _projection_bias(case: Case, name: str) -> np.ndarray:
    """A projection's bias `n d`, ready to be added to `b n i d`; 0 where absent."""
    return case.inputs.get(name, np.zeros((1, 1))).astype(np.float64)[:, None, :]


def _bias(case: Case) -> np.ndarray:
    bias = case.inputs.get("bias", np.zeros((1, 1, 1, 1))).astype(np.float64)
    return np.broadcast_to(bias, _size(case, "bnij"))


def _given(case: Case, name: str, axes: str) -> np.ndarray:
    """An incoming gradient in float64; 0 where the case has none."""
    size = _size(case, axes)
    return _float64(case, name) if name in case.inputs else np.zeros(size)


def _float64(case: Case, name: str) -> np.ndarray:
    return case.inputs[name].astype(np.float64)


def _size(case: Case, axes: str) -> tuple[int, ...]:
    return tuple(case.sizes[axis] for axis in axes)

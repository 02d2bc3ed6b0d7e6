"""The gradients of attention, written out by hand."""

import numpy as np

from attnref.spec import patterns
from attnref.spec.checks import check_attention, check_gradients, dtype_name

from .attend import apply_dropout
from .attention import attention_steps
from .mask import forget_blocked, mask_array
from .scores import accumulate, apply_scale, contract, group, ungroup


@np.errstate(invalid="ignore")  # NaN is a result like any other
def attention_vjp(
    d_out,
    q,
    k,
    v,
    *,
    mask=None,
    bias=None,
    scale=None,
    softcap=None,
    dropout_rate=0.0,
    dropout_keep=None,
    d_lse=None,
):
    """The gradients of `attention`: what d_out and d_lse become at its arguments.

    With X the scaled scores, P the weights and P̃ the weights after dropout:

        dV = P̃ᵀ dO          dP = dropout(dO Vᵀ)      D_i = Σ_j P_ij dP_ij − dlse_i
        dS = P ∘ (dP − D)    dX = dS ∘ (1 − tanh²(X / softcap))
        dQ = scale·dX K      dK = scale·dXᵀ Q         dbias = dS

    Args:
        d_out: gradient of the output, `b n i e`, in the dtype of the inputs.
        d_lse: gradient of the log-sum-exp, `b n i`, in the accumulation type, or None.

    The other arguments, and the errors, are those of `attention`.

    Returns:
        (dq, dk, dv, dbias) in the shapes and the dtype of the arguments, rounded once.
        dbias is summed over the bias's broadcast axes, and None without a bias.

    A query or an incoming gradient that is not finite, in a row with keys, is outside
    of the spec: as 0·NaN it may reach the gradients of keys that are blocked for it.
    """
    options = {"bias": bias, "scale": scale, "softcap": softcap}
    options |= {"dropout_rate": dropout_rate, "dropout_keep": dropout_keep}
    sizes = check_attention(np.ndarray, q, k, v, mask=mask, **options)
    check_gradients(np.ndarray, d_out, d_lse, sizes, dtype_name(q))
    mask = mask_array(mask, sizes)
    scale = sizes["d"] ** -0.5 if scale is None else scale

    steps = attention_steps(q, k, v, mask=mask, **options)
    dtype = q.dtype
    q, k, v = forget_blocked(accumulate(q), accumulate(k), accumulate(v), mask)
    h = sizes["h"]
    # An empty row contributes nothing, whatever its incoming gradients hold.
    empty = steps.lse == -np.inf
    d_out = group(np.where(empty[..., None], 0, accumulate(d_out)), h)
    d_lse = None if d_lse is None else np.where(empty, 0, d_lse)

    dropped = group(apply_dropout(steps.weights, dropout_rate, dropout_keep), h)
    dv = contract(patterns.GRAD_VALUE, dropped, d_out)
    d_dropped = ungroup(contract(patterns.GRAD_WEIGHTS, d_out, v))
    d_weights = apply_dropout(d_dropped, dropout_rate, dropout_keep)
    d_logits = _softmax_vjp(d_weights, d_lse, steps)
    d_scaled = d_logits * _softcap_slope(apply_scale(steps.scores, scale), softcap)
    d_scores = group(apply_scale(d_scaled, scale), h)
    dq = ungroup(contract(patterns.GRAD_QUERY, d_scores, k))
    dk = contract(patterns.GRAD_KEY, d_scores, group(q, h))

    dq, dk, dv = forget_blocked(dq, dk, dv, mask)
    dbias = None if bias is None else _sum_to(d_logits, bias.shape).astype(dtype)
    return dq.astype(dtype), dk.astype(dtype), dv.astype(dtype), dbias


def _softmax_vjp(d_weights, d_lse, steps):
    """dS = P ∘ (dP − D), exactly 0 where the logit is −∞."""
    delta = np.sum(steps.weights * d_weights, axis=-1, keepdims=True)
    if d_lse is not None:
        delta = delta - d_lse[..., None]
    live = steps.masked != -np.inf
    return np.where(live, steps.weights * (d_weights - delta), 0)


def _softcap_slope(scaled, softcap):
    """The derivative of c·tanh(x / c): 1 − tanh²(x / c)."""
    return 1 if softcap is None else 1 - np.tanh(scaled / float(softcap)) ** 2


def _sum_to(gradient, shape):
    """The gradient of a broadcast: summed over the axes that are 1 in `shape`."""
    axes = tuple(axis for axis, size in enumerate(shape) if size == 1)
    return gradient.sum(axis=axes, keepdims=True)

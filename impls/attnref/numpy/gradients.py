"""The gradients of attention, written out by hand."""

import numpy as np

from attnref.spec import patterns
from attnref.spec.checks import check_attention, check_gradients, dtype_name

from .attend import apply_dropout, attend
from .attention import put_together
from .mask import forget_blocked, mask_array
from .scores import accumulate, apply_scale, contract, group, scores, ungroup
from .softmax import softmax


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
    options = {"mask": mask, "bias": bias, "scale": scale, "softcap": softcap}
    options |= {"dropout_rate": dropout_rate, "dropout_keep": dropout_keep}
    sizes = check_attention(np.ndarray, q, k, v, **options)
    found = put_together_vjp(d_out, d_lse, q, k, v, sizes, **options)
    rounded = {name: gradient.astype(q.dtype) for name, gradient in found.items()}
    return tuple(rounded.get(name) for name in ("q", "k", "v", "bias"))


def scores_vjp(d_scores, q, k):
    """What the gradient of the raw scores, `b n i j`, becomes at q and k."""
    d_scores = group(d_scores, k.shape[1])
    dq = ungroup(contract(patterns.GRAD_QUERY, d_scores, k))
    dk = contract(patterns.GRAD_KEY, d_scores, group(q, k.shape[1]))
    return {"q": dq, "k": dk}


def softmax_vjp(d_weights, d_lse, steps):
    """dS = P ∘ (dP − D), exactly 0 where the logit is −∞; all but `steps` like them."""
    delta = row_sums(d_weights, d_lse, steps)[..., None]
    live = steps.masked != -np.inf
    return {"masked": np.where(live, steps.weights * (d_weights - delta), 0)}


def row_sums(d_weights, d_lse, steps):
    """D_i = Σ_j P_ij dP_ij − dlse_i: `b n i`."""
    delta = np.sum(steps.weights * d_weights, axis=-1)
    if d_lse is not None:
        delta = delta - d_lse
    return delta


def attend_vjp(d_out, weights, v):
    """What the gradient of the output, `b n i e`, becomes at the weights and at v."""
    h = v.shape[1]
    d_out = group(d_out, h)
    d_weights = ungroup(contract(patterns.GRAD_WEIGHTS, d_out, v))
    dv = contract(patterns.GRAD_VALUE, group(weights, h), d_out)
    return {"weights": d_weights, "v": dv}


@np.errstate(invalid="ignore")  # NaN is a result like any other
def put_together_vjp(
    d_out,
    d_lse,
    q,
    k,
    v,
    sizes,
    *,
    mask=None,
    bias=None,
    scale=None,
    softcap=None,
    dropout_rate=0.0,
    dropout_keep=None,
    scores=(scores, scores_vjp),
    softmax=(softmax, softmax_vjp),
    attend=(attend, attend_vjp),
):
    """The gradients of `put_together` by the names of its arguments, not rounded yet.

    A step that a variant brings comes with its gradients, as a pair.  They are a dict,
    in which a variant may have more: what it takes beside the arguments of attention.
    """
    dtype = dtype_name(q)
    check_gradients(np.ndarray, d_out, d_lse, sizes, dtype)
    mask = mask_array(mask, sizes)
    scale = sizes["d"] ** -0.5 if scale is None else scale
    steps = put_together(
        q,
        k,
        v,
        sizes,
        mask=mask,
        bias=bias,
        scale=scale,
        softcap=softcap,
        dropout_rate=dropout_rate,
        dropout_keep=dropout_keep,
        scores=scores[0],
        softmax=softmax[0],
        attend=attend[0],
    )
    q, k, v = forget_blocked(accumulate(q), accumulate(k), accumulate(v), mask)
    # An empty row contributes nothing, whatever its incoming gradients hold.
    empty = (steps.masked == -np.inf).all(axis=-1)
    d_out = np.where(empty[..., None], 0, accumulate(d_out))
    d_lse = None if d_lse is None else np.where(steps.lse == -np.inf, 0, d_lse)

    dropped = apply_dropout(steps.weights, dropout_rate, dropout_keep)
    found = attend[1](d_out, dropped, v)
    d_dropped = found.pop("weights")
    d_weights = apply_dropout(d_dropped, dropout_rate, dropout_keep)
    found |= softmax[1](d_weights, d_lse, steps)
    d_logits = found.pop("masked")
    d_scaled = d_logits * _softcap_slope(apply_scale(steps.scores, scale), softcap)
    found |= scores[1](apply_scale(d_scaled, scale), q, k)
    dq, dk, dv = forget_blocked(found["q"], found["k"], found["v"], mask)
    found |= {"q": dq, "k": dk, "v": dv}
    return found if bias is None else found | {"bias": _sum_to(d_logits, bias.shape)}


def _softcap_slope(scaled, softcap):
    """The derivative of c·tanh(x / c): 1 − tanh²(x / c)."""
    return 1 if softcap is None else 1 - np.tanh(scaled / float(softcap)) ** 2


def _sum_to(gradient, shape):
    """The gradient of a broadcast: summed over the axes that are 1 in `shape`."""
    axes = tuple(axis for axis, size in enumerate(shape) if size == 1)
    return gradient.sum(axis=axes, keepdims=True)

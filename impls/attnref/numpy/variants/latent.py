"""Latent attention: keys and values are projections of a few numbers a position.

Only those numbers, the *compressed* width, and one rotary key for all heads are to be
kept of a position in decoding.
"""

from functools import partial
from typing import NamedTuple

import numpy as np

from attnref.spec import patterns
from attnref.spec.variants import check_latent, check_rows

from ..attention import attention
from ..gradients import put_together_vjp
from ..mask import forget_blocked, mask_array
from ..projection import merge, project
from ..scores import accumulate, contract
from .positions import key_positions, query_positions
from .rotary import rotate


class LatentParams(NamedTuple):
    """Weights of latent attention."""

    w_q: np.ndarray
    """`c n d`: queries."""
    w_qr: np.ndarray
    """`c n p`: their rotary part."""
    w_kr: np.ndarray
    """`c p`: the rotary part of the keys, one for all heads."""
    w_c: np.ndarray
    """`c r`: the compression."""
    w_k: np.ndarray
    """`r n d`: from the compressed width to keys."""
    w_v: np.ndarray
    """`r n e`: from the compressed width to values."""
    w_o: np.ndarray
    """`n e c`: the output."""


def latent_attention(
    params,
    x,
    context=None,
    *,
    offset=0,
    base=10000.0,
    pairing="halves",
    mask=None,
    absorbed=False,
):
    """Multi-head latent attention from x to itself, or to a context.

    With c = x W_c of the context, the keys are [c W_k, R(x W_kr)] and the queries
    [x W_q, R(x W_qr)], where R turns by the position; the values are c W_v, and the
    scale is 1/√(d + p).

    Absorbed, W_k goes to the queries and W_v behind the weighted sum, by q·(c W_k) =
    (q W_kᵀ)·c: all heads attend to one key [c, R(x W_kr)] with the value c, and no key
    or value of a head is ever formed.  The results are the same but for rounding.

    Args:
        params: `LatentParams`.
        x: `b i c`.
        context: `b j c`, where keys and values come from; x by default.
        offset: query i stands at position i + offset, key j at j; an int, or `b` ints.
        base, pairing: as of `rotate`.
        mask: as of `attention`.
        absorbed: whether the weights are absorbed.

    Returns:
        `b i c` in the dtype of x, rounded once: between the projections and the end
        everything is in the accumulation type.

    Raises:
        TypeError, ValueError: wrong input; the message names the axis and the sizes.

    Source: DeepSeek-AI, DeepSeek-V2 (arXiv 2405.04434), section 2.1, without its
    compression of the queries and its normalisation of what is compressed.
    """
    sizes = check_latent(np.ndarray, params, x, context, mask)
    mask = mask_array(mask, sizes)
    at_q, at_k = query_positions(offset, sizes), key_positions(sizes)
    turn = partial(rotate, base=base, pairing=pairing)

    dtype, x = x.dtype, accumulate(x)
    source = x if context is None else accumulate(context)
    x, source = _forget_blocked(x, source, mask)
    turned = (
        turn(project(x, params.w_qr), at_q),
        turn(contract(patterns.COMPRESS, source, params.w_kr)[:, None], at_k),
    )
    operands = (_absorbed if absorbed else _plain)(params, x, source, *turned)
    scale = (sizes["d"] + sizes["p"]) ** -0.5
    heads = attention(*operands, mask=mask, scale=scale)
    if absorbed:
        heads = contract(patterns.ABSORB_VALUE, heads, params.w_v)
    return merge(heads, params.w_o).astype(dtype)


def _plain(params, x, source, turned_q, turned_k):
    """Queries, keys and values of every head."""
    c = contract(patterns.COMPRESS, source, params.w_c)
    q, k, v = project(x, params.w_q), project(c, params.w_k), project(c, params.w_v)
    turned_k = np.broadcast_to(turned_k, (*k.shape[:3], turned_k.shape[-1]))
    q = np.concatenate([q, turned_q], axis=-1)
    return q, np.concatenate([k, turned_k], axis=-1), v


def _absorbed(params, x, source, turned_q, turned_k):
    """Queries with W_k in them, and one key and value for all heads."""
    c = contract(patterns.COMPRESS, source, params.w_c)[:, None]
    q = contract(patterns.ABSORB_KEY, project(x, params.w_q), params.w_k)
    q = np.concatenate([q, turned_q], axis=-1)
    return q, np.concatenate([c, turned_k], axis=-1), c


def latent_attention_vjp(
    d_out,
    params,
    x,
    context=None,
    *,
    offset=0,
    base=10000.0,
    pairing="halves",
    mask=None,
    absorbed=False,
):
    """The gradients of `latent_attention`: a dict, name → gradient, rounded once.

    The names are those of `LatentParams`, x, and context if given.  The formulas are
    those of the plain form for either: they are the same function.
    """
    sizes = check_latent(np.ndarray, params, x, context, mask)
    check_rows(np.ndarray, d_out, x, "d_out")
    mask = mask_array(mask, sizes)
    at_q, at_k = query_positions(offset, sizes), key_positions(sizes)
    turn = partial(rotate, base=base, pairing=pairing)
    d, p = sizes["d"], sizes["p"]

    dtype, x = x.dtype, accumulate(x)
    source = x if context is None else accumulate(context)
    x, source = _forget_blocked(x, source, mask)
    turned = (
        turn(project(x, params.w_qr), at_q),
        turn(contract(patterns.COMPRESS, source, params.w_kr)[:, None], at_k),
    )
    q, k, v = _plain(params, x, source, *turned)
    options = {"mask": mask, "scale": (d + p) ** -0.5}
    alike = sizes | {"h": sizes["n"], "g": 1, "d": d + p}
    d_heads = contract(patterns.GRAD_MERGE, d_out, params.w_o)
    found = put_together_vjp(d_heads, None, q, k, v, alike, **options)

    dq, dq_turned = found["q"][..., :d], turn(found["q"][..., d:], -at_q)
    dk, dk_turned = found["k"][..., :d], found["k"][..., d:].sum(axis=1, keepdims=True)
    dk_turned = turn(dk_turned, -at_k)[:, 0]
    c = contract(patterns.COMPRESS, source, params.w_c)
    of_k, of_v = (
        _project_vjp(dk, c, params.w_k),
        _project_vjp(found["v"], c, params.w_v),
    )
    of_q, of_qr = (
        _project_vjp(dq, x, params.w_q),
        _project_vjp(dq_turned, x, params.w_qr),
    )
    of_c = _compress_vjp(of_k[0] + of_v[0], source, params.w_c)
    of_kr = _compress_vjp(dk_turned, source, params.w_kr)
    dx, d_source = _forget_blocked(of_q[0] + of_qr[0], of_c[0] + of_kr[0], mask)
    gradients = {
        "w_q": of_q[1],
        "w_qr": of_qr[1],
        "w_kr": of_kr[1],
        "w_c": of_c[1],
        "w_k": of_k[1],
        "w_v": of_v[1],
        "w_o": contract(
            patterns.GRAD_MERGE_WEIGHTS, attention(q, k, v, **options), d_out
        ),
        "x": dx + d_source if context is None else dx,
    }
    gradients |= {} if context is None else {"context": d_source}
    return {name: gradient.astype(dtype) for name, gradient in gradients.items()}


def _project_vjp(gradient, x, w):
    """What the gradient of `project` becomes at x and at w."""
    return (
        contract(patterns.GRAD_PROJECT, gradient, w),
        contract(patterns.GRAD_PROJECT_WEIGHTS, x, gradient),
    )


def _compress_vjp(gradient, x, w):
    """What the gradient of a compression becomes at x and at w."""
    return (
        contract(patterns.GRAD_COMPRESS, gradient, w),
        contract(patterns.GRAD_COMPRESS_WEIGHTS, x, gradient),
    )


def _forget_blocked(x, source, mask):
    """Both, 0 where no head sees anything, or is seen by none."""
    q, k = x[:, None], source[:, None]
    by_any = None if mask is None else mask.any(axis=1, keepdims=True)
    q, k, _ = forget_blocked(q, k, k, by_any)
    return q[:, 0], k[:, 0]

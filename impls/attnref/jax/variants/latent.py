"""Latent attention: keys and values are projections of a few numbers a position.

Only those numbers, the *compressed* width, and one rotary key for all heads are to be
kept of a position in decoding.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from attnref.spec import patterns
from attnref.spec.variants import check_latent, check_rotary

from ..attention import attention
from ..mask import forget_blocked, mask_array
from ..projection import merge, project
from ..scores import accumulate, contract
from .positions import key_positions, query_positions
from .rotary import _thetas, _turn


class LatentParams(NamedTuple):
    """Weights of latent attention.  A pytree."""

    w_q: jax.Array
    """`c n d`: queries."""
    w_qr: jax.Array
    """`c n p`: their rotary part."""
    w_kr: jax.Array
    """`c p`: the rotary part of the keys, one for all heads."""
    w_c: jax.Array
    """`c r`: the compression."""
    w_k: jax.Array
    """`r n d`: from the compressed width to keys."""
    w_v: jax.Array
    """`r n e`: from the compressed width to values."""
    w_o: jax.Array
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
    sizes = check_latent(jax.Array, params, x, context, mask)
    width = check_rotary(sizes["p"], base=base, width=None, pairing=pairing)
    mask = mask_array(mask, sizes)
    places = query_positions(offset, sizes), key_positions(sizes)
    angles = _thetas(base, width, jnp.promote_types(x.dtype, jnp.float32))

    dtype = x.dtype
    params, x, context = _accumulated((params, x, context))
    given = params, x, x if context is None else context, mask, places, angles
    operands = _operands(*given, pairing=pairing, absorbed=absorbed)
    scale = (sizes["d"] + sizes["p"]) ** -0.5
    heads = attention(*operands, mask=mask, scale=scale)
    return _merged(heads, params, absorbed=absorbed).astype(dtype)


@jax.jit
def _accumulated(arrays):
    """So that what is compiled next serves all 16-bit types and float32."""
    return jax.tree.map(accumulate, arrays)


@partial(jax.jit, static_argnames=("pairing", "absorbed"))
def _operands(params, x, source, mask, places, thetas, *, pairing, absorbed):
    """Queries, keys and values."""
    x, source = _forget_blocked(x, source, mask)
    of_query, of_key = places
    turned_q = _turn(project(x, params.w_qr), of_query, thetas, pairing)
    shared = contract(patterns.COMPRESS, source, params.w_kr)[:, None]
    turned_k = _turn(shared, of_key, thetas, pairing)
    of_heads = _absorbed if absorbed else _plain
    return of_heads(params, x, source, turned_q, turned_k)


@partial(jax.jit, static_argnames="absorbed")
def _merged(heads, params, *, absorbed):
    if absorbed:
        heads = contract(patterns.ABSORB_VALUE, heads, params.w_v)
    return merge(heads, params.w_o)


def _plain(params, x, source, turned_q, turned_k):
    """Queries, keys and values of every head."""
    c = contract(patterns.COMPRESS, source, params.w_c)
    q, k, v = project(x, params.w_q), project(c, params.w_k), project(c, params.w_v)
    turned_k = jnp.broadcast_to(turned_k, (*k.shape[:3], turned_k.shape[-1]))
    q = jnp.concatenate([q, turned_q], axis=-1)
    return q, jnp.concatenate([k, turned_k], axis=-1), v


def _absorbed(params, x, source, turned_q, turned_k):
    """Queries with W_k in them, and one key and value for all heads."""
    c = contract(patterns.COMPRESS, source, params.w_c)[:, None]
    q = contract(patterns.ABSORB_KEY, project(x, params.w_q), params.w_k)
    q = jnp.concatenate([q, turned_q], axis=-1)
    return q, jnp.concatenate([c, turned_k], axis=-1), c


def _forget_blocked(x, source, mask):
    """Both, 0 where no head sees anything, or is seen by none."""
    q, k = x[:, None], source[:, None]
    by_any = None if mask is None else mask.any(axis=1, keepdims=True)
    q, k, _ = forget_blocked(q, k, k, by_any)
    return q[:, 0], k[:, 0]

"""Positions relative to the query: Shaw's tables, T5's buckets, ALiBi's slopes.

Query i stands at i + offset and key j at j; what counts is j − i − offset.
"""

from functools import partial

import jax
import jax.numpy as jnp
from einops import rearrange

from attnref.spec import patterns
from attnref.spec.checks import check_attention
from attnref.spec.relative import (
    alibi_slopes,
    check_t5,
    shaw_clip,
    shaw_row,
    t5_bucket,
)

from ..attend import attend
from ..attention import put_together
from ..mask import mask_array
from ..scores import accumulate, add_bias, contract, scores
from .positions import distances


def shaw_attention(q, k, v, *, key_table, value_table=None, offset=0, **options):
    """Attention with a vector for every distance, added to the keys and to the values:

        s_ij = q_i·(k_j + a_ij)        o_i = Σ_j p_ij (v_j + b_ij)

    a_ij is row clip(j − i − offset, −c, c) + c of the table for keys, and b_ij that of
    the one for values.

    Args:
        key_table: `r d`, r = 2c + 1 rows, shared by the heads.
        value_table: `r e`, or None for no b_ij.
        offset: an int, or integers `b`, as of a causal mask.
        options: mask, bias, scale, softcap, dropout_rate and dropout_keep.

    The other arguments, and the errors, are those of `attention`.  The scale is that of
    the whole score.  What the tables hold for a pair that no head may see counts for
    nothing.

    Returns:
        the output `b n i e`, in the dtype of the inputs, rounded once, and the
        log-sum-exp `b n i`, in the accumulation type.

    Source: Shaw et al., Self-attention with relative position representations (arXiv
    1803.02155), equations 3 and 4.
    """
    parameters = {"key_table": (key_table, "r d"), "value_table": (value_table, "r e")}
    sizes = check_attention(jax.Array, q, k, v, parameters=parameters, **options)
    mask = options["mask"] = mask_array(options.get("mask"), sizes)
    clip, distance = shaw_clip(sizes["r"]), distances(offset, sizes)
    of_keys = _look_up(accumulate(key_table), distance, clip, mask, sizes["b"])

    def shaw_scores(q, k):
        return scores(q, k) + _relative_scores(q, of_keys)

    def shaw_attend(weights, v):
        if value_table is None:
            return attend(weights, v)
        table = accumulate(value_table)
        of_values = _look_up(table, distance, clip, mask, sizes["b"])
        return attend(weights, v) + _relative_attend(weights, of_values)

    steps = put_together(
        q, k, v, sizes, scores=shaw_scores, attend=shaw_attend, **options
    )
    return steps.output, steps.lse


@partial(jax.jit, static_argnames=("clip", "b"))
def _look_up(table, distance, clip, mask, b):
    """The table's vectors by pairs, `b i j x`; 0 for a pair that no head may see."""
    found = table[shaw_row(distance, clip)]
    if mask is not None:
        found = jnp.where(mask.any(axis=1)[..., None], found, 0)
    return jnp.broadcast_to(found, (b, *found.shape[1:]))


@jax.jit
def _relative_scores(q, of_keys):
    return contract(patterns.RELATIVE_SCORES, q, of_keys)


@jax.jit
def _relative_attend(weights, of_values):
    return contract(patterns.RELATIVE_ATTEND, weights, of_values)


def t5_attention(
    q, k, v, *, table, bidirectional=True, max_distance=128, offset=0, **options
):
    """Attention with a bias that depends on the head and on the bucket of a distance.

    Args:
        table: `r n`, a row a bucket; the buckets are `attnref.spec.t5_bucket`'s.
        bidirectional: whether keys after the query have buckets of their own.
        max_distance: an int, from which on all distances share a bucket.
        offset: an int, or integers `b`, as of a causal mask.
        options: mask, bias, scale, softcap, dropout_rate and dropout_keep.  T5 itself
            has scale 1.

    The other arguments, and the errors, are those of `attention`.

    Returns:
        the output `b n i e`, in the dtype of the inputs, rounded once, and the
        log-sum-exp `b n i`, in the accumulation type.

    Source: Raffel et al. (arXiv 1910.10683), section 2.1.
    """
    sizes = check_attention(
        jax.Array, q, k, v, parameters={"table": (table, "r n")}, **options
    )
    check_t5(sizes["r"], max_distance, bidirectional)
    distance = distances(offset, sizes)
    bias = _bucket_bias(accumulate(table), distance, max_distance, bidirectional)
    steps = put_together(q, k, v, sizes, **_with_bias(options, bias))
    return steps.output, steps.lse


@partial(jax.jit, static_argnames=("max_distance", "bidirectional"))
def _bucket_bias(table, distance, max_distance, bidirectional):
    """`b n i j`, with b full or 1."""
    buckets = t5_bucket(distance, len(table), max_distance, bidirectional)
    return rearrange(table[buckets], patterns.TABLE_BIAS)


def alibi_attention(q, k, v, *, slopes=None, offset=0, **options):
    """Attention with a bias that falls with the distance: −m_n·|j − i − offset|.

    Args:
        slopes: `n`; None for `attnref.spec.alibi_slopes(n)`, by the published code.
        offset: an int, or integers `b`, as of a causal mask.
        options: mask, bias, scale, softcap, dropout_rate and dropout_keep.

    The other arguments, and the errors, are those of `attention`.

    Returns:
        the output `b n i e`, in the dtype of the inputs, rounded once, and the
        log-sum-exp `b n i`, in the accumulation type.

    Source: Press et al., Train short, test long (arXiv 2108.12409), section 3.
    """
    parameters = {"slopes": (slopes, "n")}
    sizes = check_attention(jax.Array, q, k, v, parameters=parameters, **options)
    if slopes is None:
        wide = jnp.promote_types(q.dtype, jnp.float32)
        slopes = jnp.array(alibi_slopes(sizes["n"]), wide)
    bias = _slope_bias(accumulate(slopes), distances(offset, sizes))
    steps = put_together(q, k, v, sizes, **_with_bias(options, bias))
    return steps.output, steps.lse


@jax.jit
def _slope_bias(slopes, distance):
    """−m_n·|distance|: `b n i j`, with b full or 1."""
    slopes = slopes[:, None, None]
    return -slopes * abs(distance)[:, None].astype(slopes.dtype)


def _with_bias(options, bias):
    """The options, with this bias beside the one that they have."""
    return options | {"bias": add_bias(bias, options.get("bias"))}

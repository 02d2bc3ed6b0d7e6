"""Positions relative to the query: Shaw's tables, T5's buckets, ALiBi's slopes.

Query i stands at i + offset and key j at j; what counts is j − i − offset.
"""

import numpy as np
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
from ..gradients import _sum_to, attend_vjp, put_together_vjp, scores_vjp
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
    sizes, options = _check_shaw(q, k, v, key_table, value_table, options)
    (step, _), (end, _) = _shaw_steps(sizes, key_table, value_table, offset, options)
    steps = put_together(q, k, v, sizes, scores=step, attend=end, **options)
    return steps.output, steps.lse


def shaw_attention_vjp(
    d_out, q, k, v, *, key_table, value_table=None, offset=0, d_lse=None, **options
):
    """The gradients of `shaw_attention`: a dict, argument → gradient, rounded once."""
    sizes, options = _check_shaw(q, k, v, key_table, value_table, options)
    step, end = _shaw_steps(sizes, key_table, value_table, offset, options)
    found = put_together_vjp(
        d_out, d_lse, q, k, v, sizes, scores=step, attend=end, **options
    )
    return {name: gradient.astype(q.dtype) for name, gradient in found.items()}


def _check_shaw(q, k, v, key_table, value_table, options):
    """The sizes, and the options with the mask as an array."""
    parameters = {"key_table": (key_table, "r d"), "value_table": (value_table, "r e")}
    sizes = check_attention(np.ndarray, q, k, v, parameters=parameters, **options)
    return sizes, options | {"mask": mask_array(options.get("mask"), sizes)}


def _shaw_steps(sizes, key_table, value_table, offset, options):
    """`scores` and `attend` with the tables' vectors, each with its gradients."""
    rows = shaw_row(distances(offset, sizes), shaw_clip(sizes["r"]))
    mask = options["mask"]
    of_keys = _look_up(key_table, rows, mask, sizes)

    def shaw_scores(q, k):
        return scores(q, k) + contract(patterns.RELATIVE_SCORES, q, of_keys)

    def shaw_scores_vjp(d_scores, q, k):
        found = scores_vjp(d_scores, q, k)
        dq = contract(patterns.GRAD_RELATIVE_QUERY, d_scores, of_keys)
        d_rows = contract(patterns.GRAD_RELATIVE_KEY, d_scores, q)
        table = _sum_rows(d_rows, rows, sizes["r"])
        return found | {"q": found["q"] + dq, "key_table": table}

    if value_table is None:
        return (shaw_scores, shaw_scores_vjp), (attend, attend_vjp)
    of_values = _look_up(value_table, rows, mask, sizes)

    def shaw_attend(weights, v):
        relative = contract(patterns.RELATIVE_ATTEND, weights, of_values)
        return attend(weights, v) + relative

    def shaw_attend_vjp(d_out, weights, v):
        found = attend_vjp(d_out, weights, v)
        d_weights = contract(patterns.GRAD_RELATIVE_WEIGHTS, d_out, of_values)
        d_rows = contract(patterns.GRAD_RELATIVE_VALUE, weights, d_out)
        table = _sum_rows(d_rows, rows, sizes["r"])
        return found | {"weights": found["weights"] + d_weights, "value_table": table}

    return (shaw_scores, shaw_scores_vjp), (shaw_attend, shaw_attend_vjp)


def _look_up(table, rows, mask, sizes):
    """The table's vectors by pairs, `b i j x`; 0 for a pair that no head may see."""
    found = accumulate(table)[rows]
    if mask is not None:
        found = np.where(mask.any(axis=1)[..., None], found, 0)
    return np.broadcast_to(found, (sizes["b"], *found.shape[1:]))


def _sum_rows(gradient, rows, r):
    """The gradient of a table, of which every pair has taken a row."""
    rows = np.broadcast_to(rows, gradient.shape[:3])
    return np.stack([gradient[rows == row].sum(axis=0) for row in range(r)])


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
        np.ndarray, q, k, v, parameters={"table": (table, "r n")}, **options
    )
    buckets = _buckets(sizes, bidirectional, max_distance, offset)
    bias = _table_bias(table, buckets)
    steps = put_together(q, k, v, sizes, **_with_bias(options, bias))
    return steps.output, steps.lse


def t5_attention_vjp(
    d_out,
    q,
    k,
    v,
    *,
    table,
    bidirectional=True,
    max_distance=128,
    offset=0,
    d_lse=None,
    **options,
):
    """The gradients of `t5_attention`: a dict, argument → gradient, rounded once."""
    sizes = check_attention(
        np.ndarray, q, k, v, parameters={"table": (table, "r n")}, **options
    )
    buckets = _buckets(sizes, bidirectional, max_distance, offset)
    bias = _table_bias(table, buckets)
    found = _biased_vjp(d_out, d_lse, q, k, v, sizes, bias, options)
    d_rows = rearrange(found.pop("relative"), patterns.GRAD_TABLE)
    found["table"] = _sum_rows(d_rows, buckets, sizes["r"])
    return {name: gradient.astype(q.dtype) for name, gradient in found.items()}


def _buckets(sizes, bidirectional, max_distance, offset):
    check_t5(sizes["r"], max_distance, bidirectional)
    distance = distances(offset, sizes)
    return t5_bucket(distance, sizes["r"], max_distance, bidirectional)


def _table_bias(table, rows):
    return rearrange(accumulate(table)[rows], patterns.TABLE_BIAS)


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
    sizes = check_attention(np.ndarray, q, k, v, parameters=parameters, **options)
    bias = _slope_bias(q, slopes, distances(offset, sizes))
    steps = put_together(q, k, v, sizes, **_with_bias(options, bias))
    return steps.output, steps.lse


def alibi_attention_vjp(
    d_out, q, k, v, *, slopes=None, offset=0, d_lse=None, **options
):
    """The gradients of `alibi_attention`: a dict, argument → gradient, rounded once."""
    parameters = {"slopes": (slopes, "n")}
    sizes = check_attention(np.ndarray, q, k, v, parameters=parameters, **options)
    distance = distances(offset, sizes)
    bias = _slope_bias(q, slopes, distance)
    found = _biased_vjp(d_out, d_lse, q, k, v, sizes, bias, options)
    d_bias = found.pop("relative")
    if slopes is not None:
        lengths = abs(distance)[:, None].astype(d_bias.dtype)
        found["slopes"] = -np.sum(d_bias * lengths, axis=(0, 2, 3))
    return {name: gradient.astype(q.dtype) for name, gradient in found.items()}


def _slope_bias(q, slopes, distance):
    """−m_n·|distance|: `b n i j`, with b full or 1."""
    wide = accumulate(q[:0]).dtype
    if slopes is None:
        slopes = np.array(alibi_slopes(q.shape[1]), wide)
    return -accumulate(slopes)[:, None, None] * abs(distance)[:, None].astype(wide)


def _with_bias(options, bias):
    """The options, with this bias beside the one that they have."""
    return options | {"bias": add_bias(bias, options.get("bias"))}


def _biased_vjp(d_out, d_lse, q, k, v, sizes, bias, options):
    """Gradients with a bias of the variant's own, whose gradient is "relative"."""
    own = options.get("bias")
    found = put_together_vjp(d_out, d_lse, q, k, v, sizes, **_with_bias(options, bias))
    d_bias = found.pop("bias")
    if own is not None:
        found["bias"] = _sum_to(d_bias, own.shape)
    return found | {"relative": _sum_to(d_bias, bias.shape)}

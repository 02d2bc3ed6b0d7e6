"""Multi-head attention: project, attend, merge."""

from typing import NamedTuple

import jax

from attnref.spec.checks import check_multi_head

from .attention import attention
from .projection import merge, project
from .scores import accumulate


class MultiHeadParams(NamedTuple):
    """Weights and biases of multi-head attention; `m = c` if no context. A pytree."""

    w_q: jax.Array
    """`c n d`"""
    w_k: jax.Array
    """`m h d`"""
    w_v: jax.Array
    """`m h e`"""
    w_o: jax.Array
    """`n e c`"""
    b_q: jax.Array | None = None
    """`n d`"""
    b_k: jax.Array | None = None
    """`h d`"""
    b_v: jax.Array | None = None
    """`h e`"""
    b_o: jax.Array | None = None
    """`c`"""


def multi_head_attention(
    params,
    x,
    context=None,
    *,
    mask=None,
    bias=None,
    scale=None,
    softcap=None,
    dropout_rate=0.0,
    dropout_keep=None,
):
    """Multi-head attention from x to itself, or to a context.

    Args:
        params: `MultiHeadParams`.
        x: `b i c`.
        context: `b j m`, where keys and values come from; x by default.

    The other arguments are those of `attention`.

    Returns:
        `b i c` in the dtype of x, rounded once: between the projections and the end
        everything is in the accumulation type.

    Source: Vaswani et al. (arXiv 1706.03762), section 3.2.2; grouped heads: Ainslie et
    al. (arXiv 2305.13245).
    """
    check_multi_head(jax.Array, params, x, context, bias)
    source = x if context is None else context
    heads = attention(
        project(x, params.w_q, params.b_q),
        project(source, params.w_k, params.b_k),
        project(source, params.w_v, params.b_v),
        mask=mask,
        bias=None if bias is None else accumulate(bias),
        scale=scale,
        softcap=softcap,
        dropout_rate=dropout_rate,
        dropout_keep=dropout_keep,
    )
    return merge(heads, params.w_o, params.b_o).astype(x.dtype)

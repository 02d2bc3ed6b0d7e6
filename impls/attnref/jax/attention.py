"""Attention: the steps put together.

Steps of several operations are compiled, each by itself, as the functions of `jax.nn`
are: outside of `jax.jit` a step is then one call, and a new shape one compilation.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from attnref.spec.checks import check_attention

from .attend import apply_dropout, attend
from .mask import apply_mask, forget_blocked, mask_array
from .scores import accumulate, add_bias, apply_scale, apply_softcap, scores
from .softmax import softmax


class Steps(NamedTuple):
    """Every intermediate of one call; all but `output` in the accumulation type."""

    scores: jax.Array
    """`b n i j`: raw dot products."""
    logits: jax.Array
    """`b n i j`: after scale, softcap and bias."""
    masked: jax.Array
    """`b n i j`: −∞ where blocked."""
    weights: jax.Array
    """`b n i j`: before dropout."""
    output: jax.Array
    """`b n i e`, in the dtype of the inputs."""
    lse: jax.Array
    """`b n i`: log-sum-exp, natural logarithm."""


def attention(
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
):
    """Scaled dot-product attention: softmax(cap(q·kᵀ·scale) + bias, masked)·v.

    Args:
        q: `b n i d`, with n = h·g.
        k: `b h j d`; query heads `h·g … h·g + g − 1` share key/value head `h`.
        v: `b h j e`.
        mask: boolean (True = may attend) of axes `b n i j`, each full or 1, or a
            predicate such as `attnref.spec.causal()`, or a callable `(b, n, i, j)`.
        bias: added to the logits; axes `b n i j`, each full or 1; dtype of q.
        scale: finite number, 1/√d by default.
        softcap: finite number above 0, or None.
        dropout_rate: 0 ≤ rate < 1; above 0 it needs `dropout_keep`.
        dropout_keep: boolean, shaped like a mask; kept weights are divided by 1 − rate.

    Returns:
        `b n i e` in the dtype of the inputs, rounded once.  A query with no key left
        gets 0.

    Raises:
        TypeError, ValueError: wrong input; the message names the axis and the sizes.

    Source: Vaswani et al., Attention Is All You Need (arXiv 1706.03762), section 3.2.
    """
    return attention_steps(
        q,
        k,
        v,
        mask=mask,
        bias=bias,
        scale=scale,
        softcap=softcap,
        dropout_rate=dropout_rate,
        dropout_keep=dropout_keep,
    ).output


def attention_steps(
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
):
    """The `Steps` of `attention`, for the same arguments."""
    options = {"mask": mask, "bias": bias, "scale": scale, "softcap": softcap}
    options |= {"dropout_rate": dropout_rate, "dropout_keep": dropout_keep}
    sizes = check_attention(jax.Array, q, k, v, **options)
    return put_together(q, k, v, sizes, **options)


def put_together(
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
    scores=scores,
    softmax=softmax,
    attend=attend,
):
    """The steps in their order, for arguments that are checked, of these `sizes`.

    A variant of attention brings its own `scores`, `softmax` or `attend` here; all else
    stays as it is.
    """
    mask = mask_array(mask, sizes)
    scale = sizes["d"] ** -0.5 if scale is None else scale

    dtype = q.dtype
    q, k, v = forget_blocked(accumulate(q), accumulate(k), accumulate(v), mask)
    raw = scores(q, k)
    logits = add_bias(apply_softcap(apply_scale(raw, scale), softcap), bias)
    masked = apply_mask(logits, mask)
    weights, lse = softmax(masked)
    output = attend(apply_dropout(weights, dropout_rate, dropout_keep), v)
    return Steps(raw, logits, masked, weights, _rounded(output, lse, dtype), lse)


@partial(jax.jit, static_argnames="dtype")
def _rounded(output, lse, dtype):
    """The output in its dtype; that of an empty row, whose lse is −∞, is 0."""
    # Also where 0·NaN = NaN, and no gradient comes in.
    return jnp.where(lse[..., None] == -jnp.inf, 0, output).astype(dtype)

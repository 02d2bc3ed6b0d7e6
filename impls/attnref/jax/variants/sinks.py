"""A sink: a logit of a head's own, which takes weight and gives nothing."""

from functools import partial

import jax
import jax.numpy as jnp

from attnref.spec.checks import check_attention

from ..attention import put_together
from ..scores import accumulate
from ..softmax import softmax


def sink_attention(q, k, v, *, sinks, **options):
    r"""Attention in which every head may attend to nothing: its sink is one more logit,

    $$p_{ij} = \frac{e^{s_{ij}}}{e^{\text{sink}_n} + \sum_{j'} e^{s_{ij'}}}$$

    so that the weights of a row sum to less than 1.

    Args:
        sinks: `n`, a logit for each query head.  It is not scaled, capped or masked.
        options: mask, bias, scale, softcap, dropout_rate and dropout_keep.

    The other arguments, and the errors, are those of `attention`.

    Returns:
        the output `b n i e`, in the dtype of the inputs, rounded once, and the
        log-sum-exp `b n i`, the sink in it, in the accumulation type.  A query with no
        key left gets 0, and its log-sum-exp is the sink.

    Source: Xiao et al., Efficient streaming language models with attention sinks (arXiv
    2309.17453); one learned by each head: OpenAI, gpt-oss-120b and gpt-oss-20b model
    card (arXiv 2508.10925).
    """
    parameters = {"sinks": (sinks, "n")}
    sizes = check_attention(jax.Array, q, k, v, parameters=parameters, **options)

    with_sinks = partial(_softmax_with, sinks=accumulate(sinks))
    steps = put_together(q, k, v, sizes, softmax=with_sinks, **options)
    return _without_empty(steps.output, steps.masked), steps.lse


@jax.jit
def _without_empty(output, masked):
    """The output, 0 in a row of no key, although its log-sum-exp is not −∞."""
    empty = (masked == -jnp.inf).all(axis=-1)
    return jnp.where(empty[..., None], 0, output)


@jax.jit
def _softmax_with(masked, sinks):
    """`softmax` of `masked`, `b n i j`, and one logit more, whose weight is left out.

    Args:
        sinks: `n`.
    """
    column = sinks[:, None, None]
    column = jnp.broadcast_to(column, (*masked.shape[:-1], 1))
    weights, lse = softmax(jnp.concatenate([masked, column], axis=-1))
    return weights[..., :-1], lse

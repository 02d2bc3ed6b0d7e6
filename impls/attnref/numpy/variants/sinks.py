"""A sink: a logit of a head's own, which takes weight and gives nothing."""

import numpy as np

from attnref.spec.checks import check_attention

from ..attention import put_together
from ..gradients import put_together_vjp, row_sums, softmax_vjp
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
    sizes = check_attention(np.ndarray, q, k, v, parameters=parameters, **options)
    step, _ = _softmax(sinks)
    steps = put_together(q, k, v, sizes, softmax=step, **options)
    # A row of no key is empty, although its log-sum-exp is not −∞.
    empty = (steps.masked == -np.inf).all(axis=-1)
    return np.where(empty[..., None], 0, steps.output), steps.lse


def sink_attention_vjp(d_out, q, k, v, *, sinks, d_lse=None, **options):
    """The gradients of `sink_attention`: a dict, argument → gradient, rounded once."""
    parameters = {"sinks": (sinks, "n")}
    sizes = check_attention(np.ndarray, q, k, v, parameters=parameters, **options)
    step = _softmax(sinks)
    found = put_together_vjp(d_out, d_lse, q, k, v, sizes, softmax=step, **options)
    return {name: gradient.astype(q.dtype) for name, gradient in found.items()}


def _softmax(sinks):
    """`softmax` with a column more, which is dropped, and its gradients."""
    sinks = accumulate(sinks)[:, None]

    def sink_softmax(masked):
        column = np.broadcast_to(sinks[..., None], (*masked.shape[:-1], 1))
        weights, lse = softmax(np.concatenate([masked, column], axis=-1))
        return weights[..., :-1], lse

    def sink_softmax_vjp(d_weights, d_lse, steps):
        share = np.where(sinks == -np.inf, 0, np.exp(sinks - steps.lse))
        d_sinks = -np.sum(share * row_sums(d_weights, d_lse, steps), axis=(0, 2))
        return softmax_vjp(d_weights, d_lse, steps) | {"sinks": d_sinks}

    return sink_softmax, sink_softmax_vjp

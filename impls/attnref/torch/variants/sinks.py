"""A sink: a logit of a head's own, which takes weight and gives nothing."""

import torch

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
    sizes = check_attention(torch.Tensor, q, k, v, parameters=parameters, **options)

    def sink_softmax(masked):
        column = accumulate(sinks)[:, None, None]
        column = torch.broadcast_to(column, (*masked.shape[:-1], 1))
        weights, lse = softmax(torch.cat([masked, column], dim=-1))
        return weights[..., :-1], lse

    steps = put_together(q, k, v, sizes, softmax=sink_softmax, **options)
    # A row of no key is empty, although its log-sum-exp is not −∞.
    empty = (steps.masked == -torch.inf).all(dim=-1)
    return torch.where(empty[..., None], 0, steps.output), steps.lse

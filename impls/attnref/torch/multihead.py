"""Multi-head attention: project, attend, merge."""

from typing import NamedTuple

import torch
from torch import nn

from attnref.spec.checks import check_multi_head

from .attention import attention
from .projection import merge, project
from .scores import accumulate


class MultiHeadParams(NamedTuple):
    """Weights and biases of multi-head attention; `m = c` in self-attention."""

    w_q: torch.Tensor
    """`c n d`"""
    w_k: torch.Tensor
    """`m h d`"""
    w_v: torch.Tensor
    """`m h e`"""
    w_o: torch.Tensor
    """`n e c`"""
    b_q: torch.Tensor | None = None
    """`n d`"""
    b_k: torch.Tensor | None = None
    """`h d`"""
    b_v: torch.Tensor | None = None
    """`h e`"""
    b_o: torch.Tensor | None = None
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
    check_multi_head(torch.Tensor, params, x, context, bias)
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
    return merge(heads, params.w_o, params.b_o).to(x.dtype)


class MultiHeadAttention(nn.Module):
    """`multi_head_attention` as a module that owns its weights.

    Args:
        params: `MultiHeadParams`; copies of its tensors become parameters of the same
            names.
    """

    def __init__(self, params):
        super().__init__()
        for name, tensor in params._asdict().items():
            parameter = (
                None if tensor is None else nn.Parameter(tensor.detach().clone())
            )
            self.register_parameter(name, parameter)

    @property
    def params(self):
        """The parameters as `MultiHeadParams`."""
        return MultiHeadParams(
            *(getattr(self, name) for name in MultiHeadParams._fields)
        )

    def forward(self, x, context=None, **options):
        """`multi_head_attention` of x with these weights; the same options."""
        return multi_head_attention(self.params, x, context, **options)

"""Programs that PyTorch 2.13.0 compiles wrongly for the CPU, as subjects."""

from functools import cache

import torch
from torch.nn.attention.flex_attention import flex_attention


def permuted(q, k, v):
    """K is brought straight into the axes that the product wants: pytorch#195320.

    Stored as `b j h d`, its permutation is taken for a transpose of the last two axes.
    """
    keys = k.transpose(1, 2).permute(0, 2, 3, 1)
    weights = (torch.matmul(q, keys) * q.shape[-1] ** -0.5).softmax(dim=-1)
    return torch.matmul(weights, v)


def tensor_scale(q, k, v, *, bias):
    """The scale is a tensor: pytorch#191203."""
    root = bias[0, 0, 0, 0] * 0 + q.shape[-1] ** 0.5
    return ((q @ k.transpose(-2, -1) / root) + bias).softmax(dim=-1) @ v


def chained(q, k, v, *, bias=None):
    """A compiled `score_mod` that takes its bias apart one axis after the other."""
    if bias is None:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    def score_mod(score, b, n, i, j):
        return score + bias[b][n][i][j]

    return _compiled()(q, k, v, score_mod=score_mod)


@cache
def _compiled():
    return torch.compile(flex_attention, dynamic=False)

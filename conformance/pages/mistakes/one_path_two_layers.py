"""E26 to E28: what a layer has beside the weighted sum."""

import torch
from torch import nn


def wrong(x):
    torch.manual_seed(1)
    w_q, w_k, w_v = (nn.Linear(512, 64, bias=False) for _ in range(3))
    weights = (w_q(x) @ w_k(x).mT / 8).softmax(-1)
    return weights @ w_v(x)


def right(x):
    torch.manual_seed(1)
    return nn.MultiheadAttention(512, 8, batch_first=True)(x, x, x)[0]


def measure():
    torch.manual_seed(0)
    x = torch.randn(2, 10, 512)
    layer = nn.MultiheadAttention(512, 8, bias=True)
    _, weights = nn.MultiheadAttention(512, 8, batch_first=True)(x, x, x)
    return {
        "wrong_width": wrong(x).shape[-1],
        "right_width": right(x).shape[-1],
        "biases": sum("bias" in name for name, _ in layer.named_parameters()),
        "diagonal": weights.diagonal(dim1=-2, dim2=-1).min().item(),
    }

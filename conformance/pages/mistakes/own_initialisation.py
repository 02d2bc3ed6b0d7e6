"""E17 and E18: what the scale makes of the layer's own initial weights."""

import torch
from torch import nn


def wrong(x):
    torch.manual_seed(1)
    w_q, w_k = (nn.Linear(512, 64, bias=False) for _ in range(2))
    return w_q(x) @ w_k(x).mT


def right(x):
    return wrong(x) / 8


def measure():
    torch.manual_seed(0)
    x = torch.randn(32, 10, 512)
    weights = right(x).softmax(-1)
    return {
        "raw": wrong(x).std().item(),
        "scaled": right(x).std().item(),
        "least": weights.min().item(),
        "greatest": weights.max().item(),
    }

"""E15: PyTorch's attention layer reads `i b c` unless told otherwise."""

import torch
from torch import nn


def wrong(x):
    return nn.MultiheadAttention(64, 4)(x, x, x)[0]


def right(x):
    return nn.MultiheadAttention(64, 4, batch_first=True)(x, x, x)[0]


def measure():
    torch.manual_seed(0)
    x = torch.randn(32, 10, 64)
    outputs = []
    for layer in (wrong, right):
        torch.manual_seed(1)  # the same weights
        outputs.append(layer(x).detach())
    error = (outputs[0] - outputs[1]).norm() / outputs[1].norm()
    return {"shapes_equal": outputs[0].shape == outputs[1].shape, "error": error.item()}

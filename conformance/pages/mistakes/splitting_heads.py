"""E11 and E12: heads are an axis that must be made, and must divide the width."""

import torch
from einops import rearrange


def wrong(x, n):
    b, i, c = x.shape
    return x.reshape(b, n, i, c // n)


def right(x, n):
    return rearrange(x, "b i (n d) -> b n i d", n=n)


def measure():
    x = torch.arange(24.0).view(1, 3, 8)
    try:
        right(torch.zeros(1, 3, 512), 7)
    except Exception as error:
        refused = type(error).__name__
    return {
        "moved": (wrong(x, 2) != right(x, 2)).double().mean().item(),
        "floor": 512 // 7 * 7,
        "refused": refused,
    }

"""E10: True means "blocked" in one place and "may attend" in another."""

import torch
from torch.nn.functional import scaled_dot_product_attention


def wrong(q, k, v):
    future = torch.ones(q.shape[-2], k.shape[-2]).triu(1).bool()
    return scaled_dot_product_attention(q, k, v, attn_mask=future)


def right(q, k, v):
    future = torch.ones(q.shape[-2], k.shape[-2]).triu(1).bool()
    return scaled_dot_product_attention(q, k, v, attn_mask=~future)


def measure():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 1, 10, 64, dtype=torch.float64)
    causal = scaled_dot_product_attention(q, k, v, is_causal=True)
    got = wrong(q, k, v)
    return {
        "wrong": (got - causal).abs().max().item(),
        "right": (right(q, k, v) - causal).abs().max().item(),
        "last_row": got[..., -1, :].abs().max().item(),
    }

"""E04 and E05: where PyTorch keeps a gradient, and since when."""

import warnings

import torch


def wrong(x, w_q):
    q = x @ w_q
    q.sum().backward()
    return q.grad


def right(x, w_q):
    q = x @ w_q
    q.retain_grad()
    q.sum().backward()
    return q.grad


def measure():
    x, w_q = torch.randn(4, 8), torch.randn(8, 3, requires_grad=True)
    before = w_q.grad
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        lost = wrong(x, w_q)
    return {
        "wrong_is_none": lost is None,
        "warning": type(caught[0].message).__name__ if caught else "none",
        "right_is_none": right(x, w_q) is None,
        "leaf_before": before is None,
        "leaf_after": w_q.grad is not None,
    }

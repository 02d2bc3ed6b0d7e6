"""E13: a padding mask `b j` against scores `b n i j`."""

import torch


def wrong(scores, real):
    return scores.masked_fill(~real, -torch.inf).softmax(dim=-1)


def right(scores, real):
    real = real[:, None, None, :]
    return scores.masked_fill(~real, -torch.inf).softmax(dim=-1)


def measure():
    torch.manual_seed(0)
    scores = torch.randn(8, 8, 8, 8, dtype=torch.float64)
    real = torch.arange(8) < torch.arange(1, 9)[:, None]
    want = right(scores, real)
    error = (wrong(scores, real) - want).norm() / want.norm()
    return {"raises": _error(32, 8, 10), "same_sizes": error.item()}


def _error(b, n, length):
    try:
        wrong(torch.zeros(b, n, length, length), torch.ones(b, length).bool())
    except RuntimeError as error:
        return str(error).splitlines()[0]
    return "none"

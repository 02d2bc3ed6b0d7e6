"""E01 to E03: a mask between two softmaxes."""

import torch


def wrong(scores, future):
    weights = scores.softmax(dim=-1)
    weights = weights.masked_fill(future, -torch.inf)
    return weights.softmax(dim=-1)


def right(scores, future):
    return scores.masked_fill(future, -torch.inf).softmax(dim=-1)


def measure():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 10, 64, dtype=torch.float64)
    scores, future = q @ k.T / 8, torch.ones(10, 10).triu(1).bool()
    got, want = wrong(scores, future), right(scores, future)
    slopes = {f.__name__: _slopes(f, scores, future, v) for f in (wrong, right)}
    sharp = wrong(16 * scores, future)
    ratios = [row[row > 0].max() / row[row > 0].min() for row in sharp]
    return {
        "weight": (got - want).abs().max().item(),
        "output": ((got - want) @ v).norm().item() / (want @ v).norm().item(),
        "row_sum": (got.sum(-1) - 1).abs().max().item(),
        "future_weight": got[future].max().item(),
        "future_slope": slopes["wrong"][0],
        "future_slope_right": slopes["right"][0],
        "gradient": slopes["wrong"][1] / slopes["right"][1],
        "ratio": max(ratios).item(),
    }


def _slopes(weights, scores, future, v):
    """Of outputs by their own scores: the greatest in the future, and the norm."""
    scores = scores.clone().requires_grad_()
    output = weights(scores, future) @ v
    # A query has its own scores, so one channel of all queries at a time.
    channels = [
        torch.autograd.grad(channel.sum(), scores, retain_graph=True)[0]
        for channel in output.unbind(dim=-1)
    ]
    slopes = torch.stack(channels)
    return slopes[:, future].abs().max().item(), slopes.norm().item()

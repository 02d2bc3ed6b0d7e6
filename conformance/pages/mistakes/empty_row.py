"""E14: a query that may see no key."""

import torch

from attnref.torch import softmax


def wrong(scores, mask, v):
    masked = scores.masked_fill(~mask, -torch.inf)
    return masked.softmax(dim=-1) @ v


def right(scores, mask, v):
    masked = scores.masked_fill(~mask, -torch.inf)
    weights, _ = softmax(masked)  # of attnref.torch: a row without keys has weights 0
    return weights @ v


def measure():
    torch.manual_seed(0)
    scores, v = torch.randn(4, 4), torch.randn(4, 2, requires_grad=True)
    mask = torch.ones(4, 4).tril().bool()
    mask[2] = False
    found = {}
    for call in (wrong, right):
        output = call(scores, mask, v)
        output[:2].sum().backward()  # the empty row is left out of the loss
        found[f"{call.__name__}_output_is_nan"] = bool(output[2].isnan().all())
        found[f"{call.__name__}_dv_is_nan"] = bool(v.grad.isnan().all())
        v.grad = None
    return found

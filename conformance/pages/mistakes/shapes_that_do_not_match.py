"""E21: which product an error message is about."""

import torch
from torch import nn


def linear(x):
    return nn.Linear(512, 64)(x)


def scores(q, k):
    return q @ k.mT


def attend(weights, v):
    return weights @ v


def measure():
    return {
        "linear": _error(linear, torch.zeros(32, 10, 64)),
        "scores": _error(scores, torch.zeros(32, 10, 64), torch.zeros(32, 10, 48)),
        "attend": _error(attend, torch.zeros(32, 10, 10), torch.zeros(32, 10, 48)),
    }


def _error(call, *arrays):
    try:
        call(*arrays)
    except RuntimeError as error:
        return str(error).splitlines()[0]
    return "none"

"""Approximations as they are written down in PyTorch, every step in the storage type.

But for the inverse of a matrix, which PyTorch has in float32 and wider.
"""

from collections.abc import Mapping

import torch

from attncheck.case import Case

Tensor = torch.Tensor
Tensors = Mapping[str, Tensor]


def output(case: Case, given: Tensors) -> Tensor:
    """The output, 0 where a query has no key."""
    q = given["q"]
    k, v = (given[name].repeat_interleave(case.sizes["g"], 1) for name in ("k", "v"))
    if case.op == "nystrom_attention":
        return _through_landmarks(case, q, k, v)
    seen = given.get("mask", torch.tensor([[[[True]]]]))
    if case.op == "linformer_attention":
        return _combined(case, q, k, v, given, seen)
    if case.settings.get("causal", False):
        last = torch.arange(case.sizes["i"])[:, None] + case.settings.get("offset", 0)
        seen = seen & (torch.arange(case.sizes["j"]) <= last)
    features = _linear if case.op == "linear_attention" else _random
    weights = features(case, q, given) @ features(case, k, given).mT
    weights = weights.masked_fill(~seen, 0)
    total = weights.sum(-1, keepdim=True)
    return (weights @ v / total).masked_fill(total == 0, 0)


def _linear(case: Case, x: Tensor, given: Tensors) -> Tensor:
    if case.settings.get("feature", "elu+1") == "relu":
        return torch.relu(x)
    return torch.nn.functional.elu(x) + 1


def _random(case: Case, x: Tensor, given: Tensors) -> Tensor:
    """Relative to the largest of a head, which cancels."""
    x = x * case.scale_value**0.5
    logs = x @ given["draws"].mT - (x * x).sum(-1, keepdim=True) / 2
    return torch.exp(logs - logs.amax((-2, -1), keepdim=True))


def _combined(
    case: Case, q: Tensor, k: Tensor, v: Tensor, given: Tensors, seen: Tensor
) -> Tensor:
    is_key = seen[:, :, 0, :, None]
    k, v = (x.masked_fill(~is_key, 0) for x in (k, v))
    k = given["w_e"].mT @ k
    v = given.get("w_f", given["w_e"]).mT @ v
    weights = torch.softmax(q @ k.mT * case.scale_value, -1)
    return (weights @ v).masked_fill(~seen.any(-1, keepdim=True), 0)


def _through_landmarks(case: Case, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    count = case.settings["landmarks"]
    few_q, few_k = (x.unflatten(2, (count, -1)).mean(3) for x in (q, k))
    first, core, last = (
        torch.softmax(x @ y.mT * case.scale_value, -1)
        for x, y in ((q, few_k), (few_q, few_k), (few_q, k))
    )
    wide = torch.promote_types(core.dtype, torch.float32)
    return first @ torch.linalg.inv(core.to(wide)).to(core.dtype) @ (last @ v)

"""Attention as it is written down in PyTorch, every step in the storage type.

This is the yardstick of the rule "at most twice the error of PyTorch".  It is made to
fail as seldom as it can: rows without keys give 0 in both passes, not NaN.
"""

from collections.abc import Mapping

import naive_approximations as approximate
import naive_operations as other
import numpy as np
import torch

from attncheck.case import ALL_GRADIENTS, Case
from attncheck.frameworks.torch import to_native, to_numpy

Tensors = Mapping[str, torch.Tensor]

APPROXIMATIONS = (
    "linear_attention",
    "performer_attention",
    "linformer_attention",
    "nystrom_attention",
)


def results(case: Case) -> dict[str, np.ndarray]:
    """Output and gradients of a case, in its storage type."""
    inputs = {name: to_native(array) for name, array in case.inputs.items()}
    if case.op == "multi_head_attention":
        return {"output": to_numpy(_multi_head(case, inputs))}
    if case.op in APPROXIMATIONS:
        return {"output": to_numpy(approximate.output(case, inputs))}
    names = [name[1:] for name in ALL_GRADIENTS if name[1:] in inputs]
    leaves = {name: inputs[name].clone().requires_grad_() for name in names}
    output, lse = _called(case, inputs | leaves)
    # Of equal shapes also where there is nothing to differentiate.
    loss = (output * inputs.get("d_out", torch.zeros_like(output))).sum()
    if "d_lse" in inputs:
        d_lse = inputs["d_lse"].to(lse.dtype)
        loss = loss + torch.where(lse == -torch.inf, 0, lse * d_lse).sum()
    gradients = torch.autograd.grad(loss, list(leaves.values()))
    found = {f"d{name}": to_numpy(g) for name, g in zip(names, gradients, strict=True)}
    return {"output": to_numpy(output)} | found


def _called(case: Case, given: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
    """Output and log-sum-exp, of latent attention merged."""
    if case.op != "latent_attention":
        return _attention(case, given)
    heads, lse = _attention(case, given | other.latent(case, given))
    return _merged(heads, given["w_o"]), lse


def _attention(case: Case, given: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
    """Output and log-sum-exp."""
    q, k = other.operands(case, given)
    k, v = (x.repeat_interleave(case.sizes["g"], 1) for x in (k, given["v"]))
    logits = other.scores(case, q, k, given)
    if case.softcap is not None:
        logits = case.softcap * torch.tanh(logits / case.softcap)
    if "bias" in given:
        logits = logits + given["bias"]
    logits = logits + other.bias(case, given, logits)
    seen = given.get("mask", torch.tensor(True)) & (logits.detach() != -torch.inf)
    empty = ~seen.expand(logits.shape).any(-1, keepdim=True)
    masked = logits.masked_fill(~seen, -torch.inf)
    if "sinks" in given:
        masked, empty = other.with_sink(masked, given["sinks"]), torch.tensor([[False]])
    masked = masked.masked_fill(empty, 0)
    weights = torch.softmax(masked, -1).masked_fill(empty, 0)[..., : case.sizes["j"]]
    lse = torch.logsumexp(masked, -1).masked_fill(empty[..., 0], -torch.inf)
    if "dropout_keep" in given:
        weights = weights * given["dropout_keep"] / (1 - case.dropout_rate)
    return other.attend(case, weights, v, given), lse


def _multi_head(case: Case, given: Tensors) -> torch.Tensor:
    """The merged heads."""
    context = given.get("context", given["x"])

    def projected(x: torch.Tensor, kind: str) -> torch.Tensor:
        heads = torch.einsum("bic,cnd->bnid", x, given[f"w_{kind}"])
        bias = given.get(f"b_{kind}")
        return heads if bias is None else heads + bias[:, None]

    inner = {
        "q": projected(given["x"], "q"),
        "k": projected(context, "k"),
        "v": projected(context, "v"),
    }
    heads, _ = _attention(case, dict(given) | inner)
    merged = _merged(heads, given["w_o"])
    return merged + given["b_o"] if "b_o" in given else merged


def _merged(heads: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The sum over the heads, each through its weight."""
    return torch.einsum("bnie,nec->bic", heads, weight)

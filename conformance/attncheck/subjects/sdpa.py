"""This project's fused PyTorch backends, each by name: they must mean the spec."""

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any

from attncheck.subject import Subject

PACKAGES = ("torch",)
DOCS = "https://docs.pytorch.org/docs/stable/nn.attention.html"
HOME = "attnref.torch.sdpa"
"""The package whose code it is."""

BACKENDS: Mapping[str, tuple[tuple[str, ...], bool, str]] = {
    "math": (("mask", "bias", "scale"), False, "strict"),
    "flash": (("mask", "bias", "scale"), True, "tensor-core+exp"),
    "efficient": (("mask", "bias", "scale"), False, "tensor-core"),
    "cudnn": (("mask", "bias", "scale"), False, "tensor-core"),
    "flex": (("mask", "bias", "scale", "softcap"), True, "strict"),
    "flex-compiled": (("mask", "bias", "scale", "softcap"), False, "tensor-core"),
    "flash-attn": (("mask", "scale", "softcap"), True, "tensor-core"),
    "auto": (("mask", "bias", "scale", "softcap"), False, "tensor-core"),
}
"""Backend → what it takes, whether it gives the log-sum-exp, and its profile."""


def subject(backend: str) -> Subject:
    """`attnref.torch.sdpa` by one backend."""
    accepts, has_lse, profile = BACKENDS[backend]

    ran_by = import_module(HOME).sdpa_ran

    def call(q: Any, k: Any, v: Any, **options: Any) -> tuple:
        ran = ran_by(q, k, v, backend=backend, lse=has_lse, **options)
        return ran[:2] if has_lse else ran[:1]

    return Subject(
        call=call,
        framework="torch",
        name=f"sdpa:{backend}",
        accepts=frozenset(accepts),
        returns=("output", "lse") if has_lse else ("output",),
        grad=partial(gradients, backend, call),
        profile=profile,
    )


def gradients(
    backend: str,
    call: Callable,
    d_out: Any,
    *arrays: Any,
    d_lse: Any = None,
    bias: Any = None,
    **options: Any,
) -> tuple:
    """dq, dk, dv, dbias by autograd, None for what the backend has no gradient of."""
    import torch

    on_cpu = d_out.device.type == "cpu"
    if on_cpu and backend.startswith("flex"):
        return (None,) * 4
    leaves = [x.detach().requires_grad_() for x in arrays]
    if bias is not None and not (on_cpu and backend == "flash"):
        bias = bias.detach().requires_grad_()
        leaves.append(bias)
    results = call(*leaves[:3], bias=bias, **options)
    cotangents = (d_out,) if d_lse is None else (d_out, d_lse)
    if any(not x.requires_grad for x in results[: len(cotangents)]) or len(
        results
    ) < len(cotangents):
        return (None,) * 4
    found = torch.autograd.grad(results[: len(cotangents)], leaves, cotangents)
    return (*found, None)


SUBJECTS = {f"sdpa:{name}": partial(subject, name) for name in BACKENDS}

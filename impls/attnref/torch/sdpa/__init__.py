"""Fused attention in PyTorch: the spec by the backend that is named, or by none.

Every backend has conventions of its own.  A call here means the spec, whichever of them
runs it; what a backend cannot do raises NotImplementedError and says why.
"""

from typing import NamedTuple

import torch

from . import flash_attn, flex, kernels
from .call import Call, nothing, restore, translate
from .varlen import varlen

__all__ = ["AUTO", "BACKENDS", "Ran", "sdpa", "sdpa_ran", "varlen"]

_MODULES = {
    **dict.fromkeys(kernels.KERNELS, kernels),
    **dict.fromkeys(flex.FLEX, flex),
    flash_attn.NAME: flash_attn,
}

BACKENDS = tuple(_MODULES)
"""Every backend by name; `auto` is the first of `AUTO` that can do a call."""

AUTO = ("flash", "cudnn", "efficient", "math", "flex")
"""The order in which `auto` asks.  What has to be compiled first, or installed, runs
when it is named, and not otherwise."""


class Ran(NamedTuple):
    """What a call gave, and which backend ran it."""

    output: torch.Tensor
    """`b n i e`, in the dtype of the inputs."""
    lse: torch.Tensor | None
    """`b n i`: log-sum-exp, natural logarithm, in the accumulation type, if wanted."""
    backend: str
    refused: dict[str, str]
    """Backend that `auto` asked before → why it could not do the call."""


def sdpa(
    q,
    k,
    v,
    *,
    mask=None,
    bias=None,
    scale=None,
    softcap=None,
    backend="auto",
):
    """Scaled dot-product attention by a fused backend; it means what `attention` does.

    Args:
        backend: one of `BACKENDS`, or "auto".

    The other arguments, the output and the errors for wrong input are those of
    `attnref.torch.attention`.

    Raises:
        NotImplementedError: the backend cannot do this call, and why; of `auto`, why
            each of them cannot.
    """
    options = {"mask": mask, "bias": bias, "scale": scale, "softcap": softcap}
    return sdpa_ran(q, k, v, **options, backend=backend).output


def sdpa_ran(
    q,
    k,
    v,
    *,
    mask=None,
    bias=None,
    scale=None,
    softcap=None,
    backend="auto",
    lse=False,
):
    """`sdpa`, with the log-sum-exp where it is wanted, and which backend ran.

    Args:
        lse: whether the log-sum-exp is wanted.  Gradients flow through that of
            FlexAttention, and not through that of `flash`.

    Returns:
        `Ran`.
    """
    if backend != "auto" and backend not in BACKENDS:
        known = ", ".join(("auto", *BACKENDS))
        raise ValueError(f"`backend` must be one of {known}, but is {backend!r}")
    call = translate(
        q, k, v, mask=mask, bias=bias, scale=scale, softcap=softcap, lse=lse
    )
    if not torch.is_autocast_enabled(q.device.type):
        return _run(call, backend)
    with torch.autocast(q.device.type, enabled=False):
        return _run(call, backend)


def _run(call: Call, backend: str) -> Ran:
    """The call by one backend, or by the first that can do it."""
    refused: dict[str, str] = {}
    for name in AUTO if backend == "auto" else (backend,):
        try:
            output, lse = restore(call, *_attempt(name, call))
            return Ran(output, lse, name, refused)
        except NotImplementedError as error:
            refused[name] = str(error)
    reasons = "; ".join(f"{name}: {why}" for name, why in refused.items())
    raise NotImplementedError(reasons)


def _attempt(name: str, call: Call) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Output and log-sum-exp by one backend; NotImplementedError says why not."""
    module = _MODULES[name]
    if reason := module.why_not(name, call):
        raise NotImplementedError(reason)
    return nothing(call) if call.is_empty else module.run(name, call)

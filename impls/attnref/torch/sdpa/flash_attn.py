"""The flash-attn package, where it is installed.

Its axes are `b i n d`, its causal mask and its windows are aligned to the lower right.
Source: github.com/Dao-AILab/flash-attention, `flash_attn_func`.
"""

from importlib import import_module
from importlib.util import find_spec

import torch

from attnref.spec.masks import window_of

from .call import Call, same_width

NAME = "flash-attn"
CUDA = ("cuda",)


def why_not(name: str, call: Call) -> str | None:
    """Why the package cannot do the call."""
    if find_spec("flash_attn") is None:
        return "the package flash-attn is not installed"
    if call.q.device.type not in CUDA:
        return f"it has CUDA kernels, and the tensors are on {call.q.device.type}"
    if call.q.dtype not in (torch.bfloat16, torch.float16):
        return f"it takes bfloat16 and float16, not {str(call.q.dtype)[6:]}"
    if call.bias is not None:
        return "it takes no bias"
    if _window(call) is None:
        return "it takes no mask but causal ones and windows, aligned lower-right"
    return None


def run(name: str, call: Call):
    """Output and log-sum-exp of a call."""
    attend = import_module("flash_attn").flash_attn_func
    found = attend(
        *(x.transpose(1, 2) for x in same_width(call.q, call.k, call.v)),
        softmax_scale=call.scale,
        causal=call.diagonal is not None,
        window_size=_window(call),
        softcap=call.softcap or 0.0,
        return_attn_probs=call.wants_lse,
    )
    output, lse = found[:2] if call.wants_lse else (found, None)
    return output.transpose(1, 2)[..., : call.v.shape[3]], lse


def _window(call: Call) -> tuple[int, int] | None:
    """The window in the package's terms, −1 for no bound; None: it has no such."""
    lower_right = call.k.shape[2] - call.q.shape[2]
    if call.diagonal is not None:
        return (-1, -1) if call.diagonal == lower_right else None
    if call.mask is None:
        return -1, -1
    found = window_of(call.predicate)
    if found is None or not isinstance(found[2], int) or found[2] != lower_right:
        return None
    left, right = (-1 if end is None else end for end in found[:2])
    return left, right

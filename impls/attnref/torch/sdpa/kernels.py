"""The backends of `torch.nn.functional.scaled_dot_product_attention`, one at a time.

`sdpa_kernel` allows one of them, so that PyTorch cannot take another one instead.
"""

import re
import warnings

import torch
from torch.backends import cuda
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import pad, scaled_dot_product_attention

from .call import Call, same_width, triangle

KERNELS = {
    "math": SDPBackend.MATH,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}

CUDA_ONLY = ("efficient", "cudnn")

QUESTIONS = {
    "flash": cuda.can_use_flash_attention,
    "efficient": cuda.can_use_efficient_attention,
    "cudnn": cuda.can_use_cudnn_attention,
}
"""Whom PyTorch lets ask whether a kernel can do a request on CUDA, and why not."""

VECTOR = 16
"""float32 numbers in the widest register of a CPU."""


ZERO = {
    dtype: torch.zeros(1, 1, 1, 1, dtype=dtype, device="cpu")
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16)
}
"""Masks that add nothing."""


def why_not(name: str, call: Call) -> str | None:
    """Why a kernel cannot do the call, as far as that is known without trying."""
    if name in CUDA_ONLY and not call.q.is_cuda:
        return f"PyTorch has it on CUDA, and the tensors are on {call.q.device.type}"
    if call.softcap is not None:
        return "scaled_dot_product_attention has no softcap"
    if call.wants_lse and name != "flash":
        return "scaled_dot_product_attention returns no log-sum-exp"
    if name == "flash" and call.q.is_cpu and _needs_gradient(call.bias):
        return "PyTorch gives no gradient of a bias (`attn_mask`) on the CPU"
    return None


def run(name: str, call: Call):
    """Output and log-sum-exp of a call, by one kernel.

    Raises:
        NotImplementedError: it cannot do the call; in PyTorch's own words.
    """
    q, k, v = call.q, call.k, call.v
    width = v.shape[3]
    if name == "flash":
        q, k, v = same_width(q, k, v)
    q, k, v = _with_rows(q), _with_rows(k), _with_rows(v)
    mask, is_causal = _mask(name, call)
    with sdpa_kernel(KERNELS[name]):
        if q.is_cuda:
            _ask(name, q, k, v, mask, is_causal)
        if call.wants_lse:
            output, lse = _flash(q, k, v, mask, is_causal, call.scale)
            return output[..., :width], lse
        try:
            output = scaled_dot_product_attention(
                q,
                k,
                v,
                attn_mask=mask,
                is_causal=is_causal,
                scale=call.scale,
                enable_gqa=q.shape[1] != k.shape[1],
            )
        except RuntimeError as error:
            if "No available kernel" in str(error):
                raise NotImplementedError(str(error)) from error
            raise
    return output if output.shape[3] == width else output[..., :width], None


def _needs_gradient(bias) -> bool:
    return bias is not None and bias.requires_grad and torch.is_grad_enabled()


def _with_rows(x):
    """The tensor with its last axis contiguous, which every kernel asks for."""
    return x if x.stride(3) == 1 else x.contiguous()


def _mask(name: str, call: Call):
    """`attn_mask` and `is_causal` of the call; at most one of them is given."""
    if call.bias is not None:
        blocked = triangle(call) if call.diagonal is not None else call.mask
        # One that wants a gradient is refused also where none is asked for.
        bias = call.bias if torch.is_grad_enabled() else call.bias.detach()
        if name == "flash":
            # Of ∞ − ∞ its log-sum-exp is no NaN, nor in 16 bits its exp.
            bias = torch.where(bias == torch.inf, torch.nan, bias)
        added = bias if blocked is None else torch.where(blocked, bias, -torch.inf)
        return added, False
    # Where a row has fewer scores than a register, the CPU's flash kernel overlooks
    # that all are NaN, and calls the row empty: but not with a mask.
    overlooks = name == "flash" and call.q.is_cpu and call.k.shape[2] < VECTOR
    if call.diagonal is None:
        if call.mask is None and overlooks:
            return ZERO[call.q.dtype], False
        return call.mask, False
    if call.diagonal == 0 and not overlooks:
        return None, True
    i, j = call.q.shape[2], call.k.shape[2]
    if call.q.is_cuda and name in ("flash", "efficient") and call.diagonal == j - i:
        return causal_lower_right(i, j), False
    return triangle(call), False


def _ask(name: str, q, k, v, mask, is_causal: bool) -> None:
    """Raises NotImplementedError, with PyTorch's reasons, before it is tried."""
    if name not in QUESTIONS:
        return
    plain = None if type(mask) is not torch.Tensor else mask
    grouped = q.shape[1] != k.shape[1]
    question = cuda.SDPAParams(q, k, v, plain, 0.0, is_causal, grouped)
    if QUESTIONS[name](question):
        return
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        QUESTIONS[name](question, True)
    words = [re.sub(r" \(Triggered internally.*", "", str(w.message)) for w in said]
    raise NotImplementedError(" ".join(words) or "PyTorch gives no reason")


def _flash(q, k, v, mask, is_causal: bool, scale: float):
    """The flash kernel, below the function that keeps its log-sum-exp.

    That has no gradient of its own.
    """
    if q.is_cuda:
        return _flash_on_cuda(q, k, v, mask, is_causal, scale)
    if mask is not None and mask.dtype == torch.bool:
        blocked = torch.where(mask, 0.0, -torch.inf)
        mask = blocked.to(q.dtype)
    output, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        q, k, v, 0.0, is_causal, attn_mask=mask, scale=scale
    )
    if mask is not None:  # it says 0 of a row without keys
        empty = (mask == -torch.inf).all(dim=3)
        lse = torch.where(empty, -torch.inf, lse)
    return output, lse


def _flash_on_cuda(q, k, v, mask, is_causal: bool, scale: float):
    """As `causal_lower_right` calls it: for this operator, causal is lower-right."""
    if k.shape[1] != q.shape[1]:
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    width, missing = q.shape[3], -q.shape[3] % 8
    q, k, v = (pad(x, (0, missing)) for x in (q, k, v))
    is_causal = is_causal or mask is not None
    output, lse, *_ = torch.ops.aten._scaled_dot_product_flash_attention(
        q, k, v, 0.0, is_causal, return_debug_mask=False, scale=scale
    )
    return output[..., :width], lse

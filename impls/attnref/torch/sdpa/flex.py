"""FlexAttention: masks as its `mask_mod`, softcap and bias as its `score_mod`."""

import os
import shutil
import sys
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import torch
from torch.nn.attention.flex_attention import (
    AuxRequest,
    create_block_mask,
    flex_attention,
)

from attnref.spec.masks import Mask

from .call import Call, bound

FLEX = ("flex", "flex-compiled")


def why_not(name: str, call: Call) -> str | None:
    """Why FlexAttention cannot do the call, as far as that is known."""
    on_cpu = call.q.device.type == "cpu"
    arrays = [x for x in (call.q, call.k, call.v, call.bias) if x is not None]
    if on_cpu and torch.is_grad_enabled() and any(x.requires_grad for x in arrays):
        return "FlexAttention does not support backward on CPU"
    if name == "flex":
        return None
    if on_cpu and call.wants_lse:
        return "compiled for the CPU, FlexAttention returns no log-sum-exp"
    if on_cpu and (compiler := _missing_compiler()):
        return f"to be compiled it needs a C++ compiler, and there is no {compiler}"
    return None


def run(name: str, call: Call):
    """Output and log-sum-exp of a call by FlexAttention, eager or compiled."""
    found = _attend(name)(
        call.q,
        call.k,
        call.v,
        score_mod=score_mod(call),
        block_mask=block_mask(call),
        scale=call.scale,
        enable_gqa=call.q.shape[1] != call.k.shape[1],
        return_aux=AuxRequest(lse=True) if call.wants_lse else None,
    )
    return (found[0], found[1].lse) if call.wants_lse else (found, None)


def score_mod(call: Call) -> Callable | None:
    """What is done to a scaled score: softcap, then bias; None: nothing."""
    softcap, bias = call.softcap, call.bias
    if softcap is None and bias is None:
        return None
    full = None if bias is None else bias.expand(*call.q.shape[:3], call.k.shape[2])

    def modified(score, b, n, i, j):
        if softcap is not None:
            score = softcap * torch.tanh(score / softcap)
        # In one step: indexed one axis after the other, code that is compiled for the
        # CPU writes where it must not.
        return score if full is None else score + full[b, n, i, j]

    return modified


def block_mask(call: Call):
    """The `BlockMask` of the call; None where nothing is blocked.

    Of a predicate that is frozen data all through it is made once and kept.
    """
    b, n, i, _ = call.q.shape
    j, device = call.k.shape[2], call.q.device
    predicate = call.predicate
    if predicate is not None:
        if isinstance(predicate, Mask):
            carried = _carried(predicate)
            if all(type(values) is tuple for values in carried):
                return _kept(predicate, b if carried else 1, i, j, device)
        heads = 1 if isinstance(predicate, Mask) else n
        return create_block_mask(bound(predicate, device), b, heads, i, j, device)
    if call.mask is None:
        return None
    array = call.mask.expand(b, n, i, j)

    def stored(b, n, i, j):
        return array[b, n, i, j]

    varying, heads = call.mask.shape[:2]
    return create_block_mask(stored, varying, heads, i, j, device)


@lru_cache(maxsize=32)
def _kept(predicate: Mask, b: int, i: int, j: int, device: torch.device):
    return create_block_mask(bound(predicate, device), b, 1, i, j, device)


def _carried(mask: Mask) -> list:
    """What a predicate carries: tuples, or tensors, whose values may change."""
    found = []

    def noted(values):
        found.append(values)
        return values

    mask.bind(noted)
    return found


@cache
def _attend(name: str) -> Any:
    compiles = name == "flex-compiled"
    return torch.compile(flex_attention, dynamic=False) if compiles else flex_attention


def _missing_compiler() -> str | None:
    """The C++ compiler that PyTorch would call, if it is not there."""
    default = "clang++" if sys.platform == "darwin" else "g++"
    command = os.environ.get("CXX", default).split()[0]
    return None if shutil.which(command) else command

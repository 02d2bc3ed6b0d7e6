"""Attention in PyTorch: every step a function, gradients by autograd.

Runs on the device of its tensors, under `torch.compile(fullgraph=True)` and under the
transforms of `torch.func`.  Autocast is off inside; call `backward()` outside of it, as
PyTorch asks.  On CUDA, float32 products follow `torch.set_float32_matmul_precision`.
"""

from .attend import apply_dropout, attend
from .attention import Steps, attention, attention_steps
from .blocked import attention_blocked, attention_blocked_vjp, merge_parts
from .gradients import attention_vjp
from .mask import apply_mask, mask_array
from .multihead import (
    MultiHeadAttention,
    MultiHeadParams,
    multi_head_attention,
)
from .projection import merge, project
from .ring import ring_attention
from .scores import add_bias, apply_scale, apply_softcap, scores
from .softmax import softmax

__all__ = [
    "MultiHeadAttention",
    "MultiHeadParams",
    "Steps",
    "add_bias",
    "apply_dropout",
    "apply_mask",
    "apply_scale",
    "apply_softcap",
    "attend",
    "attention",
    "attention_blocked",
    "attention_blocked_vjp",
    "attention_steps",
    "attention_vjp",
    "mask_array",
    "merge",
    "merge_parts",
    "multi_head_attention",
    "project",
    "ring_attention",
    "scores",
    "softmax",
]

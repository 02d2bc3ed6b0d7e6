"""Attention in JAX: every step a function, gradients by `jax.vjp`.

Runs under `jit`, `vmap` and `grad`; parameters and mask predicates are pytrees, and
`scale`, `softcap` and `dropout_rate` are static.
"""

from .attend import apply_dropout, attend
from .attention import Steps, attention, attention_steps
from .blocked import attention_blocked, attention_blocked_vjp, merge_parts
from .gradients import attention_vjp
from .mask import apply_mask, mask_array
from .multihead import MultiHeadParams, multi_head_attention
from .projection import merge, project
from .ring import ring_attention
from .scores import add_bias, apply_scale, apply_softcap, scores
from .softmax import softmax

__all__ = [
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

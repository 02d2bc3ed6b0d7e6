"""Variants of attention: each has one step of its own, and all else from the room."""

from .additive import additive_attention, additive_attention_vjp
from .cosine import cosine_attention, cosine_attention_vjp
from .latent import LatentParams, latent_attention, latent_attention_vjp
from .relative import (
    alibi_attention,
    alibi_attention_vjp,
    shaw_attention,
    shaw_attention_vjp,
    t5_attention,
    t5_attention_vjp,
)
from .rotary import rotary_attention, rotary_attention_vjp, rotate
from .sinks import sink_attention, sink_attention_vjp

__all__ = [
    "LatentParams",
    "additive_attention",
    "additive_attention_vjp",
    "alibi_attention",
    "alibi_attention_vjp",
    "cosine_attention",
    "cosine_attention_vjp",
    "latent_attention",
    "latent_attention_vjp",
    "rotary_attention",
    "rotary_attention_vjp",
    "rotate",
    "shaw_attention",
    "shaw_attention_vjp",
    "sink_attention",
    "sink_attention_vjp",
    "t5_attention",
    "t5_attention_vjp",
]

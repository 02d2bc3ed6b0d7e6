"""Variants of attention: each has one step of its own, and all else from the room."""

from .additive import additive_attention
from .cosine import cosine_attention
from .latent import LatentParams, latent_attention
from .relative import alibi_attention, shaw_attention, t5_attention
from .rotary import rotary_attention, rotate
from .sinks import sink_attention

__all__ = [
    "LatentParams",
    "additive_attention",
    "alibi_attention",
    "cosine_attention",
    "latent_attention",
    "rotary_attention",
    "rotate",
    "shaw_attention",
    "sink_attention",
    "t5_attention",
]

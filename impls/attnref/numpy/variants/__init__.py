"""Variants of attention: each has one step of its own, and all else from the room."""

from .additive import additive_attention, additive_attention_vjp
from .cosine import cosine_attention, cosine_attention_vjp
from .kernel import (
    feature_map,
    linear_attention,
    linear_attention_step,
    performer_attention,
    random_features,
)
from .latent import LatentParams, latent_attention, latent_attention_vjp
from .low_rank import linformer_attention, nystrom_attention, pseudo_inverse
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
    "feature_map",
    "latent_attention",
    "latent_attention_vjp",
    "linear_attention",
    "linear_attention_step",
    "linformer_attention",
    "nystrom_attention",
    "performer_attention",
    "pseudo_inverse",
    "random_features",
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

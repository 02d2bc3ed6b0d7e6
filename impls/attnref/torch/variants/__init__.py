"""Variants of attention: each has one step of its own, and all else from the room."""

from .additive import additive_attention
from .cosine import cosine_attention
from .kernel import (
    feature_map,
    linear_attention,
    linear_attention_step,
    performer_attention,
    random_features,
)
from .latent import LatentParams, latent_attention
from .low_rank import linformer_attention, nystrom_attention, pseudo_inverse
from .relative import alibi_attention, shaw_attention, t5_attention
from .rotary import rotary_attention, rotate
from .sinks import sink_attention

__all__ = [
    "LatentParams",
    "additive_attention",
    "alibi_attention",
    "cosine_attention",
    "feature_map",
    "latent_attention",
    "linear_attention",
    "linear_attention_step",
    "linformer_attention",
    "nystrom_attention",
    "performer_attention",
    "pseudo_inverse",
    "random_features",
    "rotary_attention",
    "rotate",
    "shaw_attention",
    "sink_attention",
    "t5_attention",
]

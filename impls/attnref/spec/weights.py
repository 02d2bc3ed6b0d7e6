"""From a model's linear layers to the arrays of `MultiHeadParams`.

A linear layer knows no heads: its weight is `(out, in)`, and the heads lie one after
the other along the wide axis (head-major).  The patterns that undo this are written
once, in `LINEAR`; a converter for another model is a table of names beside `BERT`.
Arrays may be of any framework that einops knows.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from einops import rearrange

Array = Any
"""An array of any framework."""

LINEAR = MappingProxyType(
    {
        "w_q": "(n d) c -> c n d",
        "w_k": "(h d) m -> m h d",
        "w_v": "(h e) m -> m h e",
        "w_o": "c (n e) -> n e c",
        "b_q": "(n d) -> n d",
        "b_k": "(h d) -> h d",
        "b_v": "(h e) -> h e",
        "b_o": "c -> c",
    }
)
"""Parameter → the pattern that takes it out of a linear layer's weight or bias."""

BERT = MappingProxyType(
    {
        "w_q": "self.query.weight",
        "w_k": "self.key.weight",
        "w_v": "self.value.weight",
        "w_o": "output.dense.weight",
        "b_q": "self.query.bias",
        "b_k": "self.key.bias",
        "b_v": "self.value.bias",
        "b_o": "output.dense.bias",
    }
)
"""Parameter → its name below the attention of a BERT layer."""


def bert(state: Mapping[str, Array], prefix: str, *, heads: int) -> dict[str, Array]:
    """The attention parameters of one layer of BERT, by `MultiHeadParams` name.

    `prefix` is the path of the attention in `state`, such as
    `encoder.layer.0.attention`.  Raises as `from_linear` does.
    """
    names = {parameter: f"{prefix}.{name}" for parameter, name in BERT.items()}
    return from_linear(state, names, heads=heads)


def from_linear(
    state: Mapping[str, Array],
    names: Mapping[str, str],
    *,
    heads: int,
    kv_heads: int | None = None,
) -> dict[str, Array]:
    """Splits the heads of linear layers: `w_q: c n d`, `w_k: m h d`, `w_v: m h e`,
    `w_o: n e c`, and of their biases: `b_q: n d`, `b_k: h d`, `b_v: h e`, `b_o: c`.

    `state` holds weights `(out, in)` and biases `(out,)`; `names` says under which key
    each parameter is (leave out the biases that a model has not).  `heads` is n and
    `kv_heads` is h, by default as many.  The layer's x Wᵀ + b is the spec's x W + b.

    Raises:
        ValueError: a key is missing, or a width does not split into the heads.
    """
    sizes = {"n": heads, "h": heads if kv_heads is None else kv_heads}
    return {
        parameter: _split(_entry(state, name), name, LINEAR[parameter], sizes)
        for parameter, name in names.items()
    }


def _entry(state: Mapping[str, Array], name: str) -> Array:
    if name not in state:
        raise ValueError(f"the model's state has no `{name}`")
    return state[name]


def _split(array: Array, name: str, pattern: str, sizes: dict[str, int]) -> Array:
    """The heads taken out of the one axis that holds them, if any does (b_o: none)."""
    stored = pattern.partition(" -> ")[0]
    axes = re.findall(r"\(.+?\)|\w", stored)
    if len(array.shape) != len(axes):
        shape = tuple(array.shape)
        raise ValueError(f"`{name}` must have axes {stored}, but has shape {shape}")
    used = {}
    for axis, width in zip(axes, array.shape, strict=True):
        if axis.startswith("("):
            used[axis[1]] = _divisor(name, axis, width, sizes[axis[1]])
    return rearrange(array, pattern, **used)


def _divisor(name: str, axis: str, width: int, heads: int) -> int:
    if heads < 1 or width % heads:
        raise ValueError(
            f"`{name}` must have a width {axis} that {axis[1]} = {heads} heads "
            f"divide, but it is {width}"
        )
    return heads

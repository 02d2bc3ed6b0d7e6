"""Weights carried between a library's own layer and the room of its arrays."""

from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from libraries import LIBRARIES, Library

from attncheck import frameworks
from attnref.spec.weights import PARAMETERS, dump, load

PROFILE = "strict"
"""Of float32: every operation rounds to float32, and no coarser."""

Arrays = dict[str, Any]


class Carried(NamedTuple):
    """Parameters, what they were applied to, and what came."""

    params: Arrays
    x: Any
    context: Any
    """None for self-attention."""
    theirs: Any
    """The output of the library's layer."""
    ours: Any
    """The output of the room."""


def loaded(name: str) -> Carried:
    """The library's layer, its arrays drawn, and the room with what `load` takes."""
    one = LIBRARIES[name]
    layer, inside = one.make(), {entry.name for entry in one.layout.entries.values()}
    shapes = {k: tuple(x.shape) for k, x in one.state(layer).items() if k in inside}
    layer = one.fill(layer, drawn(one, shapes))
    params = load(one.layout, one.state(layer), **one.heads)
    assert params.keys() == PARAMETERS.keys()
    return applied(name, layer, params)


def dumped(name: str) -> Carried:
    """The room with parameters that are drawn, and the layer with what `dump` gives."""
    one = LIBRARIES[name]
    axes = {p: words.split() for p, words in PARAMETERS.items()}
    shapes = {p: tuple(one.sizes[axis] for axis in x) for p, x in axes.items()}
    params = drawn(one, shapes)
    return applied(name, one.fill(one.make(), dump(one.layout, params)), params)


def applied(name: str, layer: Any, params: Arrays) -> Carried:
    """The layer and the room on the same input."""
    one = LIBRARIES[name]
    room, native = import_module(f"attnref.{one.room}"), adapter(one).to_native
    x = native(normal(91, 2, 5, one.sizes["c"]))
    context = native(normal(92, 2, 7, one.sizes["m"])) if "cross" in name else None
    theirs = one.call(layer, x, x if context is None else context)
    ours = room.multi_head_attention(room.MultiHeadParams(**params), x, context)
    return Carried(params, x, context, theirs, ours)


def drawn(one: Library, shapes: dict[str, tuple[int, ...]]) -> Arrays:
    """Numbers of size 1/2 under each name, biases as large as weights."""
    return {
        name: adapter(one).to_native(normal(seed, *shape) / 2)
        for seed, (name, shape) in enumerate(shapes.items())
    }


def adapter(one: Library) -> Any:
    """Of the framework whose arrays the library takes."""
    return frameworks.adapter(one.room)


def normal(seed: int, *shape: int) -> np.ndarray:
    """Normal numbers in float32."""
    return np.random.default_rng(seed).standard_normal(shape, np.float32)

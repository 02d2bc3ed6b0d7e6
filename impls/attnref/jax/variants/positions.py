"""Where queries and keys stand: query i at i + offset, key j at j."""

import jax.numpy as jnp

from attnref.spec.variants import check_offset

from ..mask import _carried


def query_positions(offset, sizes):
    """The positions of the queries, `i`, or `b i` where each batch element has its own.

    Args:
        offset: an int, or integers `b`, as of a causal mask.
        sizes: axis letter → size.
    """
    offset = check_offset(offset, sizes)
    steps = jnp.arange(sizes["i"])
    if isinstance(offset, int):
        return steps + offset
    return steps + _carried(offset).astype(steps.dtype)[:, None]


def key_positions(sizes):
    """The positions of the keys: `j`."""
    return jnp.arange(sizes["j"])


def distances(offset, sizes):
    """j − (i + offset): how far key j is after query i; `b i j`, with b full or 1."""
    found = key_positions(sizes) - query_positions(offset, sizes)[..., None]
    return found if found.ndim == 3 else found[None]

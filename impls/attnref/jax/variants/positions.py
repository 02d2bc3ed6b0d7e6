"""Where queries and keys stand: query i at i + offset, key j at j."""

from functools import partial

import jax
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
    if not isinstance(offset, int):
        offset = _carried(offset)[:, None]
    return _from(offset, sizes["i"])


@partial(jax.jit, static_argnames="length")
def _from(start, length):
    steps = jnp.arange(length)
    return steps + jnp.asarray(start, steps.dtype)


def key_positions(sizes):
    """The positions of the keys: `j`."""
    return jnp.arange(sizes["j"])


def distances(offset, sizes):
    """j − (i + offset): how far key j is after query i; `b i j`, with b full or 1."""
    return _between(query_positions(offset, sizes), sizes["j"])


@partial(jax.jit, static_argnames="keys")
def _between(at_q, keys):
    found = jnp.arange(keys) - at_q[..., None]
    return found if found.ndim == 3 else found[None]

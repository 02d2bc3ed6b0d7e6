"""Into the heads and out of them: the projections."""

import jax

from attnref.spec import patterns

from .scores import accumulate, contract


@jax.jit
def project(x, w, b=None):
    """One projection of a sequence into heads: x·w + b.

    Args:
        x: `b i c` (queries) or `b j m` (context).
        w: `c n d` or `m h d`.
        b: `n d` or `h d`, or None.

    Returns:
        `b n i d`, in the accumulation type.
    """
    heads = contract(patterns.PROJECT, x, w)
    return heads if b is None else heads + accumulate(b)[:, None, :]


@jax.jit
def merge(heads, w, b=None):
    """The heads' outputs, brought back to the model width: Σ_n o_n·w_n + b.

    Args:
        heads: `b n i e`.
        w: `n e c`.
        b: `c`, or None.

    Returns:
        `b i c`, in the accumulation type.
    """
    merged = contract(patterns.MERGE, heads, w)
    return merged if b is None else merged + accumulate(b)

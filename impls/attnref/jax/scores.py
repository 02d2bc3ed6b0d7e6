"""Dot products of queries with keys, and what is done to them before the mask."""

import jax
import jax.numpy as jnp
from einops import rearrange

from attnref.spec import patterns


def accumulate(x):
    """`x` in the accumulation type: float32, or float64 for float64.

    16-bit types are cast before any arithmetic, so nothing but a final result is ever
    rounded to them; and before a compiled step, so that one program serves them all.

    Raises:
        ValueError: float64 while x64 is off, where JAX would compute in float32.
    """
    if x.dtype != jnp.float64:
        return x.astype(jnp.float32)
    if not jax.config.jax_enable_x64:  # type: ignore[attr-defined, unused-ignore]
        raise ValueError(
            "float64 inputs need jax.config.update('jax_enable_x64', True): without it "
            "JAX computes in float32 and says nothing"
        )
    return x


def contract(pattern, *operands):
    """The sum of products that `pattern` says, in the accumulation type.

    At the highest precision: by default some devices round float32 operands.
    """
    highest = jax.lax.Precision.HIGHEST
    return jnp.einsum(pattern, *map(accumulate, operands), precision=highest)


def group(x, h):
    """Query heads n as (h g): `b n i x` → `b h g i x`."""
    return rearrange(x, patterns.GROUP, h=h)


def ungroup(x):
    """Grouped heads (h g) as query heads n: `b h g i x` → `b n i x`."""
    return rearrange(x, patterns.UNGROUP)


@jax.jit
def scores(q, k):
    """Raw dot products q·k, each query head with its key/value head.

    Args:
        q: `b n i d`, with n = h·g; heads `h·g … h·g + g − 1` use key head `h`.
        k: `b h j d`.

    Returns:
        `b n i j`, in the accumulation type.
    """
    return ungroup(contract(patterns.SCORES, group(q, k.shape[1]), k))


def apply_scale(scores, scale):
    """`scores` (`b n i j`) times `scale`."""
    return scores * float(scale)


def apply_softcap(logits, softcap=None):
    """c·tanh(logits / c): bounded to ±c.  None leaves `logits` as they are.

    Source: Gemma 2 (arXiv 2408.00118), section 2.
    """
    if softcap is None:
        return logits
    softcap = float(softcap)
    return softcap * jnp.tanh(logits / softcap)


def add_bias(logits, bias=None):
    """`logits + bias`; `bias` has axes `b n i j`, each full or 1, or is None."""
    return logits if bias is None else logits + accumulate(bias)

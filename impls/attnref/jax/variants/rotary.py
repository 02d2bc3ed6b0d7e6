"""Rotary positions: queries and keys turn by an angle that is their position's.

A pair of components (x, y) at position p turns by the angle p·θ_t, of which pair t of a
width has its own, θ_t = base^(−2t / width):

    (x, y) → (x·cos pθ − y·sin pθ, x·sin pθ + y·cos pθ)

A product of two that have turned depends on the difference of their positions alone.

Source: Su et al., RoFormer (arXiv 2104.09864), section 3.2.
"""

from functools import partial

import jax
import jax.numpy as jnp
from einops import rearrange

from attnref.spec import patterns
from attnref.spec.checks import check_attention
from attnref.spec.variants import check_positions, check_rotary

from ..attention import put_together
from ..scores import accumulate, scores
from .positions import key_positions, query_positions


def rotate(x, positions, *, base=10000.0, width=None, pairing="halves"):
    """`x`, its pairs of components turned by their positions.

    Angles are products of a position and a θ in the accumulation type: at position p
    they are right to p·2⁻²³ in float32.

    Args:
        x: `b n i d`.
        positions: integers `i`, or `b i`.
        base: finite number above 0; the slowest pair turns once in about 2π·base
            positions.
        width: how many components turn, an even int, the first ones; None for all d.
        pairing: "halves": components t and t + width/2 are a pair; "interleaved":
            components 2t and 2t + 1.  `attnref.spec.weights.rotary_permutation` takes
            weights from one to the other.

    Returns:
        `b n i d`, in the accumulation type.

    Raises:
        TypeError, ValueError: wrong input; an odd width among it.
    """
    check_positions(jax.Array, positions, x)
    width = check_rotary(x.shape[-1], base=base, width=width, pairing=pairing)
    x = accumulate(x)
    return _turn(x, positions, _thetas(base, width, x.dtype), pairing)


def _thetas(base, width, dtype):
    """The angles of a step: base^(−2t / width), by pairs."""
    return jnp.array([base ** (-2 * t / width) for t in range(width // 2)], dtype)


@partial(jax.jit, static_argnames="pairing")
def _turn(x, positions, thetas, pairing):
    """As `rotate`, for arguments that are checked."""
    angles = positions.astype(x.dtype)[..., None, :, None] * thetas
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    place, width = patterns.PAIRINGS[pairing], 2 * len(thetas)
    first, second = rearrange(x[..., :width], f"{place} -> {patterns.PAIRS}", two=2)
    pairs = [first * cos - second * sin, first * sin + second * cos]
    turned = rearrange(pairs, f"{patterns.PAIRS} -> {place}")
    return jnp.concatenate([turned, x[..., width:]], axis=-1)


def rotary_attention(
    q, k, v, *, offset=0, base=10000.0, width=None, pairing="halves", **options
):
    """Attention in which query i stands at position i + offset, and key j at j.

    Args:
        offset: an int, or integers `b`, as of a causal mask.
        base, width, pairing: as of `rotate`.
        options: mask, bias, scale, softcap, dropout_rate and dropout_keep.

    The other arguments, and the errors, are those of `attention`.

    Returns:
        the output `b n i e`, in the dtype of the inputs, rounded once, and the
        log-sum-exp `b n i`, in the accumulation type.
    """
    sizes = check_attention(jax.Array, q, k, v, **options)
    at_q, at_k = query_positions(offset, sizes), key_positions(sizes)
    turn = partial(rotate, base=base, width=width, pairing=pairing)

    def rotary_scores(q, k):
        return scores(turn(q, at_q), turn(k, at_k))

    steps = put_together(q, k, v, sizes, scores=rotary_scores, **options)
    return steps.output, steps.lse

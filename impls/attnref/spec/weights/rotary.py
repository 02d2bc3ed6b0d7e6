"""The two pairings of rotary positions, and the order of weights that maps them.

Rotary positions turn pairs of components of q and k: t and t + d/2 (`halves`), or 2t
and 2t + 1 (`interleaved`).  Scores are sums over components, so moving the components
of W_q and W_k together changes no score, and takes one pairing to the other.  Source:
Su et al. (arXiv 2104.09864), section 3.4.2, which interleaves.
"""

from collections.abc import Mapping
from typing import Any

from attnref.spec.variants import check_width

PAIRS = {"interleaved": "(two t) -> (t two)", "halves": "(t two) -> (two t)"}
"""Pairing → how the rotated components of the other come to it."""

ROTATED = ("w_q", "w_k", "b_q", "b_k")


def rotary_permutation(d: int, width: int | None = None) -> tuple[int, ...]:
    """The order of components that takes halves to interleaved.

    Component `c` of a query for interleaved pairs is component `order[c]` of one for
    halves.  `width` components are rotated, the first ones (None: all d); the others
    stay.

    Raises:
        ValueError: `width` is odd, or not from 2 to d.
    """
    half = check_width(d, width) // 2
    turned = (t + side * half for t in range(half) for side in (0, 1))
    return (*turned, *range(2 * half, d))


def paired(
    params: Mapping[str, Any], pairing: str, *, width: int | None = None
) -> dict[str, Any]:
    """The same attention with the other pairing of rotary positions.

    Moves the components of w_q, w_k, b_q and b_k; everything else stays.

    Args:
        params: arrays by the names of `MultiHeadParams`, for the other pairing.
        pairing: that of the result, `interleaved` or `halves`.
        width: how many components are rotated, the first ones; None: all.

    Raises:
        ValueError: an unknown pairing, or a width that is odd, or not from 2 to d.
    """
    if pairing not in PAIRS:
        raise ValueError(f"`pairing` must be {' or '.join(PAIRS)}, but is {pairing!r}")
    return {
        name: _moved(array, pairing, width)
        if name in ROTATED and array is not None
        else array
        for name, array in params.items()
    }


def _moved(array: Any, pairing: str, width: int | None) -> Any:
    from einops import pack, rearrange  # the site reads layouts where there is none

    rotated = check_width(array.shape[-1], width)
    before, after = PAIRS[pairing].split(" -> ")
    heads = "c n" if len(array.shape) == 3 else "n"
    pattern = f"{heads} {before} -> {heads} {after}"
    turned = rearrange(array[..., :rotated], pattern, two=2)
    return pack([turned, array[..., rotated:]], f"{heads} *")[0]

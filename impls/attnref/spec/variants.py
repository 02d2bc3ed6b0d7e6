"""What variants of attention take beside its arguments, and the words of their errors.

Arrays of a variant (tables, slopes, weights) are checked with those of attention, by
`attnref.spec.checks.check_attention`; here is what is left.
"""

from collections.abc import Mapping
from typing import Any

from attnref.spec import patterns
from attnref.spec.checks import (
    Sizes,
    bind_axes,
    check_any_mask,
    check_arrays,
    check_type,
    dtype_name,
    is_finite,
)
from attnref.spec.masks import _integers, _shape

Array = Any
"""An array of any framework."""


def check_offset(offset: Any, sizes: Sizes) -> Any:
    """An offset is an int, or integers of axes b; returns it, sequences as tuples."""
    offset = _integers("attention", "offset", offset, "b", or_int=True)
    if not isinstance(offset, int) and _shape(offset) != (sizes["b"],):
        raise ValueError(
            f"`offset` must have axes b = {sizes['b']}, but has shape {_shape(offset)}"
        )
    return offset


def check_positions(array_type: type, positions: Array, x: Array) -> None:
    """Positions are integers, of axes `i` or `b i`, for a floating `x: b n i d`."""
    check_arrays(array_type, {"x": x})
    check_type("positions", positions, array_type)
    if not dtype_name(positions).startswith(("int", "uint")):
        raise TypeError(f"`positions` must be integers, but is {dtype_name(positions)}")
    if len(x.shape) != 4:
        raise ValueError(
            f"`x` must have 4 axes {patterns.QUERY}, but has shape {tuple(x.shape)}"
        )
    b, _, i, _ = x.shape
    if tuple(positions.shape) not in ((i,), (b, i)):
        raise ValueError(
            f"`positions` must have axes i = {i} or b i = {b} {i}, but has shape "
            f"{tuple(positions.shape)}"
        )


def check_unscaled(function: str, options: Mapping[str, Any]) -> None:
    """A variant whose scores no scale multiplies takes none."""
    if "scale" in options:
        raise TypeError(f"`{function}` takes no `scale`: its scores are not scaled")


def check_epsilon(eps: float) -> None:
    """A least length is a finite number above 0."""
    if not (is_finite(eps, "eps") and eps > 0):
        raise ValueError(f"`eps` must be finite and above 0, but is {eps}")


def check_latent(
    array_type: type, params: Any, x: Array, context: Array | None, mask: Any
) -> Sizes:
    """Validates the arguments of `latent_attention`; returns axis letter → size."""
    check_arrays(array_type, {"x": x, "context": context} | params._asdict())
    axes = {
        "x": "b i c",
        "context": "b j c",
        "w_q": "c n d",
        "w_qr": "c n p",
        "w_kr": "c p",
        "w_c": "c r",
        "w_k": "r n d",
        "w_v": "r n e",
        "w_o": "n e c",
    }
    arrays = {"x": x} | ({} if context is None else {"context": context})
    arrays |= params._asdict()
    sizes = bind_axes({name: (array, axes[name]) for name, array in arrays.items()})
    sizes.setdefault("j", sizes["i"])
    if sizes["p"] % 2:
        raise ValueError(
            f"`w_qr` must have an even rotary width p: components turn in pairs, but "
            f"has {sizes['p']}"
        )
    check_any_mask(mask, sizes, array_type)
    return sizes


def check_rows(array_type: type, array: Array, x: Array, name: str) -> None:
    """An array like `x`: of its framework, its shape and its dtype."""
    check_arrays(array_type, {"x": x, name: array})
    if tuple(array.shape) != tuple(x.shape):
        raise ValueError(
            f"`{name}` must have axes b i c = {' '.join(map(str, x.shape))}, but has "
            f"shape {tuple(array.shape)}"
        )


def check_rotary(d: int, base: float, width: int | None, pairing: str) -> int:
    """What rotates; returns how many of d components do."""
    if not (is_finite(base, "base") and base > 0):
        raise ValueError(f"`base` must be finite and above 0, but is {base}")
    if pairing not in patterns.PAIRINGS:
        raise ValueError(
            f"`pairing` must be one of {', '.join(patterns.PAIRINGS)}, but is "
            f"{pairing!r}"
        )
    return check_width(d, width)


def check_width(d: int, width: int | None) -> int:
    """How many of d components turn, the first ones, in pairs; None: all."""
    rotated = d if width is None else width
    if not isinstance(rotated, int) or rotated % 2 or not 2 <= rotated <= d:
        raise ValueError(
            f"`width` must be even, and from 2 to d = {d}, but is {rotated}"
        )
    return rotated

"""What approximations of attention take, and the words of their errors.

None of them forms the weights of every query and key, so none takes what would have to
be said about every pair: a mask is of keys alone, and there is no bias.
"""

from collections.abc import Mapping
from typing import Any

from attnref.spec.axes import AXES
from attnref.spec.checks import Sizes, bind_axes, check_arrays
from attnref.spec.masks import _is_int

Array = Any
"""An array of any framework."""

FEATURES = ("elu+1", "relu")
"""The feature maps of linear attention that have a name."""

# Attention by features, r of them: sums over keys of feature times value, once for all
# queries, or up to each key, and what a query takes of them.
SUMS = "b h j r, b h j e -> b h r e"
TERMS = "b h j r, b h j e -> b h j r e"
TAKEN = "b h g i r, b h r e -> b h g i e"
TAKEN_EACH = "b h g i r, b h i r e -> b h g i e"

DRAWN = "b n i d, r d -> b n i r"
KEYS_DOWN = "b n i j -> b n j i"  # a mask of keys, as it lies beside their features

# Low rank: r combinations of keys, and r landmarks.
COMBINE = "b h j d, j r -> b h r d"
LANDMARKS = "b n (r s) d -> b n r d"  # a reduction: the mean of s positions
SOLVED = "b n r s, b n s e -> b n r e"
SPREAD = "b n i r, b n r e -> b n i e"


def check_parameters(
    array_type: type, arrays: Mapping[str, tuple[Array | None, str]]
) -> None:
    """Arrays beside q, k and v: of one dtype, each letter one size; None is left out.

    `arrays`: name → (array, axes), what they are beside among them.
    """
    given = {name: pair for name, pair in arrays.items() if pair[0] is not None}
    check_arrays(array_type, {name: array for name, (array, _) in given.items()})
    bind_axes(given)


def check_key_mask(mask: Array | None) -> None:
    """A mask that says the same for every query and head: axes `b 1 1 j`, or None."""
    if mask is not None and tuple(mask.shape[1:3]) != (1, 1):
        raise ValueError(
            "`mask` must be the same for all heads and queries, of axes b 1 1 j such "
            f"as padding(lengths): keys are summed up once, but has shape "
            f"{tuple(mask.shape)}"
        )


def check_causal(causal: bool, offset: int) -> None:
    """`causal` is a bool, and an offset is an int, of a causal call only."""
    if not isinstance(causal, bool):
        raise TypeError(f"`causal` must be a bool, but is {type(causal).__name__}")
    if not _is_int(offset):
        raise TypeError(f"`offset` must be an int, but is {type(offset).__name__}")
    if offset and not causal:
        raise ValueError(f"`offset` = {offset} needs `causal` = True")


def check_feature(feature: Any) -> None:
    """A feature map is one of `FEATURES`, or a callable."""
    if not callable(feature) and feature not in FEATURES:
        names = ", ".join(FEATURES)
        raise ValueError(
            f"`feature` must be one of {names}, or a callable, but is {feature!r}"
        )


def check_features(features: Array, of: Array, r: int | None = None) -> int:
    """What a callable made: axes as of its argument but the last; returns that one."""
    shape, want = tuple(features.shape), tuple(of.shape[:-1])
    if shape[:-1] != want or (r is not None and shape[-1] != r):
        raise ValueError(
            f"`feature` must keep all axes {want} but the last, and give as many "
            f"features of keys as of queries, but gave shape {shape}"
        )
    return shape[-1]


def check_one_position(sizes: Sizes) -> None:
    """A step takes one query and one key."""
    for axis in "ij":
        if sizes[axis] != 1:
            raise ValueError(
                f"a step takes one position, but {AXES[axis]} {axis} = {sizes[axis]}"
            )


def check_state(state: Array, want: tuple[int, ...]) -> None:
    """The sums of the steps before: axes `b h r x`, with x = e + 1."""
    if tuple(state.shape) != want:
        raise ValueError(
            f"`state` must have axes b h r (e + 1) = {' '.join(map(str, want))}, but "
            f"has shape {tuple(state.shape)}"
        )


def check_positive_scale(scale: float) -> None:
    """Random features take the scale's root."""
    if not scale > 0:
        raise ValueError(f"`scale` of random features must be above 0, but is {scale}")


def check_landmarks(landmarks: int, sizes: Sizes) -> None:
    """Queries and keys fall into `landmarks` segments of one length."""
    if not _is_int(landmarks) or landmarks < 1:
        raise ValueError(
            f"`landmarks` must be an int of at least 1, but is {landmarks!r}"
        )
    for axis in "ij":
        if sizes[axis] % landmarks or not sizes[axis]:
            raise ValueError(
                f"{AXES[axis]} {axis} = {sizes[axis]} must be a multiple of "
                f"landmarks = {landmarks}, and not 0"
            )

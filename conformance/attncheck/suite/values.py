"""What arrays are filled with: functions of a source of bits and a shape.

Everything is drawn from the bit stream, which NumPy guarantees, by arithmetic that is
exact or rounds once: the streams of its distributions may change with the version.
"""

import hashlib
from collections.abc import Callable

import numpy as np

Source = np.random.PCG64
Shape = tuple[int, ...]
Values = Callable[[Source, Shape], np.ndarray]
"""`(source, shape) → float64`."""


def source(*words: object) -> Source:
    """A stream of bits that belongs to these words."""
    digest = hashlib.sha256(" ".join(map(str, words)).encode()).digest()
    return np.random.PCG64(int.from_bytes(digest, "big"))


def uniform(source: Source, shape: Shape) -> np.ndarray:
    """Uniform in [0, 1), multiples of 2⁻⁵³."""
    return _integers(source, shape) * 2.0**-53


def normal(source: Source, shape: Shape) -> np.ndarray:
    """Mean 0 and variance 1: twelve uniform numbers summed, less 6."""
    total = _integers(source, (12, *shape)).sum(axis=0, dtype=np.int64)
    return (total - 6 * 2**53) * 2.0**-53


def around(mean: float, spread: float = 1.0) -> Values:
    """`mean + spread · normal`."""
    return lambda source, shape: mean + spread * normal(source, shape)


def constant(value: float) -> Values:
    """The same number everywhere."""
    return lambda source, shape: np.full(shape, float(value))


def channel(value: float) -> Values:
    """Normal, but the first channel, which is `value`: it shifts every score."""
    return _first_channel(lambda positions: np.full(positions, value))


def alternating(value: float) -> Values:
    """Normal, but the first channel, which is ±`value` from position to position."""
    return _first_channel(lambda positions: value * (-1.0) ** np.arange(positions))


def ramp(step: float) -> Values:
    """Normal, but the first channel, which grows by `step` a position."""
    return _first_channel(lambda positions: step * np.arange(positions))


def outlier(factor: float) -> Values:
    """Normal, with a last channel `factor` times as large."""

    def values(source, shape):
        array = normal(source, shape)
        array[..., -1] *= factor
        return array

    return values


def heads_apart(step: float) -> Values:
    """Normal around `step · head`: every head has a mean of its own."""

    def values(source, shape):
        return normal(source, shape) + step * np.arange(shape[1])[:, None, None]

    return values


def channels_apart(step: float) -> Values:
    """Normal around `step · channel`: the channels of an average stay distinct."""
    return lambda source, shape: normal(source, shape) + step * np.arange(shape[-1])


def alike(axes: str, full: str, values: Values | None = None) -> Values:
    """Values, normal by default, that vary along `axes` only, of those in `full`."""
    draw = values or normal

    def repeated(source, shape):
        sizes = zip(full, shape, strict=True)
        part = tuple(size if axis in axes else 1 for axis, size in sizes)
        return np.array(np.broadcast_to(draw(source, part), shape))

    return repeated


def positive(source: Source, shape: Shape) -> np.ndarray:
    """Half a normal distribution: nothing cancels."""
    return np.abs(normal(source, shape))


def tokens(count: int) -> Values:
    """Positions hold one of only `count` vectors, the same in every batch and head."""

    def values(source, shape):
        vocabulary = normal(source, (count, shape[-1]))
        return vocabulary[_integers(source, shape[:-1]) % count]

    return values


def opposite_pairs(size: float) -> Values:
    """Every second position holds minus its neighbour, but for a small rest."""

    def values(source, shape):
        array = size * normal(source, shape)
        odd = array[..., 1::2, :]
        odd[...] = -array[..., : 2 * odd.shape[-2] : 2, :]
        return array + normal(source, shape)

    return values


def equal_pairs(source: Source, shape: Shape) -> np.ndarray:
    """Every second position holds what its neighbour holds."""
    array = normal(source, shape)
    odd = array[..., 1::2, :]
    odd[...] = array[..., : 2 * odd.shape[-2] : 2, :]
    return array


def subnormal(source: Source, shape: Shape) -> np.ndarray:
    """Channels that are subnormal in float16, float32 and float64, by turns."""
    exponents = np.resize([-18.0, -129.0, -1030.0], shape[-1])
    return normal(source, shape) * 2.0**exponents


def from_set(*choices: float) -> Values:
    """One of the given numbers, at random."""

    def values(source, shape):
        return np.array(choices)[_integers(source, shape) % len(choices)]

    return values


def weight(source: Source, shape: Shape) -> np.ndarray:
    """A projection `c n d`: normal over √c, so that heads have variance 1."""
    return normal(source, shape) * shape[0] ** -0.5


def _integers(source: Source, shape: Shape) -> np.ndarray:
    """Integers of 53 bits."""
    size = int(np.prod(shape, dtype=np.int64))
    bits = source.random_raw(size) >> np.uint64(11)
    return bits.astype(np.int64).reshape(shape)


def _first_channel(filled: Callable[[int], np.ndarray]) -> Values:
    def values(source, shape):
        array = normal(source, shape)
        array[..., 0] = filled(shape[-2])
        return array

    return values

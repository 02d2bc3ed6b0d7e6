"""Rounding: to the nearest of a type, units in the last place, and errors composed."""

import ml_dtypes
import numpy as np


def interval(
    expected: np.ndarray, bound: np.ndarray, dtype: np.dtype
) -> tuple[np.ndarray, np.ndarray]:
    """[RN(expected − bound), RN(expected + bound)] in `dtype`, as float64 arrays.

    RN rounds to nearest, ties to even, in one rounding; where the difference itself is
    inexact in float64 it is first taken outward.
    """
    with np.errstate(invalid="ignore"):
        low, high = expected - bound, expected + bound
    if np.dtype(dtype) == np.float64:
        return low, high
    inexact = bound > 0
    low = np.where(inexact, np.nextafter(low, -np.inf), low)
    high = np.where(inexact, np.nextafter(high, np.inf), high)
    return nearest(low, dtype), nearest(high, dtype)


def nearest(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """float64 `values` rounded to the nearest of `dtype`, ties to even, as float64.

    ml_dtypes casts float64 to bfloat16 by way of float32, which rounds twice; here
    1 + 2⁻⁸ + 2⁻⁴⁰ becomes 1 + 2⁻⁷, as it must.
    """
    quantum = _last_place(values, dtype)
    finite = np.isfinite(values)
    steps = np.rint(np.ldexp(np.where(finite, values, 0.0), -quantum))
    with np.errstate(over="ignore"):
        rounded = np.where(finite, np.ldexp(steps, quantum), values)
    largest = float(ml_dtypes.finfo(dtype).max)
    return np.where(np.abs(rounded) > largest, np.copysign(np.inf, rounded), rounded)


def half_ulp(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Half a unit in the last place of `values` in `dtype`, subnormals included."""
    return np.ldexp(0.5, _last_place(values, dtype))


def _last_place(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The exponent of the last place of `values` in `dtype`."""
    info = ml_dtypes.finfo(dtype)
    _, exponent = np.frexp(np.where(np.isfinite(values), values, 0.0))
    # frexp has 1 = 0.5 · 2¹, and gives 0 the exponent 0.
    lowest = info.minexp + 1
    exponent = np.where(values == 0, lowest, exponent)
    return np.maximum(exponent, lowest) - (info.nmant + 1)


def unit_roundoff(dtype: np.dtype) -> float:
    """Unit roundoff: half the distance from 1 to the next number."""
    return 2.0 ** -(ml_dtypes.finfo(dtype).nmant + 1)


def in_exponent(relative: float) -> float:
    """The a for which 1 ± relative lies in [e⁻ᵃ, eᵃ]."""
    return -float(np.log1p(-relative))


def gamma(count: int, u: float) -> float:
    """γ_n = nu/(1 − nu): the relative error of n roundings, +∞ when nu ≥ 1."""
    return count * u / (1 - count * u) if count * u < 1 else float("inf")


def compound(*relative: float) -> float:
    """(1 + e₁)(1 + e₂)… − 1, without the cancellation."""
    return float(np.expm1(sum(np.log1p(e) for e in relative)))

"""What the steps of the model are made with."""

from typing import Any

import numpy as np

from attncheck.budget import output_dtype
from attncheck.case import Case

Array = np.ndarray
Arrays = dict[str, np.ndarray]

TILE = 16
"""Keys, or queries, of a block."""


def rounded(case: Case, results: Arrays) -> Arrays:
    """The results that the case wants, each in its own type."""
    return {
        name: array.astype(output_dtype(case, name))
        for name, array in results.items()
        if name in case.wants
    }


def narrow_sum(terms: Array, dtype: Any) -> Array:
    """Σ over the last axis, every partial sum rounded to `dtype`."""
    total = np.zeros(terms.shape[:-1])
    for term in np.moveaxis(terms, -1, 0):
        total = (total + term).astype(dtype).astype(np.float64)
    return total


def toward_zero(x: Array, dtype: np.dtype) -> Array:
    """Cut off to `dtype` instead of rounded."""
    nearest = x.astype(dtype)
    smaller = np.nextafter(nearest, dtype.type(0))
    wide = np.abs(nearest.astype(np.float64))
    return np.where(wide > np.abs(x), smaller, nearest).astype(np.float64)


def blocks(length: int, tile: int) -> list[slice]:
    """The blocks of an axis; the last one may be shorter."""
    return [slice(at, min(at + tile, length)) for at in range(0, length, tile)]


def highest(top: Array) -> Array:
    """Of all keys, where every key has one: `b n 1 1`."""
    return top.max(axis=-2, keepdims=True)


def safe(row: Array) -> Array:
    """0 in place of −∞, so that −∞ − 0 = −∞."""
    return np.where(row == -np.inf, 0.0, row)

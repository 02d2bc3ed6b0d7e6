"""float64 as an arithmetic: what `formulas` and `operations` compute in by default."""

import numpy as np

exp, log, tanh, cos, sin, sqrt = np.exp, np.log, np.tanh, np.cos, np.sin, np.sqrt
where = np.where


def number(value) -> np.ndarray:
    """The numbers in float64."""
    return np.asarray(value, np.float64)


def product(a: np.ndarray, b: np.ndarray, more: int) -> np.ndarray:
    """a @ b."""
    return a @ b


def inverse(x: np.ndarray) -> np.ndarray:
    """The pseudo-inverse, which every matrix has; NaN of one that holds what is no
    number."""
    finite = np.isfinite(x).all(axis=(-2, -1), keepdims=True)
    found = np.linalg.pinv(np.where(finite, x, np.eye(x.shape[-1])))
    return np.where(finite, found, np.nan)


def nearest(value: np.ndarray) -> np.ndarray:
    """The numbers themselves."""
    return value

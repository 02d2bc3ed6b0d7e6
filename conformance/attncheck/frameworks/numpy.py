"""NumPy: arrays as they are, and no autodiff."""

from contextlib import nullcontext

import numpy as np

vjp = None


def to_native(array):
    """The array itself."""
    return array


def to_numpy(array):
    """The array itself."""
    return array


def is_native(value):
    """Whether `value` is a NumPy array."""
    return isinstance(value, np.ndarray)


def no_compiler():
    """There is none."""
    return "numpy has no compiler"


def device(array):
    """All arrays are in one memory."""
    return "the CPU"


def shares_memory(a, b):
    """Whether their spans of memory overlap."""
    return np.may_share_memory(a, b)


def precision(dtype):
    """NumPy computes in the types it is given."""
    return nullcontext()


def tidy():
    """NumPy keeps nothing."""


def describe():
    """Version and device."""
    return f"numpy {np.__version__}, CPU"

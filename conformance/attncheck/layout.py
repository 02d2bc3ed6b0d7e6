"""How an array lies in memory, as a line of axis letters.

`b i n d` lists the axes of `q: b n i d` from the outermost in memory to the innermost.
A number is an axis of that size of which the array is the first slice, and the rest is
NaN: `b i 3 n d` is a query in a packed projection of queries, keys and values.  An axis
that is left out has stride 0: the array is expanded along it.
"""

import numpy as np


def check(name: str, array: np.ndarray, axes: str, order: str) -> None:
    """Refuses a layout that the array cannot have.

    Args:
        axes: the letters of the array's own axes.

    Raises:
        ValueError: an unknown or repeated axis, or values that differ along an
            expanded one.
    """
    letters = [word for word in order.split() if not word.isdigit()]
    if len(set(letters)) < len(letters) or not set(letters) <= set(axes):
        raise ValueError(
            f"the layout of `{name}` is made of the axes {' '.join(axes)}, "
            f"each at most once, and numbers, not {order!r}"
        )
    for place, axis in enumerate(axes):
        first = array.take([0], place) if array.shape[place] else array
        same = np.array_equal(array, np.broadcast_to(first, array.shape))
        if axis not in letters and not same:
            raise ValueError(f"`{name}` is expanded along {axis}, where it differs")


def laid_out(array: np.ndarray, axes: str, order: str | None = None) -> np.ndarray:
    """A copy of `array` in memory of its own: contiguous, or as `order` says."""
    if order is None:
        return array.copy()
    words = order.split()
    sizes = dict(zip(axes, array.shape, strict=True))
    shape = [int(word) if word.isdigit() else sizes[word] for word in words]
    memory = np.full(shape, np.array(np.nan).astype(array.dtype))
    slice_ = memory[(*(0 if word.isdigit() else slice(None) for word in words), ...)]
    letters = [word for word in words if not word.isdigit()]
    strides = dict(zip(letters, slice_.strides, strict=True))
    view = np.lib.stride_tricks.as_strided(
        slice_, array.shape, [strides.get(axis, 0) for axis in axes]
    )
    view[...] = array
    return view

"""A recipe: what a case is made of, as data."""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np

from attncheck.suite.shapes import PRIMES, Shape
from attncheck.suite.values import Values
from attnref.spec import Mask

Sizes = dict[str, int]
Arrays = dict[str, np.ndarray]
Grid = np.ndarray
Predicate = Mask | Callable[[Grid, Grid, Grid, Grid], np.ndarray]


@dataclass(frozen=True)
class Recipe:
    """What a case is made of; arrays that `draw` does not name are normal."""

    name: str
    clauses: tuple[str, ...]
    why: str
    shape: Shape = PRIMES
    _: KW_ONLY
    arrays: tuple[str, ...] = ("q", "k", "v", "d_out")
    draw: Mapping[str, Values] = field(default_factory=dict)
    bias: str | None = None
    """The axes of `b n i j` in which the bias is full, such as "nij"; None: no bias."""
    scale: float | None = None
    softcap: float | None = None
    causal: Callable[[Sizes], int] | None = None
    """The offset of a causal mask."""
    window: tuple[int | None, int | None] | None = None
    """The left and right end of a window."""
    mask: Callable[[Sizes], Predicate] | None = None
    """Any other mask."""
    random_mask: bool = False
    """A random mask, beside the others."""
    mask_axes: str = "bnij"
    """The axes in which the mask is full; it must not vary along the others."""
    keep: str | None = None
    """The axes in which `dropout_keep` is full."""
    dropout_rate: float = 0.0
    edit: Callable[[Arrays], None] | None = None
    """Writes into the drawn arrays what must stand at certain places."""
    wants: tuple[str, ...] | None = None
    """None: everything that applies."""
    strides: Mapping[str, str] = field(default_factory=dict)
    """How arrays lie in memory, in the words of `attncheck.layout`."""
    saturates: bool = False
    """What is beyond the range of a storage type becomes its largest number, not ∞."""
    resizable: bool = True
    """False where the shape is what the case is about."""
    smoke: bool = True
    """False where it is enough that the full set has the case."""
    op: str = ""
    """The operation, where the arrays do not say it."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The operation's own options."""
    own_sizes: Mapping[str, int] = field(default_factory=dict)
    """Axis letter → size, of axes that only the operation's own inputs have."""

    @property
    def is_multi_head(self) -> bool:
        """The case calls `multi_head_attention`."""
        return "x" in self.arrays

    @property
    def is_self_attention(self) -> bool:
        """There are as many keys as queries, and m = c, by definition."""
        return self.is_multi_head and "context" not in self.arrays


WITH_LSE = ("q", "k", "v", "d_out", "d_lse")
"""The arrays of a case in which the log-sum-exp has an incoming gradient."""


def upper_left(sizes: Sizes) -> int:
    """The offset that aligns the first query with the first key."""
    return 0


def lower_right(sizes: Sizes) -> int:
    """The offset that aligns the last query with the last key."""
    return sizes["j"] - sizes["i"]


def lengths(sizes: Sizes) -> tuple[int, ...]:
    """A length for each batch element: at least 1, and less than all keys."""
    b, j = sizes["b"], sizes["j"]
    return tuple(max(1, j * (element + 1) // (b + 1)) for element in range(b))


def seen_keys(arrays: Arrays) -> np.ndarray:
    """Which keys some query of their key/value head may see: `b h j`."""
    b, h, j, _ = arrays["k"].shape
    mask = _full_mask(arrays)
    return np.any(mask.reshape(b, h, -1, j), axis=2)


def empty_rows(arrays: Arrays) -> np.ndarray:
    """Which queries are left no key: `b n i`."""
    return ~np.any(_full_mask(arrays), axis=-1)


def _full_mask(arrays: Arrays) -> np.ndarray:
    b, n, i, _ = arrays["q"].shape
    return np.broadcast_to(arrays["mask"], (b, n, i, arrays["k"].shape[2]))

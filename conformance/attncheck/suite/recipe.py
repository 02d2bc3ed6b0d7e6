"""A recipe: the description of a case, from which it is made in any storage type."""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field

import numpy as np

from attncheck.case import DTYPES, FORWARD, Case
from attncheck.clauses import CLAUSES
from attncheck.suite.shapes import PRIMES, Shape
from attncheck.suite.values import Values, normal, source, uniform
from attnref.spec import Mask, causal, window

Sizes = dict[str, int]
Arrays = dict[str, np.ndarray]
Grid = np.ndarray
Predicate = Mask | Callable[[Grid, Grid, Grid, Grid], np.ndarray]

AXES: Mapping[str, str] = {
    "q": "bnid",
    "k": "bhjd",
    "v": "bhje",
    "d_out": "bnie",
    "d_lse": "bni",
    "x": "bic",
    "context": "bjm",
    "w_q": "cnd",
    "w_k": "mhd",
    "w_v": "mhe",
    "w_o": "nec",
    "b_q": "nd",
    "b_k": "hd",
    "b_v": "he",
    "b_o": "c",
}
"""Array → its axes."""

VISIBLE = 0.6
"""Which part of a random mask is True."""

DTYPES_OF = {clause.name: clause.dtypes for clause in CLAUSES}


@dataclass(frozen=True)
class Recipe:
    """What a case is made of; arrays that `draw` leaves out are normal."""

    name: str
    clauses: tuple[str, ...]
    why: str
    shape: Shape = PRIMES
    _: KW_ONLY
    arrays: tuple[str, ...] = ("q", "k", "v", "d_out")
    draw: Mapping[str, Values] = field(default_factory=dict)
    bias: str | None = None
    """The axes of `b n i j` in which the bias is full, such as "nij"."""
    scale: float | None = None
    softcap: float | None = None
    causal: Callable[[Sizes], int] | None = None
    """The offset of a causal mask."""
    window: tuple[int | None, int | None] | None = None
    """Left and right of a window."""
    mask: Callable[[Sizes], Predicate] | None = None
    """Any other predicate."""
    random_mask: str | None = None
    """The axes in which a random mask is full."""
    keep: str | None = None
    """The axes in which `dropout_keep` is full."""
    dropout_rate: float = 0.0
    edit: Callable[[Arrays], None] | None = None
    """Writes into the drawn arrays: what must stand at certain places."""
    wants: tuple[str, ...] | None = None
    """None: everything that applies."""
    resizable: bool = True
    """False where the case is about its shape."""

    @property
    def is_multi_head(self) -> bool:
        """Whether the case calls `multi_head_attention`."""
        return "x" in self.arrays

    @property
    def is_self_attention(self) -> bool:
        """Whether there are as many keys as queries by definition."""
        return self.is_multi_head and "context" not in self.arrays


@dataclass(frozen=True)
class Variant:
    """A recipe at a shape and with a seed; `tag` tells it from its siblings."""

    recipe: Recipe
    shape: Shape
    seed: int = 0
    tag: str = ""

    @property
    def name(self) -> str:
        """The case's id, but for the storage type."""
        return self.recipe.name + (f"@{self.tag}" if self.tag else "")

    def cases(self, dtypes: tuple[str, ...]) -> list[Case]:
        """The case in each storage type, from numbers drawn once."""
        numbers = self.numbers()
        return [self._case(dtype, numbers) for dtype in dtypes]

    def numbers(self) -> Arrays:
        """The arrays in float64, masks in bool."""
        recipe, sizes = self.recipe, self.shape.sizes
        arrays = {name: self._drawn(name, AXES[name]) for name in recipe.arrays}
        if recipe.bias is not None:
            arrays["bias"] = self._drawn("bias", recipe.bias, _broadcast)
        mask = self._mask()
        if mask is not None:
            arrays["mask"] = mask
        if recipe.keep is not None:
            bits = source(recipe.name, "dropout_keep", self.seed)
            keep = uniform(bits, _broadcast(recipe.keep, sizes))
            arrays["dropout_keep"] = keep >= recipe.dropout_rate
        if recipe.edit is not None:
            recipe.edit(arrays)
        return arrays

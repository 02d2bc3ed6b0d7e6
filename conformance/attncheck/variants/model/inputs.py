"""What a case gives, and how what is computed from it is kept."""

from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from attncheck.case import DTYPES, Case
from attncheck.variants.model.parts import TILE, Array


class Inputs:
    """One call of a case.  Keys and values are repeated for every query head.

    Axes are those of the spec with `n` for `h`: q and k are `b n i d` and `b n j d`, v
    is `b n j e`, everything between `b n i j`, a row's numbers `b n i 1`.
    """

    reference: ClassVar[str] = ""
    """Where the mistake was seen in public, as `owner/repo#number`."""
    convention: ClassVar[tuple[str, Any] | None] = None
    """The field of `Conventions` that the variant changes, and to what."""
    rounds: ClassVar[bool] = False
    """Whether it is the precision that differs, not the formula."""
    op: ClassVar[str] = ""
    """The only operation in which it makes a difference, if it is one of the others."""
    tile: ClassVar[int] = TILE
    """Keys of a block."""

    def __init__(self, case: Case, *, stores: bool = False) -> None:
        """`stores`: round weights and d_logits to storage before their products, as
        the profile tensor-core does."""
        self.case, self.stores = case, stores

    def __init_subclass__(
        cls,
        reference: str = "",
        convention: tuple[str, Any] | None = None,
        rounds: bool = False,
        op: str = "",
    ) -> None:
        cls.reference, cls.convention, cls.rounds = reference, convention, rounds
        cls.op = op

    def input(self, name: str) -> Array:
        """An input in float64, or its neutral element where the case has none."""
        if name in self.case.inputs:
            return self.read(name).astype(np.float64)
        return np.zeros(self.size({"d_out": "bnie", "d_lse": "bni"}[name]))

    def read(self, name: str) -> Array:
        """An input as it is stored."""
        return self.case.inputs[name]

    def size(self, axes: str) -> tuple[int, ...]:
        """The sizes of some axes."""
        return tuple(self.case.sizes[axis] for axis in axes)

    def full(self, name: str, default: float | bool) -> Array:
        """A mask or bias at full size, `b n i j`."""
        array = self.read(name) if name in self.case.inputs else np.array(default)
        return np.broadcast_to(array, self.size("bnij"))

    def spread(self, name: str) -> Array:
        """Keys or values, for every query head the head that it shares."""
        return self.repeated(self.input(name))

    def repeated(self, array: Array) -> Array:
        """`b h j x` → `b n j x`."""
        return np.repeat(array, self.case.sizes["g"], axis=1)

    def grouped(self, gradient: Array) -> Array:
        """`b n j x` → `b h j x`: the sum over the heads of a group."""
        b, h, g = self.size("bhg")
        return gradient.reshape(b, h, g, *gradient.shape[2:]).sum(axis=2)

    def grouped_key(self, gradient: Array) -> Array:
        """dk of every key/value head."""
        return self.grouped(gradient)

    def grouped_value(self, gradient: Array) -> Array:
        """dv of every key/value head."""
        return self.grouped(gradient)

    def seen(self) -> Array:
        """Whether the query may see the key."""
        return self.full("mask", True)

    def bias(self) -> Array:
        """The bias."""
        return self.full("bias", 0.0).astype(np.float64)

    def keep(self) -> Array:
        """The factor that dropout puts on every weight."""
        if "dropout_keep" not in self.case.inputs:
            return np.ones(self.size("bnij"))
        return self.kept(self.full("dropout_keep", True), self.case.dropout_rate)

    def kept(self, keep: Array, rate: float) -> Array:
        """0 or 1/(1 − rate)."""
        return keep / (1 - rate)

    def setting(self, name: str, default: Any) -> Any:
        """An option of the operation's own."""
        return self.case.settings.get(name, default)

    def by_head(self, numbers: Array) -> Array:
        """`n ...` → `n 1 1 ...`."""
        return numbers[:, None, None]

    def over_batch(self, d: Array) -> Array:
        """The sum over the batch, which these inputs do not have."""
        return d.sum(axis=0)

    def exists(self, seen: Array) -> Array:
        """Whether any query of a group sees the key: `b n j 1`."""
        b, h, g, i, j = self.size("bhgij")
        of_group = seen.reshape(b, h, g, i, j).any(axis=(2, 3))
        return np.repeat(of_group, g, axis=1)[..., None]

    def shown_key(self, k: Array, live: Array) -> Array:
        """Keys, 0 where nobody sees them."""
        return np.where(live, k, 0.0)

    def shown_value(self, v: Array, live: Array) -> Array:
        """Values, 0 where nobody sees them."""
        return np.where(live, v, 0.0)

    def scale(self) -> float:
        """The factor on the raw scores."""
        if self.case.op in ("cosine_attention", "additive_attention"):
            return 1.0
        return self.case.scale_value

    def query_scale(self) -> float:
        """The scale, once more."""
        return self.scale()

    def key_scale(self) -> float:
        """The scale, once more."""
        return self.scale()

    def stored(self, x: Array) -> Array:
        """An operand of a product, as it is kept until then."""
        return self.narrow(x) if self.stores else x

    def stored_weights(self, p: Array) -> Array:
        """The weights, as they are kept until their products."""
        return self.stored(p)

    @cached_property
    def storage(self) -> np.dtype:
        """The storage type; for wide ones the type that kernels save in: bfloat16."""
        storage = DTYPES[self.case.dtype]
        return storage if storage.itemsize == 2 else DTYPES["BF16"]

    def narrow(self, x: Array) -> Array:
        """Rounded to 16 bits."""
        return x.astype(self.storage).astype(np.float64)

"""The ways in which programs come to the same mistake: a mask from words or from its
array, blocks and parts of other sizes, what nobody sees removed before or after."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from attncheck.variants.model import Array, Model

Ends = tuple[int | None, int | None]
"""The left and the right end of a window; None: open."""


class Rebuilt(Model):
    """A causal mask or a window that is rebuilt from the words of the call."""

    def words(self) -> Mapping[str, Any]:
        """What the mask is in words; nothing where no words say it."""
        return self.case.predicate

    def offset(self, offset: int) -> int:
        """The offset of a causal mask."""
        return offset

    def ends(self, left: int | None, right: int | None) -> Ends:
        """The ends of a window."""
        return left, right

    def seen(self) -> Array:
        words = self.words()
        if not words:
            return super().seen()
        i, j = self.size("ij")
        ahead = np.arange(j) - np.arange(i)[:, None]
        seen = np.full((i, j), True)
        if "causal_offset" in words:
            seen &= ahead <= self.offset(words["causal_offset"])
        left, right = self.ends(*words.get("window", (None, None)))
        seen &= (left is None) | (ahead >= -(left or 0))
        seen &= (right is None) | (ahead <= (right or 0))
        return np.broadcast_to(seen, self.size("bnij"))


class Tiled(Model):
    """A mistake in blocks of keys, of which every kernel has its own size."""

    other_tiles: ClassVar[tuple[int, ...]] = (32, 64, 128)
    """Sizes that are tried beside the model's own."""


class Split(Model):
    """A mistake in parts of the keys, each of which is attended to by itself."""

    parts: ClassVar[int] = 2
    counts_empty: ClassVar[bool] = True
    """Whether a part of which a query sees no key counts as one."""
    numbers: ClassVar[tuple[int, ...]] = (2, 3, 4, 8)
    """Numbers of parts that are tried."""

    def part_of_key(self) -> Array:
        """The number of the part, `j`: of equal lengths, but for the last."""
        j = self.case.sizes["j"]
        return np.arange(j) // max(-(-j // self.parts), 1)


def recognising(model: type[Model]) -> type[Model]:
    """The model, but what the mask is in words is found in its array."""

    def words(self: Rebuilt) -> Mapping[str, Any]:
        return found_in(self.full("mask", True))

    return type(model.__name__, (model,), {"words": words}, **_traits(model))


def guarded(model: type[Model], *, by_head: bool) -> type[Model]:
    """The model, but what nobody sees by the mask of the call is 0 from the start.

    `by_head`: nobody of the query head, not of its group.
    """

    class Guarded(model, **_traits(model)):  # type: ignore[misc, valid-type]
        def sees(self) -> Array:
            return Model.full(self, "mask", True)

        def rows(self) -> Array:
            return np.asarray(self.sees().any(axis=-1))[..., None]

        def exists(self, seen: Array) -> Array:
            if by_head:
                return np.asarray(self.sees().any(axis=2))[..., None]
            return Model.exists(self, self.sees())

        def input(self, name: str) -> Array:
            array = super().input(name)
            return np.where(self.rows(), array, 0.0) if name == "q" else array

        def bias(self) -> Array:
            return np.where(self.sees(), super().bias(), 0.0)

        def d_query(self, dx: Array, k: Array) -> Array:
            return np.where(self.rows(), super().d_query(dx, k), 0.0)

        def grouped_key(self, gradient: Array) -> Array:
            return super().grouped_key(np.where(self.exists(gradient), gradient, 0.0))

        def grouped_value(self, gradient: Array) -> Array:
            return super().grouped_value(np.where(self.exists(gradient), gradient, 0.0))

        def d_bias(self, ds: Array) -> Array:
            return super().d_bias(np.where(self.sees(), ds, 0.0))

    return Guarded


def hidden_first(model: type[Model]) -> type[Model]:
    """The model, but keys and values that nobody sees are 0 before others take them."""

    class HiddenFirst(model, **_traits(model)):  # type: ignore[misc, valid-type]
        def live(self) -> Array:
            live = Model.exists(self, self.seen())
            return live[:, :: self.case.sizes["g"]]

        def input(self, name: str) -> Array:
            array = super().input(name)
            return np.where(self.live(), array, 0.0) if name in ("k", "v") else array

        def exists(self, seen: Array) -> Array:
            return np.full((*self.size("bnj"), 1), True)

        def grouped_key(self, gradient: Array) -> Array:
            return np.where(self.live(), super().grouped_key(gradient), 0.0)

        def grouped_value(self, gradient: Array) -> Array:
            return np.where(self.live(), super().grouped_value(gradient), 0.0)

    return HiddenFirst


def sized(model: type[Model], **sizes: int) -> type[Model]:
    """The model with blocks, or parts, of other sizes."""
    return type(model.__name__, (model,), sizes, **_traits(model))


def found_in(mask: Array) -> dict[str, Any]:
    """The causal mask, or else the window, that an array is; nothing if it is none."""
    one = mask[:1, :1]
    if not one.any() or one.all() or (mask != one).any():
        return {}
    i, j = one.shape[2:]
    ahead = np.arange(j) - np.arange(i)[:, None]
    left, right = -int(ahead[one[0, 0]].min()), int(ahead[one[0, 0]].max())
    if np.array_equal(ahead <= right, one[0, 0]):
        return {"causal_offset": right}
    if np.array_equal(ahead >= -left, one[0, 0]):
        return {"window": (left, None)}
    is_window = np.array_equal((ahead >= -left) & (ahead <= right), one[0, 0])
    return {"window": (left, right)} if is_window else {}


def _traits(model: type[Model]) -> dict[str, Any]:
    return {
        "reference": model.reference,
        "convention": model.convention,
        "rounds": model.rounds,
    }

"""Where every query has keys and values of its own: each is a batch element.

A pair (i, j) may then have a key that depends on both.  The batch is `p`, all of
(b n i), with one head and one query.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from attncheck.operations.operation import (
    Array,
    Results,
    full,
    plain,
    summed,
    summed_to_bias,
)

if TYPE_CHECKING:
    from attncheck.case import Case
    from attncheck.formulas import Arithmetic


@dataclass(frozen=True, eq=False)
class Pairwise:
    """A case's arrays, query by query."""

    origin: "Case"
    numbers: "Arithmetic"

    @cached_property
    def _place(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Batch element, query head and query of every `p`."""
        sizes = tuple(self.origin.sizes[axis] for axis in "bni")
        b, n, i = (grid.ravel() for grid in np.indices(sizes))
        return b, n, i

    def alone(self, x: Array) -> Array:
        """`b n i x -> p 1 1 x`."""
        return x.reshape(len(self._place[0]), 1, 1, x.shape[-1])

    def spread(self, x: Array) -> Array:
        """`b h j x -> p j x`: those that the query shares with its group."""
        b, n, _ = self._place
        return x[b, n // self.origin.sizes["g"]]

    def of_every_query(self, rows: np.ndarray) -> np.ndarray:
        """`b i x` or `1 i x -> p x`."""
        b, _, i = self._place
        return rows[b if len(rows) > 1 else 0, i]

    def twice(self, x: Array) -> Array:
        """(x, x)."""
        width = x.shape[-1]
        return x[..., np.arange(2 * width) % width]

    def halves(self, x: Array) -> tuple[Array, Array]:
        """x and y of (x, y)."""
        width = x.shape[-1] // 2
        return x[..., :width], x[..., width:]

    def case(
        self, operands: dict[str, Array], *, halves: bool, **options: Any
    ) -> "Case":
        """The plain case of these operands.

        Args:
            halves: the output is to be the sum of its two halves.
        """
        origin, changes = self.origin, dict(operands, **options)
        count, keys = len(self._place[0]), origin.sizes["j"]
        for name in ("mask", "bias", "dropout_keep"):
            if name in origin.inputs:
                changes[name] = full(origin, name).reshape(count, 1, 1, keys)
        if "d_out" in origin.inputs:
            d_out = self.alone(origin.inputs["d_out"].astype(np.float64))
            changes["d_out"] = self.twice(d_out) if halves else d_out
        if "d_lse" in origin.inputs:
            changes["d_lse"] = origin.inputs["d_lse"].reshape(count, 1, 1)
        return plain(origin, self.numbers, **changes)

    def unhalved(self, x: Array, *, halves: bool) -> Array:
        """`p 1 1 x -> b n i x`, the halves added."""
        if halves:
            first, second = self.halves(x)
            x = first + second
        b, n, i = (self.origin.sizes[axis] for axis in "bni")
        return x.reshape(b, n, i, x.shape[-1])

    def gathered(self, d: Array, *, more: int = 0) -> Array:
        """`p 1 j x -> b h j x`: summed over the queries of a group."""
        b, h, g, i, j = (self.origin.sizes[axis] for axis in "bhgij")
        d = d.reshape(b, h, g * i, j, d.shape[-1])
        return summed(self.numbers, d, [2], more=more)[:, :, 0]

    def back(self, found: Results) -> dict[str, Array]:
        """The log-sum-exp, and the gradient of the bias."""
        b, n, i, j = (self.origin.sizes[axis] for axis in "bnij")
        results = {"lse": found["lse"].reshape(b, n, i)}
        if "dbias" in found and "bias" in self.origin.inputs:
            d = found["dbias"].reshape(b, n, i, j)
            results["dbias"] = summed_to_bias(self.origin, self.numbers, d)
        return results

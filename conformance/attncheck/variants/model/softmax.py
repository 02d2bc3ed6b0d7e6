"""Softmax and the weighted sum, a block of keys at a time."""

import numpy as np

from attncheck.variants.model.parts import Array, blocks, safe
from attncheck.variants.model.unlike import Unlike


class Softmax(Unlike):
    """The running maximum, and the sums that it rescales."""

    def tiles(self) -> list[slice]:
        """The blocks of keys."""
        return blocks(self.case.sizes["j"], self.tile)

    def attend(self, masked: Array, v: Array) -> tuple[Array, Array]:
        """Output and log-sum-exp, normalised after the product with the values."""
        rows = (*masked.shape[:3], 1)
        top, total = np.full(rows, -np.inf), np.zeros(rows)
        out, keep = np.zeros((*rows[:3], v.shape[-1])), self.keep()
        for tile in self.tiles():
            new = self.top(top, masked[..., tile])
            factor = self.rescale(top, new)
            p = self.exp(masked[..., tile] - safe(new))
            total = self.sum_up(self.total_rescaled(total, factor), p)
            part = self.stored_weights(p * keep[..., tile]) @ self.values(v, tile)
            out = self.add(self.out_rescaled(out, factor), part)
            top = new
        if "sinks" in self.case.inputs:
            new = self.top(top, self.sink())
            out = self.out_rescaled(out, self.rescale(top, new))
            total = self.total_rescaled(total, self.rescale(top, new))
            total, top = total + np.exp(self.sink() - new), new
        empty = top == -np.inf
        out = self.divided(out, total, empty)
        if "value_table" in self.case.inputs:
            out = out + self.value_term(masked, self.lse(top, total))
        return out, self.lse(top, total)[..., 0]

    def values(self, v: Array, tile: slice) -> Array:
        """The values of a block."""
        return v[..., tile, :]

    def top(self, top: Array, logits: Array) -> Array:
        """The running maximum."""
        return np.maximum(top, logits.max(axis=-1, keepdims=True))

    def exp(self, x: Array) -> Array:
        """The exponential of a block's logits, less the maximum."""
        return np.exp(x)

    def rescale(self, old: Array, new: Array) -> Array:
        """What a sum over earlier blocks is multiplied by when the maximum grows."""
        return np.exp(old - safe(new))

    def total_rescaled(self, total: Array, factor: Array) -> Array:
        """The row sum so far."""
        return total * factor

    def out_rescaled(self, out: Array, factor: Array) -> Array:
        """The output so far."""
        return out * factor

    def sum_up(self, total: Array, p: Array) -> Array:
        """The row sum."""
        return total + p.sum(axis=-1, keepdims=True)

    def add(self, total: Array, part: Array) -> Array:
        """A sum over blocks, in the accumulator."""
        return total + part

    def divided(self, out: Array, total: Array, empty: Array) -> Array:
        """The output of a row; 0 where it is empty."""
        return np.where(empty, 0.0, out / np.where(empty, 1.0, total))

    def lse(self, top: Array, total: Array) -> Array:
        """The log-sum-exp; −∞ where the row is empty."""
        return np.where(top == -np.inf, -np.inf, top + np.log(total))

    def weights(self, masked: Array, lse: Array) -> Array:
        """The weights, from the log-sum-exp; 0 where blocked."""
        p = np.exp(masked - safe(lse[..., None]))
        return np.where(masked == -np.inf, 0.0, p)

    def output(self, out: Array) -> Array:
        """The output before it is rounded."""
        return out

    def value_term(self, masked: Array, lse: Array) -> Array:
        """Σ p·b, `b n i e`."""
        p = self.weights(masked, lse[..., 0]) * self.keep()
        return np.einsum("bnij,bije->bnie", p, self.of_rows("value_table"))

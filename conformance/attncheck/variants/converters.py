"""Weights that were carried over wrongly from one library to another."""

from typing import ClassVar

import numpy as np

from attncheck.variants.model import Array, Model


class QueriesAndKeysSwapped(Model):
    """Queries are taken for keys and keys for queries, where their shapes allow."""

    swapped: ClassVar = {"q": "k", "w_q": "w_k", "b_q": "b_k"}

    def input(self, name: str) -> Array:
        pairs = self.swapped | {k: q for q, k in self.swapped.items()}
        own, other = super().input(name), pairs.get(name, name)
        if other not in self.case.inputs:
            return own
        theirs = super().input(other)
        return theirs if theirs.shape == own.shape else own


class OutputWeightTransposed(Model):
    """The weight of the output projection is applied transposed, where it, or else each
    head's part of it, is square."""

    def weight(self, kind: str) -> Array:
        weight = super().weight(kind)
        if kind != "o":
            return weight
        flat = weight.reshape(-1, weight.shape[-1])
        if flat.shape[0] == flat.shape[1]:
            return flat.T.reshape(weight.shape)
        is_square = weight.shape[1] == weight.shape[2]
        return weight.swapaxes(1, 2) if is_square else weight


class PackedByHead(Model):
    """Packed projections that lie side by side are read as if those of each key/value
    head were together: (h (g + 2) d) for (n d) + (h d) + (h e)."""

    def weight(self, kind: str) -> Array:
        own = super().weight(kind)
        if kind == "o":
            return own
        weights = [super(PackedByHead, self).weight(x) for x in "qkv"]
        if len({(len(w), w.shape[2]) for w in weights}) > 1:
            return own
        flat = [w.reshape(len(w), -1) for w in weights]
        return self._apart(np.concatenate(flat, axis=1), kind).reshape(own.shape)

    def shift(self, kind: str) -> Array | float:
        names = [f"b_{x}" for x in "qkv"]
        if kind == "o" or not set(names) <= self.case.inputs.keys():
            return super().shift(kind)
        if self.case.sizes["d"] != self.case.sizes["e"]:
            return super().shift(kind)
        flat = np.concatenate([self.input(name).ravel() for name in names])
        return self._apart(flat, kind).ravel()

    def _apart(self, packed: Array, kind: str) -> Array:
        h, g, d = self.size("hgd")
        heads = packed.reshape(*packed.shape[:-1], h, g + 2, d)
        part = {"q": slice(g), "k": slice(g, g + 1), "v": slice(g + 1, g + 2)}
        return heads[..., part[kind], :]


class PackedBiasesReordered(Model):
    """The packed biases of the projections are read in the order k, q, v."""

    def shift(self, kind: str) -> Array | float:
        names = [f"b_{x}" for x in "qkv"]
        if kind == "o" or not set(names) <= self.case.inputs.keys():
            return super().shift(kind)
        flat = np.concatenate([self.input(name).ravel() for name in names])
        keys, queries = (self.input(name).size for name in ("b_k", "b_q"))
        ends = {
            "k": (0, keys),
            "q": (keys, keys + queries),
            "v": (keys + queries, None),
        }
        return flat[slice(*ends[kind])]

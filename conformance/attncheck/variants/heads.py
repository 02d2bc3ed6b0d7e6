"""Heads, groups, projections and memory: what belongs to what."""

import numpy as np

from attncheck import layout
from attncheck.case import AXES
from attncheck.variants.model import Array, Model


class HeadsTiled(Model, reference="onnx/onnx#7274", convention=("heads", "gh")):
    """Query head n reads key/value head n mod h instead of n // g."""

    def repeated(self, array: Array) -> Array:
        return np.tile(array, (1, self.case.sizes["g"], 1, 1))

    def grouped(self, gradient: Array) -> Array:
        b, h, g = self.size("bhg")
        return gradient.reshape(b, g, h, *gradient.shape[2:]).sum(axis=1)

    def exists(self, seen: Array) -> Array:
        b, g, h = self.size("bgh")
        of_group = seen.reshape(b, g, h, *seen.shape[2:]).any(axis=(1, 3))
        return np.tile(of_group, (1, g, 1))[..., None]


class HeadsFirstOnly(Model):
    """All query heads read the first key/value head."""

    def repeated(self, array: Array) -> Array:
        return np.repeat(array[:, :1], self.case.sizes["n"], axis=1)

    def grouped(self, gradient: Array) -> Array:
        total = np.zeros((gradient.shape[0], self.case.sizes["h"], *gradient.shape[2:]))
        total[:, 0] = gradient.sum(axis=1)
        return total


class ValuesOfOtherHeads(Model):
    """Keys are shared by groups as they must, but values in the order n mod h."""

    def spread(self, name: str) -> Array:
        if name == "v":
            return np.tile(self.input("v"), (1, self.case.sizes["g"], 1, 1))
        return super().spread(name)

    def grouped_value(self, gradient: Array) -> Array:
        b, h, g = self.size("bhg")
        return gradient.reshape(b, g, h, *gradient.shape[2:]).sum(axis=1)


class HeadsByCount(Model):
    """Query head n reads key/value head n // h instead of n // g."""

    def _head(self) -> Array:
        h, n = self.size("hn")
        return np.minimum(np.arange(n) // h, h - 1)

    def repeated(self, array: Array) -> Array:
        return array[:, self._head()]

    def grouped(self, gradient: Array) -> Array:
        total = np.zeros((gradient.shape[0], self.case.sizes["h"], *gradient.shape[2:]))
        for n, h in enumerate(self._head()):
            total[:, h] += gradient[:, n]
        return total


class HeadsComeOutTiled(Model):
    """Query heads go in in the order (h g) and come out in the order (g h)."""

    def output(self, out: Array) -> Array:
        h, g = self.size("hg")
        apart = out.reshape(out.shape[0], h, g, *out.shape[2:])
        return apart.swapaxes(1, 2).reshape(out.shape)


class KeysOfFirstBatch(Model):
    """The keys of the first batch element are used for all."""

    def spread(self, name: str) -> Array:
        array = super().spread(name)
        return np.broadcast_to(array[:1], array.shape) if name == "k" else array

    def grouped_key(self, gradient: Array) -> Array:
        total = np.zeros_like(gradient)
        total[:1] = gradient.sum(axis=0)
        return super().grouped_key(total)


class KeysReshaped(Model):
    """Keys are reshaped to d by j instead of transposed."""

    def scores(self, q: Array, k: Array) -> Array:
        return q @ k.reshape(*k.shape[:2], k.shape[3], k.shape[2])


class ValuesShifted(Model):
    """The value of the key before is taken, and of the last key for the first."""

    def values(self, v: Array, tile: slice) -> Array:
        return np.roll(v, 1, axis=2)[..., tile, :]

    def d_weights(self, d_out: Array, v: Array) -> Array:
        return super().d_weights(d_out, np.roll(v, 1, axis=2))

    def d_value(self, p: Array, d_out: Array) -> Array:
        return np.roll(super().d_value(p, d_out), -1, axis=2)


class GroupGradientFirst(Model):
    """dk and dv of a group are those of its first query head."""

    def grouped(self, gradient: Array) -> Array:
        return gradient[:, :: self.case.sizes["g"]]


class GroupGradientLast(Model):
    """dk and dv of a group are those of its last query head."""

    def grouped(self, gradient: Array) -> Array:
        g = self.case.sizes["g"]
        return gradient[:, g - 1 :: g]


class GroupGradientMean(Model):
    """dk and dv are averaged over a group instead of summed."""

    def grouped(self, gradient: Array) -> Array:
        return super().grouped(gradient) / self.case.sizes["g"]


class GroupValueLosesHead(Model):
    """dv lacks the last query head of every group."""

    def grouped_value(self, gradient: Array) -> Array:
        g = self.case.sizes["g"]
        if g == 1:
            return super().grouped_value(gradient)
        return super().grouped_value(gradient) - gradient[:, g - 1 :: g]


class HeadsUnsplit(Model, reference="onnx/onnx#7118"):
    """Projections are reshaped to heads without exchanging heads and positions."""

    def split(self, flat: Array, heads: int, width: int) -> Array:
        return flat.reshape(flat.shape[0], heads, flat.shape[1], width)


class HeadsInterleaved(Model):
    """Heads are split as (d n) instead of (n d)."""

    def split(self, flat: Array, heads: int, width: int) -> Array:
        return flat.reshape(*flat.shape[:2], width, heads).transpose(0, 3, 1, 2)


class HeadsUnjoined(Model):
    """Heads are merged without exchanging heads and positions."""

    def joined(self, heads: Array) -> Array:
        return heads.reshape(*self.size("bi"), -1)


class HeadsJoinedInterleaved(Model):
    """Heads are merged as (e n) instead of (n e)."""

    def joined(self, heads: Array) -> Array:
        return heads.transpose(0, 2, 3, 1).reshape(*self.size("bi"), -1)


class ProjectionBiasMissing(Model):
    """b_q, b_k and b_v are not added."""

    def shift(self, kind: str) -> Array | float:
        return super().shift(kind) if kind == "o" else 0.0


class QueryBiasMissing(Model):
    """b_q is not added."""

    def shift(self, kind: str) -> Array | float:
        return 0.0 if kind == "q" else super().shift(kind)


class KeyBiasMissing(Model):
    """b_k is not added."""

    def shift(self, kind: str) -> Array | float:
        return 0.0 if kind == "k" else super().shift(kind)


class ValueBiasMissing(Model):
    """b_v is not added."""

    def shift(self, kind: str) -> Array | float:
        return 0.0 if kind == "v" else super().shift(kind)


class OutputBiasMissing(Model):
    """b_o is not added."""

    def shift(self, kind: str) -> Array | float:
        return 0.0 if kind == "o" else super().shift(kind)


class OutputBiasPerHead(Model):
    """b_o is added once for every head."""

    def shift(self, kind: str) -> Array | float:
        times = self.case.sizes["n"] if kind == "o" else 1
        return times * super().shift(kind)


class HeadsAveraged(Model):
    """The output projection averages over the heads instead of adding them up."""

    def joined(self, heads: Array) -> Array:
        return super().joined(heads) / self.case.sizes["n"]


class ContextIgnored(Model):
    """Keys and values come from x though there is a context, where its shape allows."""

    def context(self) -> Array:
        own, other = self.input("x"), super().context()
        return own if own.shape == other.shape else other


class WeightsTransposed(Model):
    """Every head's projection is applied transposed, where its weight is square."""

    def weight(self, kind: str) -> Array:
        weight = super().weight(kind)
        is_square = kind != "o" and weight.shape[0] == weight.shape[2]
        return weight.swapaxes(0, 2) if is_square else weight


class KeysAndValuesSwapped(Model):
    """Keys are taken for values and values for keys, where their shapes allow."""

    def _swaps(self) -> bool:
        return self.case.sizes["d"] == self.case.sizes["e"]

    def spread(self, name: str) -> Array:
        other = {"k": "v", "v": "k"}[name]
        return super().spread(other if self._swaps() else name)

    def project(self, x: Array, kind: str) -> Array:
        swapped = {"k": "v", "v": "k"}.get(kind, kind)
        return super().project(x, swapped if self._swaps() else kind)


class StridesIgnored(Model, reference="pytorch/pytorch#181133"):
    """Arrays that do not lie in memory in the order of their axes are read as if."""

    names = frozenset(AXES) - {"mask", "bias", "dropout_keep"}

    def read(self, name: str) -> Array:
        array = super().read(name)
        order = self.case.strides.get(name)
        if order is None or name not in self.names:
            return array
        laid = layout.laid_out(array, AXES[name], order)
        memory = np.sort([abs(stride) for stride in laid.strides if stride])
        axes = np.argsort([-abs(stride) for stride in laid.strides], kind="stable")
        flat = laid.transpose(axes).ravel() if len(memory) else laid.ravel()
        return np.resize(flat, array.shape)

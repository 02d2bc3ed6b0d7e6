"""Which keys are seen: polarity, alignment, window ends, broadcasting, empty rows."""

from typing import ClassVar

import ml_dtypes
import numpy as np

from attncheck.case import DTYPES
from attncheck.variants.model import Array, Model
from attncheck.variants.readings import Rebuilt

LOWEST = float(np.finfo(np.float32).min)


class MaskInverted(
    Model,
    reference="rasbt/LLMs-from-scratch#1061",
    convention=("mask_true", "block"),
):
    """True in the mask is read as blocked."""

    def full(self, name: str, default: float | bool) -> Array:
        array = super().full(name, default)
        inverted = name == "mask" and name in self.case.inputs
        return ~array if inverted else array


class MaskIgnored(Model, reference="pytorch/pytorch#178588"):
    """The mask is ignored."""

    def seen(self) -> Array:
        return np.full(self.size("bnij"), True)


class MaskAdded(
    Model,
    reference="huggingface/transformers#41443",
    convention=("mask_float", "add"),
):
    """A boolean mask is added to the logits as 0 and 1."""

    def masked(self, logits: Array, seen: Array) -> Array:
        return logits + seen if "mask" in self.case.inputs else logits

    def exists(self, seen: Array) -> Array:
        return super().exists(np.full_like(seen, True))

    def d_lse(self) -> Array:
        return self.input("d_lse")[..., None]


class _Filled(Model):
    """Blocked logits are a number, and no gradient passes there."""

    fill: ClassVar[float] = 0.0

    def masked(self, logits: Array, seen: Array) -> Array:
        return np.where(seen, logits, self.fill)

    def weights(self, masked: Array, lse: Array) -> Array:
        # Of a row of −3·10³⁸ the log-sum-exp does not hold how many they are.
        p = np.exp(masked - masked.max(axis=-1, keepdims=True, initial=-np.inf))
        return p / p.sum(axis=-1, keepdims=True)

    def d_logits(self, p: Array, dp: Array, delta: Array) -> Array:
        return np.where(self.seen(), super().d_logits(p, dp, delta), 0.0)


class MaskMultiplied(_Filled):
    """Blocked logits are 0 instead of −∞."""

    def d_lse(self) -> Array:
        return self.input("d_lse")[..., None]


class MaskTransposed(Model):
    """The mask is applied transposed, keys for queries, where it is square."""

    def read(self, name: str) -> Array:
        array = super().read(name)
        if name == "mask" and array.shape[2] == array.shape[3]:
            return array.swapaxes(2, 3)
        return array


class KeyMaskOnQueries(Model):
    """A mask with one axis of keys or queries is applied along the other one."""

    def read(self, name: str) -> Array:
        array = super().read(name)
        i, j = self.size("ij")
        if name == "mask" and i == j and 1 in array.shape[2:]:
            return array.swapaxes(2, 3)
        return array


class MaskOfFirstBatch(Model):
    """The mask of the first batch element is used for all."""

    def read(self, name: str) -> Array:
        array = super().read(name)
        return array[:1] if name == "mask" else array


class MaskOfFirstHead(Model):
    """The mask of the first head is used for all."""

    def read(self, name: str) -> Array:
        array = super().read(name)
        return array[:, :1] if name == "mask" else array


class MaskBatchAsHeads(Model, reference="onnx/onnx#8108"):
    """The batch axis of the mask is taken for that of the heads, and back."""

    def read(self, name: str) -> Array:
        array = super().read(name)
        b, n = self.size("bn")
        return array.swapaxes(0, 1) if name == "mask" and b == n else array


class MaskHeadsTiled(Model):
    """The heads of the mask are in the order (g h), those of q in (h g)."""

    def read(self, name: str) -> Array:
        array = super().read(name)
        if name != "mask" or array.shape[1] == 1:
            return array
        b, _, i, j = array.shape
        apart = array.reshape(b, *self.size("gh"), i, j)
        return apart.swapaxes(1, 2).reshape(array.shape)


class MaskOfOneGroupHead(Model):
    """The mask of the first head of a group is used for the whole group."""

    def seen(self) -> Array:
        first = super().seen()[:, :: self.case.sizes["g"]]
        return np.repeat(first, self.case.sizes["g"], axis=1)


class MaskOfLastQuery(Model):
    """The mask of the last query is used for all."""

    def read(self, name: str) -> Array:
        array = super().read(name)
        return array[:, :, -1:] if name == "mask" else array


class MaskOnQueriesOnly(Model):
    """The mask removes queries that see nothing, and blocks no key for the others."""

    def seen(self) -> Array:
        seen = super().seen()
        return np.broadcast_to(seen.any(axis=-1, keepdims=True), seen.shape)


class AlwaysCausal(Model):
    """A causal mask is applied where none was asked for."""

    def seen(self) -> Array:
        i, j = self.size("ij")
        return super().seen() & (np.arange(j) <= np.arange(i)[:, None])


class MaskAfterSoftmax(Model):
    """Weights are blocked after the softmax, and no longer add up to 1."""

    def masked(self, logits: Array, seen: Array) -> Array:
        return logits

    def exists(self, seen: Array) -> Array:
        return super().exists(np.full_like(seen, True))

    def keep(self) -> Array:
        return super().keep() * self.seen()


class MaskBeforeSoftcap(Model, reference="onnx/onnx#7865"):
    """The softcap comes after the mask, and blocked logits become −c."""

    def masked(self, logits: Array, seen: Array) -> Array:
        if self.case.softcap is None:
            return super().masked(logits, seen)
        return np.where(seen, logits, -self.case.softcap)


class MaskBeforeScale(
    Model,
    reference="NVIDIA/cudnn-frontend#804",
    convention=("scale_zero", "nan"),
):
    """The mask comes before the scale: −∞ · 0 is NaN, −∞ · (−1) is +∞."""

    def masked(self, logits: Array, seen: Array) -> Array:
        return np.where(seen, logits, -np.inf * self.scale())


class FillTenThousand(_Filled, convention=("fill", -1e4)):
    """Blocked logits are −10⁴ instead of −∞."""

    fill = -1e4


class AddTenThousand(Model):
    """−10⁴ is added to blocked logits instead of −∞."""

    def masked(self, logits: Array, seen: Array) -> Array:
        return np.where(seen, logits, logits - 1e4)


class FillLowest(
    _Filled,
    reference="pytorch/pytorch#110213",
    convention=("fill", LOWEST),
):
    """Blocked logits are the lowest finite number: an empty row is the mean of all
    values, and its log-sum-exp is finite."""

    fill = LOWEST


class EmptyRowMean(
    Model,
    reference="microsoft/onnxruntime#28904",
    convention=("empty_row", "mean"),
):
    """A query without keys gets the mean of all values."""

    def shown_value(self, v: Array, live: Array) -> Array:
        self._mean = v.sum(axis=2, keepdims=True) / max(v.shape[2], 1)
        return super().shown_value(v, live)

    def divided(self, out: Array, total: Array, empty: Array) -> Array:
        return np.where(empty, self._mean, super().divided(out, total, empty))


class EmptyRowNan(
    Model,
    reference="pytorch/pytorch#103963",
    convention=("empty_row", "nan"),
):
    """A query without keys gets NaN: 0/0."""

    def divided(self, out: Array, total: Array, empty: Array) -> Array:
        return np.where(empty, np.nan, super().divided(out, total, empty))


class EmptyRowLseZero(Model, convention=("lse_empty", 0.0)):
    """The log-sum-exp of a query without keys is 0 instead of −∞."""

    def forward(self, q: Array, k: Array, v: Array) -> dict[str, Array]:
        found = super().forward(q, k, v)
        return found | {"lse": np.where(found["lse"] == -np.inf, 0.0, found["lse"])}

    def backward(self, q, k, v, forward):
        lse = super().forward(q, k, v)["lse"]
        return super().backward(q, k, v, forward | {"lse": lse})


class EmptyRowLseLowest(Model, convention=("lse_empty", LOWEST)):
    """The log-sum-exp of a query without keys is the lowest number, not −∞."""

    def forward(self, q: Array, k: Array, v: Array) -> dict[str, Array]:
        found = super().forward(q, k, v)
        return found | {"lse": np.maximum(found["lse"], LOWEST)}

    def backward(self, q, k, v, forward):
        lse = super().forward(q, k, v)["lse"]
        return super().backward(q, k, v, forward | {"lse": lse})


class BlockedKeyLeaks(
    Model,
    reference="pytorch/pytorch#101967",
    convention=("nan_blocked_k", "leaks"),
):
    """NaN in a key that nobody sees reaches the results."""

    def shown_key(self, k: Array, live: Array) -> Array:
        return k


class BlockedValueLeaks(
    Model,
    reference="Dao-AILab/flash-attention#1745",
    convention=("nan_blocked_v", "leaks"),
):
    """NaN in a value that nobody sees reaches the results: 0 · NaN."""

    def shown_value(self, v: Array, live: Array) -> Array:
        return v


class NanHidden(
    Model,
    reference="pytorch/pytorch#141128",
    convention=("nan_visible", "hidden"),
):
    """A row of NaN becomes 0."""

    def output(self, out: Array) -> Array:
        return np.nan_to_num(out, nan=0.0, posinf=np.inf, neginf=-np.inf)


class NanToNumber(Model):
    """NaN becomes 0, and infinity the largest number."""

    def output(self, out: Array) -> Array:
        top = float(ml_dtypes.finfo(DTYPES[self.case.dtype]).max)
        return np.nan_to_num(out, nan=0.0, posinf=top, neginf=-top)


class CausalUpperLeft(Rebuilt, reference="pytorch/pytorch#103082"):
    """The causal mask is aligned upper-left, whatever the offset."""

    def offset(self, offset: int) -> int:
        return 0


class CausalLowerRight(
    Rebuilt,
    reference="ml-explore/mlx#2835",
    convention=("causal", "lower-right"),
):
    """The causal mask is aligned lower-right, whatever the offset."""

    def offset(self, offset: int) -> int:
        return self.case.sizes["j"] - self.case.sizes["i"]


class CausalStrict(Rebuilt):
    """The causal mask excludes the diagonal."""

    def offset(self, offset: int) -> int:
        return offset - 1


class CausalAhead(Rebuilt):
    """The causal mask shows one key too many."""

    def offset(self, offset: int) -> int:
        return offset + 1


class CausalIgnored(Rebuilt, reference="pytorch/pytorch#99282"):
    """The causal mask is ignored; a window is not."""

    def offset(self, offset: int) -> int:
        return self.case.sizes["j"] + self.case.sizes["i"]


class WindowLeftExclusive(
    Rebuilt,
    reference="huggingface/transformers#29623",
    convention=("window", "exclusive"),
):
    """The left end of a window is exclusive."""

    def ends(self, left, right):
        return (None if left is None else left - 1), right


class WindowRightExclusive(Rebuilt):
    """The right end of a window is exclusive."""

    def ends(self, left, right):
        return left, (None if right is None else right - 1)


class WindowLeftTooFar(Rebuilt, reference="huggingface/transformers#39408"):
    """The left end of a window is one key too far."""

    def ends(self, left, right):
        return (None if left is None else left + 1), right


class WindowEndsSwapped(Rebuilt):
    """The ends of a window are exchanged."""

    def ends(self, left, right):
        return right, left


class WindowIgnored(Rebuilt, reference="jax-ml/jax#32300"):
    """The window is ignored; a causal mask is not."""

    def ends(self, left, right):
        return None, None


class WindowSymmetric(Rebuilt):
    """The right end of a window is as far as its left."""

    def ends(self, left, right):
        return left, left


class WindowRightIgnored(Rebuilt):
    """The right end of a window is ignored."""

    def ends(self, left, right):
        return left, None


class WindowLeftIgnored(Rebuilt):
    """The left end of a window is ignored."""

    def ends(self, left, right):
        return None, right


class WindowOpenIsZero(Rebuilt):
    """An end of a window that is open stops at the query."""

    def ends(self, left, right):
        return left or 0, right or 0

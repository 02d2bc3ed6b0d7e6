"""Right formulas in too little precision."""

import ml_dtypes
import numpy as np

from attncheck.case import DTYPES
from attncheck.variants.model import Array, Model, narrow_sum, toward_zero
from attncheck.variants.readings import Tiled

_NODES = np.arange(4) / 3
CUBIC = np.polyfit(_NODES, 2.0**_NODES, 3)
"""The cubic through 2^x at 0, ⅓, ⅔ and 1."""


class ScoresRounded(Model, rounds=True):
    """Scores are rounded to 16 bits before the softmax."""

    def scores(self, q: Array, k: Array) -> Array:
        return self.narrow(super().scores(q, k))


class LogitsRounded(Model, rounds=True):
    """Logits are rounded to 16 bits before the softmax."""

    def logits(self, scores: Array) -> Array:
        return self.narrow(super().logits(scores))


class ScoresSummedIn16Bits(Model, rounds=True):
    """The products that make a score are summed in 16 bits."""

    def scores(self, q: Array, k: Array) -> Array:
        return narrow_sum(q[..., :, None, :] * k[..., None, :, :], self.storage)


class OperandsIn16Bits(Model, rounds=True):
    """Operands of products are rounded to bfloat16, whatever the storage type."""

    def scores(self, q: Array, k: Array) -> Array:
        return super().scores(self.narrow(q), self.narrow(k))

    def values(self, v: Array, tile: slice) -> Array:
        return self.narrow(super().values(v, tile))

    def stored_weights(self, p: Array) -> Array:
        return self.narrow(p)


class ScoresOverflow(Model, rounds=True):
    """Scores are kept in float16 before they are scaled, where they overflow."""

    def scores(self, q: Array, k: Array) -> Array:
        return super().scores(q, k).astype(np.float16).astype(np.float64)


class QueryScaledInStorage(Model, rounds=True):
    """The query is multiplied by the scale and rounded to 16 bits."""

    def scores(self, q: Array, k: Array) -> Array:
        scale = self.scale() or 1.0
        return super().scores(self.narrow(q * scale) / scale, k)


class ExpIn16Bits(Model, rounds=True):
    """The softmax is computed in 16 bits, its row sum too."""

    def exp(self, x: Array) -> Array:
        return self.narrow(super().exp(self.narrow(x)))

    def sum_up(self, total: Array, p: Array) -> Array:
        return self.narrow(super().sum_up(total, p))


class ExpCoarse(Model, rounds=True):
    """exp is a cubic polynomial, good to two parts in ten thousand."""

    def exp(self, x: Array) -> Array:
        whole = np.floor(x * np.log2(np.e))
        rest = np.where(x == -np.inf, 0.0, x * np.log2(np.e) - whole)
        power = np.clip(np.nan_to_num(whole), -1100, 1100).astype(np.int32)
        return np.where(np.isnan(x), x, np.ldexp(np.polyval(CUBIC, rest), power))


class SumIn16Bits(Model, rounds=True):
    """The row sum is kept in 16 bits."""

    def sum_up(self, total: Array, p: Array) -> Array:
        return narrow_sum(np.concatenate([total, p], axis=-1), self.storage)[..., None]


class OutputSummedIn16Bits(Tiled, rounds=True):
    """The output is accumulated in 16 bits."""

    other_tiles = (1, 32, 64, 128)

    def add(self, total: Array, part: Array) -> Array:
        return self.narrow(super().add(total, part))


class OutputCutOff(Model, rounds=True):
    """The output is cut off to storage instead of rounded."""

    def output(self, out: Array) -> Array:
        return toward_zero(out, DTYPES[self.case.dtype])


class WeightsCutOff(Model, rounds=True):
    """Weights are cut off to 16 bits, and the row sum is theirs."""

    def exp(self, x: Array) -> Array:
        return toward_zero(super().exp(x), self.storage)


class WeightsIn8Bits(Model, rounds=True):
    """Weights are rounded to 8 bits (e4m3)."""

    def stored_weights(self, p: Array) -> Array:
        return p.astype(ml_dtypes.float8_e4m3fn).astype(np.float64)


class WeightsNormalisedIn8Bits(WeightsIn8Bits, rounds=True):
    """Weights are divided by the row sum, and then rounded to 8 bits (e4m3)."""

    def attend(self, masked: Array, v: Array) -> tuple[Array, Array]:
        lse = super().attend(masked, v)[1]
        weights = self.weights(masked, lse) * self.keep()
        return self.stored_weights(weights) @ v, lse


class LseIn16Bits(Model, rounds=True, convention=("lse_dtype", "input")):
    """The log-sum-exp is rounded to 16 bits."""

    def results(self) -> dict[str, Array]:
        found = super().results()
        return found | {"lse": self.narrow(found["lse"])}


class LseSavedIn16Bits(Model, rounds=True):
    """The log-sum-exp is rounded to 16 bits for the backward pass."""

    def weights_again(self, masked: Array, lse: Array) -> Array:
        return super().weights_again(masked, self.narrow(lse))


class DeltaIn16Bits(Model, rounds=True):
    """D is rounded to 16 bits."""

    def delta(self, d_out: Array, out: Array, p: Array, dp: Array) -> Array:
        return self.narrow(super().delta(d_out, out, p, dp))


class WeightGradientIn16Bits(Model, rounds=True):
    """The gradient of the weights is rounded to 16 bits."""

    def d_weights(self, d_out: Array, v: Array) -> Array:
        return self.narrow(super().d_weights(d_out, v))


class QueryGradientSummedIn16Bits(Tiled, rounds=True):
    """dq is accumulated in 16 bits over the blocks of keys."""

    def add_query(self, total: Array, part: Array) -> Array:
        return self.narrow(super().add_query(total, part))


class Float64InFloat32(Model, rounds=True, convention=("float64", "float32")):
    """float64 is computed in float32."""

    def read(self, name: str) -> Array:
        array = super().read(name)
        return array if array.dtype == bool else self.single(array)

    def single(self, x: Array) -> Array:
        """Rounded to float32, where float64 is asked for."""
        return x.astype(np.float32) if self.case.dtype == "F64" else x

    def scores(self, q: Array, k: Array) -> Array:
        return super().scores(self.single(q), self.single(k))

    def logits(self, scores: Array) -> Array:
        return self.single(super().logits(scores))

    def exp(self, x: Array) -> Array:
        return super().exp(self.single(x))

    def sum_up(self, total: Array, p: Array) -> Array:
        return self.single(super().sum_up(total, p))

    def stored_weights(self, p: Array) -> Array:
        return self.single(super().stored_weights(p))

    def values(self, v: Array, tile: slice) -> Array:
        return self.single(super().values(v, tile))

    def output(self, out: Array) -> Array:
        return self.single(out)

    def lse(self, top: Array, total: Array) -> Array:
        return self.single(super().lse(top, total))

    def weights(self, masked: Array, lse: Array) -> Array:
        return self.single(super().weights(masked, lse))

    def d_weights(self, d_out: Array, v: Array) -> Array:
        return super().d_weights(self.single(d_out), self.single(v))

    def d_logits(self, p: Array, dp: Array, delta: Array) -> Array:
        return self.single(super().d_logits(p, dp, delta))

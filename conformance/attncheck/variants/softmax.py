"""The softmax, its blocks of keys, the log-sum-exp, and dropout."""

import numpy as np

from attncheck.variants.model import TILE, Array, Model


class SoftmaxTwice(Model):
    """The softmax is applied twice."""

    def attend(self, masked: Array, v: Array) -> tuple[Array, Array]:
        lse = super().attend(masked, v)[1]
        again = self.masked(self.weights(masked, lse), self.seen())
        return super().attend(again, v)[0], lse

    def weights(self, masked: Array, lse: Array) -> Array:
        self._once = super().weights(masked, lse)
        p = np.where(masked == -np.inf, 0.0, np.exp(self._once))
        total = p.sum(axis=-1, keepdims=True)
        return p / np.where(total == 0, 1, total)

    def d_logits(self, p: Array, dp: Array, delta: Array) -> Array:
        between = p * (dp - delta)
        mean = (self._once * between).sum(axis=-1, keepdims=True)
        return self._once * (between - mean)


class SoftmaxOverQueries(Model):
    """The softmax is taken over the queries instead of the keys."""

    def attend(self, masked: Array, v: Array) -> tuple[Array, Array]:
        p = _softmax(masked, axis=2)
        return (p * self.keep()) @ v, super().attend(masked, v)[1]

    def weights(self, masked: Array, lse: Array) -> Array:
        return _softmax(masked, axis=2)

    def delta(self, d_out: Array, out: Array, p: Array, dp: Array) -> Array:
        return (p * dp).sum(axis=2, keepdims=True)


class SoftmaxOverHeads(Model):
    """The softmax is taken over the heads instead of the keys."""

    def attend(self, masked: Array, v: Array) -> tuple[Array, Array]:
        p = _softmax(masked, axis=1)
        return (p * self.keep()) @ v, super().attend(masked, v)[1]

    def weights(self, masked: Array, lse: Array) -> Array:
        return _softmax(masked, axis=1)

    def delta(self, d_out: Array, out: Array, p: Array, dp: Array) -> Array:
        return (p * dp).sum(axis=1, keepdims=True)


class SoftmaxPlusOne(Model, convention=("sinks", True)):
    """1 is added to the row sum, as for a sink with logit 0."""

    def attend(self, masked: Array, v: Array) -> tuple[Array, Array]:
        out, lse = super().attend(masked, v)
        more = np.logaddexp(lse, 0.0)
        return out * np.exp(lse - more)[..., None], more


class SoftmaxUnnormalised(Model):
    """The output is not divided by the row sum."""

    def divided(self, out: Array, total: Array, empty: Array) -> Array:
        return np.where(empty, 0.0, out)


class SoftmaxBaseTwo(Model):
    """The exponential and the logarithm have base 2, and log₂e is nowhere."""

    def results(self) -> dict[str, Array]:
        found = super().results()
        return found | {"lse": found["lse"] / np.log(2)}

    def masked(self, logits: Array, seen: Array) -> Array:
        return super().masked(logits * np.log(2), seen)

    def query_scale(self) -> float:
        return self.scale() * np.log(2)

    def key_scale(self) -> float:
        return self.scale() * np.log(2)


class SoftmaxUnshifted(Model):
    """The maximum is not subtracted: exp overflows, or all of a row underflows."""

    def top(self, top: Array, logits: Array) -> Array:
        return np.zeros_like(top)

    def exp(self, x: Array) -> Array:
        return np.exp(x).astype(self.case.accumulation).astype(np.float64)

    def attend(self, masked: Array, v: Array) -> tuple[Array, Array]:
        self._empty = (masked == -np.inf).all(axis=-1, keepdims=True)
        return super().attend(masked, v)

    def divided(self, out: Array, total: Array, empty: Array) -> Array:
        return np.where(self._empty, 0.0, out / total)

    def lse(self, top: Array, total: Array) -> Array:
        return np.log(total)


# ----------------------------------------------------------------------------- blocks


class MaximumOfBlocked(Model):
    """The maximum that is subtracted is that of blocked keys too: rows underflow."""

    def masked(self, logits: Array, seen: Array) -> Array:
        self._over = logits.max(axis=-1, keepdims=True, initial=-np.inf)
        return super().masked(logits, seen)

    def top(self, top: Array, logits: Array) -> Array:
        return self._over

    def exp(self, x: Array) -> Array:
        return np.exp(x).astype(self.case.accumulation).astype(np.float64)

    def divided(self, out: Array, total: Array, empty: Array) -> Array:
        return super().divided(out, total, total == 0)


class MaximumFromZero(Model):
    """The running maximum starts at 0: rows of very negative logits underflow."""

    def top(self, top: Array, logits: Array) -> Array:
        return np.maximum(super().top(top, logits), 0.0)

    def exp(self, x: Array) -> Array:
        return np.exp(x).astype(self.case.accumulation).astype(np.float64)


class OutputNotRescaled(Model):
    """The output so far is not rescaled when the maximum grows."""

    def out_rescaled(self, out: Array, factor: Array) -> Array:
        return out


class SumNotRescaled(Model):
    """The row sum so far is not rescaled when the maximum grows."""

    def total_rescaled(self, total: Array, factor: Array) -> Array:
        return total


class RescaledInverted(Model):
    """The factor of a rescale is exp(new − old) instead of exp(old − new)."""

    def rescale(self, old: Array, new: Array) -> Array:
        factor = super().rescale(old, new)
        return np.where(factor == 0, 0.0, 1 / np.where(factor == 0, 1.0, factor))


class RescaledInBaseTwo(Model):
    """The factor of a rescale is 2^x of a natural logarithm."""

    def rescale(self, old: Array, new: Array) -> Array:
        return super().rescale(old, new) ** np.log(2)


class LastBlockDropped(Model):
    """Keys after the last whole block are left out."""

    def tiles(self) -> list[slice]:
        tiles = super().tiles()
        whole = [tile for tile in tiles if tile.stop - tile.start == TILE]
        return whole or tiles


class LastBlockNotSummed(Model):
    """The last block is missing in the row sum."""

    def sum_up(self, total: Array, p: Array) -> Array:
        is_last = p.shape[-1] < TILE < self.case.sizes["j"]
        return total if is_last else super().sum_up(total, p)


class LastBlockShifted(Model):
    """The values of the last, partial block are those of one key earlier."""

    def values(self, v: Array, tile: slice) -> Array:
        if tile.start and tile.stop - tile.start < TILE:
            return v[..., tile.start - 1 : tile.stop - 1, :]
        return super().values(v, tile)


class PaddingCounted(Model, reference="pytorch/pytorch#196678"):
    """The zeros that fill up the last block count as keys with score 0."""

    def sum_up(self, total: Array, p: Array) -> Array:
        missing = TILE - p.shape[-1]
        return super().sum_up(total, p) + missing * np.exp(-self._top)

    def top(self, top: Array, logits: Array) -> Array:
        self._top = super().top(top, logits)
        if logits.shape[-1] < TILE:
            self._top = np.maximum(self._top, 0.0)
        return self._top


class SplitsAveraged(Model):
    """Two halves of the keys are averaged instead of weighted by their sums."""

    def attend(self, masked: Array, v: Array) -> tuple[Array, Array]:
        is_first = np.arange(masked.shape[-1]) < masked.shape[-1] // 2
        first, _ = super().attend(np.where(is_first, masked, -np.inf), v)
        last, _ = super().attend(np.where(is_first, -np.inf, masked), v)
        return (first + last) / 2, super().attend(masked, v)[1]


# ------------------------------------------------------------------------ log-sum-exp


class LseOfLastHalf(Model):
    """The log-sum-exp is that of the last half of the keys."""

    def results(self) -> dict[str, Array]:
        found = super().results()
        last = found["masked"][..., found["masked"].shape[-1] // 2 :]
        return found | {"lse": np.logaddexp.reduce(last, axis=-1, initial=-np.inf)}


class LseInBothBases(Model):
    """The log-sum-exp adds a maximum in base 2 to a natural logarithm."""

    def results(self) -> dict[str, Array]:
        found = super().results()
        top = found["masked"].max(axis=-1, initial=-np.inf)
        shifted = found["lse"] - np.where(top == -np.inf, 0.0, top)
        return found | {"lse": shifted + np.where(top == -np.inf, 0.0, top / np.log(2))}


class LseBaseTwo(
    Model, reference="flashinfer-ai/flashinfer#2113", convention=("lse", 2)
):
    """The log-sum-exp is a logarithm of base 2."""

    def results(self) -> dict[str, Array]:
        found = super().results()
        return found | {"lse": found["lse"] / np.log(2)}


class LseWithoutMaximum(Model):
    """The log-sum-exp lacks the maximum that was subtracted."""

    def results(self) -> dict[str, Array]:
        found = super().results()
        top = found["masked"].max(axis=-1, initial=-np.inf)
        return found | {"lse": found["lse"] - np.where(top == -np.inf, 0.0, top)}


class LseIsSum(Model):
    """The log-sum-exp is the row sum, without the logarithm and the maximum."""

    def results(self) -> dict[str, Array]:
        found = super().results()
        top = found["masked"].max(axis=-1, initial=-np.inf)
        shifted = found["lse"] - np.where(top == -np.inf, 0.0, top)
        return found | {"lse": np.exp(shifted)}


class LseIsMaximum(Model):
    """The log-sum-exp is the maximum alone."""

    def results(self) -> dict[str, Array]:
        found = super().results()
        return found | {"lse": found["masked"].max(axis=-1, initial=-np.inf)}


class LseOfRawScores(Model):
    """The log-sum-exp is that of scores without the scale."""

    def results(self) -> dict[str, Array]:
        found = super().results()
        raw = np.where(self.seen(), found["scores"], -np.inf)
        return found | {"lse": np.logaddexp.reduce(raw, axis=-1, initial=-np.inf)}


class LseNegated(Model):
    """The log-sum-exp has the wrong sign."""

    def results(self) -> dict[str, Array]:
        found = super().results()
        return found | {"lse": -found["lse"]}


class LseAfterDropout(Model):
    """The log-sum-exp is that of the weights that dropout keeps."""

    def results(self) -> dict[str, Array]:
        found = super().results()
        kept = np.where(self.keep() > 0, found["masked"], -np.inf)
        return found | {"lse": np.logaddexp.reduce(kept, axis=-1, initial=-np.inf)}


# ---------------------------------------------------------------------------- dropout


class DropoutIgnored(Model):
    """Nothing is dropped."""

    def kept(self, keep: Array, rate: float) -> Array:
        return np.ones(keep.shape)


class DropoutNotRescaled(Model, convention=("dropout_rescale", False)):
    """Kept weights are not divided by 1 − rate."""

    def kept(self, keep: Array, rate: float) -> Array:
        return keep.astype(np.float64)


class DropoutRescaledByRate(Model):
    """Kept weights are divided by the rate instead of 1 − rate."""

    def kept(self, keep: Array, rate: float) -> Array:
        return keep / (rate or 1.0)


class DropoutMultiplied(Model):
    """Kept weights are multiplied by 1 − rate instead of divided."""

    def kept(self, keep: Array, rate: float) -> Array:
        return keep * (1 - rate)


class DropoutInverted(Model):
    """What dropout keeps is dropped, and the rest is kept."""

    def kept(self, keep: Array, rate: float) -> Array:
        return super().kept(~keep, rate)


class DropoutBeforeSoftmax(Model):
    """Dropped keys are blocked before the softmax, so that the rest adds up to 1."""

    def masked(self, logits: Array, seen: Array) -> Array:
        kept = super().keep() > 0
        return super().masked(logits, seen & kept)

    def keep(self) -> Array:
        return np.ones(self.size("bnij"))


def _softmax(x: Array, axis: int) -> Array:
    """The softmax along an axis; 0 where there is nothing."""
    top = x.max(axis=axis, keepdims=True, initial=-np.inf)
    p = np.exp(x - np.where(top == -np.inf, 0.0, top))
    total = p.sum(axis=axis, keepdims=True)
    return p / np.where(total == 0, 1.0, total)

"""The softmax, its blocks of keys, the log-sum-exp, and dropout."""

import numpy as np

from attncheck.variants.model import Array, Model
from attncheck.variants.readings import Split, Tiled


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


class SoftmaxPlusOneInOutput(Model):
    """1 is added to the row sum that divides the output, and not to the log-sum-exp."""

    def attend(self, masked: Array, v: Array) -> tuple[Array, Array]:
        out, lse = super().attend(masked, v)
        return out * np.exp(lse - np.logaddexp(lse, 0.0))[..., None], lse

    def weights_again(self, masked: Array, lse: Array) -> Array:
        self._alone = super().weights_again(masked, lse)
        return super().weights_again(masked, np.logaddexp(lse, 0.0))

    def d_logits(self, p: Array, dp: Array, delta: Array) -> Array:
        d_lse = self.d_lse()
        return p * (dp - delta - d_lse) + self._alone * d_lse


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

    def d_lse(self) -> Array:
        return super().d_lse() / np.log(2)

    def d_logits(self, p: Array, dp: Array, delta: Array) -> Array:
        return super().d_logits(p, dp, delta) * np.log(2)


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
    """The running maximum starts at 0: rows of very negative logits underflow, and are
    taken for empty."""

    def top(self, top: Array, logits: Array) -> Array:
        return np.maximum(super().top(top, logits), 0.0)

    def exp(self, x: Array) -> Array:
        return np.exp(x).astype(self.case.accumulation).astype(np.float64)

    def divided(self, out: Array, total: Array, empty: Array) -> Array:
        return super().divided(out, total, total == 0)


class OutputNotRescaled(Tiled):
    """The output so far is not rescaled when the maximum grows."""

    def out_rescaled(self, out: Array, factor: Array) -> Array:
        return out


class SumNotRescaled(Tiled):
    """The row sum so far is not rescaled when the maximum grows."""

    def total_rescaled(self, total: Array, factor: Array) -> Array:
        return total


class RescaledInverted(Tiled):
    """The factor of a rescale is exp(new − old) instead of exp(old − new)."""

    def rescale(self, old: Array, new: Array) -> Array:
        grown = np.exp(np.where(old == -np.inf, 0.0, new - old))
        wide = grown.astype(self.case.accumulation).astype(np.float64)  # may overflow
        return np.where(old == -np.inf, 0.0, wide)


class RescaledInBaseTwo(Tiled):
    """The factor of a rescale is 2^x of a natural logarithm."""

    def rescale(self, old: Array, new: Array) -> Array:
        return super().rescale(old, new) ** np.log(2)


class LastBlockDropped(Tiled):
    """Keys after the last whole block are left out."""

    def tiles(self) -> list[slice]:
        tiles = super().tiles()
        whole = [tile for tile in tiles if tile.stop - tile.start == self.tile]
        return whole or tiles


class LastBlockNotSummed(Tiled):
    """The last block is missing in the row sum."""

    def sum_up(self, total: Array, p: Array) -> Array:
        is_last = p.shape[-1] < self.tile < self.case.sizes["j"]
        return total if is_last else super().sum_up(total, p)


class LastBlockShifted(Tiled):
    """The values of the last, partial block are those of one key earlier."""

    def values(self, v: Array, tile: slice) -> Array:
        if tile.start and tile.stop - tile.start < self.tile:
            return v[..., tile.start - 1 : tile.stop - 1, :]
        return super().values(v, tile)


class PaddingCounted(Tiled, reference="pytorch/pytorch#196678"):
    """The zeros that fill up the last block count as keys with score 0."""

    def sum_up(self, total: Array, p: Array) -> Array:
        missing = self.tile - p.shape[-1]
        return super().sum_up(total, p) + missing * np.exp(-self._top)

    def top(self, top: Array, logits: Array) -> Array:
        self._top = super().top(top, logits)
        if logits.shape[-1] < self.tile:
            self._top = np.maximum(self._top, 0.0)
        return self._top


class SplitsAveraged(Split):
    """Parts of the keys are averaged instead of weighted by their sums."""

    def attend(self, masked: Array, v: Array) -> tuple[Array, Array]:
        outputs, counted, part = [], [], self.part_of_key()
        for number in np.unique(part):
            alone = np.where(part == number, masked, -np.inf)
            output, lse = super().attend(alone, v)
            outputs.append(output)
            counted.append((lse > -np.inf)[..., None] | self.counts_empty)
        total = np.maximum(np.sum(counted, axis=0), 1)
        return np.sum(outputs, axis=0) / total, super().attend(masked, v)[1]


# ------------------------------------------------------------------------ log-sum-exp


class LseOfLastPart(Split):
    """The log-sum-exp is that of the last part of the keys."""

    def results(self) -> dict[str, Array]:
        found, part = super().results(), self.part_of_key()
        last = found["masked"][..., part == part.max(initial=0)]
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


class DropoutBeforeSoftmaxRescaled(DropoutBeforeSoftmax):
    """Dropped keys are blocked before the softmax, and the rest is still divided by
    1 − rate."""

    def keep(self) -> Array:
        return self.kept(super().keep(), self.case.dropout_rate)


def _softmax(x: Array, axis: int) -> Array:
    """The softmax along an axis; 0 where there is nothing."""
    top = x.max(axis=axis, keepdims=True, initial=-np.inf)
    p = np.exp(x - np.where(top == -np.inf, 0.0, top))
    total = p.sum(axis=axis, keepdims=True)
    return p / np.where(total == 0, 1.0, total)

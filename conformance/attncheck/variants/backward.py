"""Mistakes of the other operations that only their gradients show."""

import numpy as np

from attncheck.variants.model import Array, Arrays, Model
from attncheck.variants.positions import ALIBI, ROTARY, SHAW, T5
from attncheck.variants.unlike import ADDITIVE, COSINE, LATENT, SINK


class _OfFirstBatch(Model):
    def over_batch(self, d: Array) -> Array:
        return d[0]


class _Averaged(Model):
    def over_batch(self, d: Array) -> Array:
        return d.mean(axis=0)


class _LastOfPairs(Model):
    def to_rows(self, d: Array, rows: Array, count: int) -> Array:
        total = np.zeros((len(d), count, d.shape[-1]))
        for at, each in enumerate(np.broadcast_to(rows, d.shape[:3])):
            total[at, each] = d[at]
        return self.over_batch(total)


# --------------------------------------------------------------------- rotary positions


class RotaryGradientTurnedForward(Model, op=ROTARY):
    """Gradients are turned the way that queries and keys are, instead of back."""

    def turned_back(self, d: Array, places: Array) -> Array:
        return self.turned(d, places)


class RotaryGradientUnturned(Model, op=ROTARY):
    """Gradients are those of what is turned, and are not turned back."""

    def turned_back(self, d: Array, places: Array) -> Array:
        return d


class RotaryKeyGradientUnturned(Model, op=ROTARY):
    """dk is that of the turned keys, and dq is right."""

    def to_key(self, d: Array, live: Array) -> Array:
        return d


class RotaryQueryGradientUnturned(Model, op=ROTARY):
    """dq is that of the turned queries, and dk is right."""

    def to_query(self, d: Array, rows: Array) -> Array:
        return d


class RotaryOffsetMissingInBackward(Model, op=ROTARY):
    """dq is turned back as if the first query stood where the first key does."""

    def to_query(self, d: Array, rows: Array) -> Array:
        return self.turned_back(d, self.query_places() - self.place_offset())


class RotaryGradientOfRestLost(Model, op=ROTARY):
    """Components that are not turned have no gradient."""

    def turned_back(self, d: Array, places: Array) -> Array:
        is_turned = np.isin(np.arange(d.shape[-1]), np.concatenate(self.pairs()))
        return np.where(is_turned, super().turned_back(d, places), 0.0)


# ------------------------------------------------------------------- relative positions


class AlibiSlopeGradientMissing(Model, op=ALIBI):
    """Slopes that are given have a gradient of 0."""

    def d_slopes(self, ds: Array) -> Array:
        return np.zeros_like(super().d_slopes(ds))


class AlibiSlopeGradientNegated(Model, op=ALIBI):
    """dslopes has the wrong sign."""

    def d_slopes(self, ds: Array) -> Array:
        return -super().d_slopes(ds)


class AlibiSlopeGradientSigned(Model, op=ALIBI):
    """dslopes takes later keys for earlier ones: the distance has its sign."""

    def d_slopes(self, ds: Array) -> Array:
        each = ds * self.distances()[:, None]
        return self.over_batch(each.sum(axis=(2, 3)))


class AlibiSlopeGradientOfFirstBatch(_OfFirstBatch, op=ALIBI):
    """dslopes is that of the first batch element."""


class AlibiSlopeGradientAveraged(_Averaged, op=ALIBI):
    """dslopes is averaged over the batch instead of summed."""


class T5TableGradientOfLastPair(_LastOfPairs, op=T5):
    """A bucket has the gradient of the last pair that takes it, not of all."""


class T5TableGradientOfFirstBatch(_OfFirstBatch, op=T5):
    """dtable is that of the first batch element."""


class T5TableGradientAveraged(_Averaged, op=T5):
    """dtable is averaged over the batch instead of summed."""


class T5TableGradientScaled(Model, op=T5):
    """dtable is multiplied by the scale."""

    def d_table(self, ds: Array, dx: Array) -> Array:
        return super().d_table(ds, dx) * self.scale()


class T5TableGradientCapped(Model, op=T5):
    """dtable passes the softcap's slope."""

    def d_table(self, ds: Array, dx: Array) -> Array:
        return super().d_table(dx, dx)


class T5TableGradientMissing(Model, op=T5):
    """The table has a gradient of 0."""

    def d_table(self, ds: Array, dx: Array) -> Array:
        return np.zeros_like(super().d_table(ds, dx))


class ShawTableGradientOfLastPair(_LastOfPairs, op=SHAW):
    """A row has the gradient of the last pair at its distance, not of all."""


class ShawTableGradientOfFirstBatch(_OfFirstBatch, op=SHAW):
    """Gradients of the tables are those of the first batch element."""


class ShawTableGradientAveraged(_Averaged, op=SHAW):
    """Gradients of the tables are averaged over the batch instead of summed."""


class ShawTableGradientUnclipped(Model, op=SHAW):
    """Pairs beyond the longest distance have no part in the gradients of the tables."""

    def to_rows(self, d: Array, rows: Array, count: int) -> Array:
        near = np.abs(self.distances()) <= count // 2
        return super().to_rows(np.where(near[..., None], d, 0.0), rows, count)


class ShawTableGradientOfFirstHead(Model, op=SHAW):
    """Gradients of the tables are those of the first head instead of all."""

    def d_key_table(self, dx: Array, q: Array) -> Array:
        return super().d_key_table(dx[:, :1], q[:, :1])

    def d_value_table(self, p: Array, d_out: Array) -> Array:
        return super().d_value_table(self._first(p), d_out)

    def _first(self, p: Array) -> Array:
        return np.where(np.arange(p.shape[1])[:, None, None] == 0, p, 0.0)


class ShawKeyTableGradientUnscaled(Model, op=SHAW):
    """The gradient of the table of keys lacks the scale."""

    def d_key_table(self, dx: Array, q: Array) -> Array:
        scale = self.key_scale()
        found = super().d_key_table(dx, q)
        return found / scale if scale else found


class ShawValueTableGradientUndropped(Model, op=SHAW):
    """The gradient of the table of values is that of the weights before dropout."""

    def d_value_table(self, p: Array, d_out: Array) -> Array:
        d = np.einsum("bnij,bnie->bije", self.stored_weights(p), d_out)
        return self.to_rows(d, self.table_rows(), len(self.read("value_table")))


class ShawQueryGradientWithoutTable(Model, op=SHAW):
    """dq lacks what the table of keys adds."""

    def d_query_of_table(self, dx: Array) -> Array:
        return np.zeros(self.size("bnid"))


class ShawWeightGradientWithoutTable(Model, op=SHAW):
    """The gradient of the weights lacks what the table of values adds."""

    def d_weights_of_table(self, d_out: Array) -> Array:
        return np.zeros(self.size("bnij"))


# -------------------------------------------------------------------------------- sinks


class SinkGradientMissing(Model, op=SINK):
    """Sinks have a gradient of 0."""

    def d_sinks(self, weight: Array, delta: Array) -> Array:
        return np.zeros(self.case.sizes["n"])


class SinkGradientNegated(Model, op=SINK):
    """dsinks has the wrong sign."""

    def d_sinks(self, weight: Array, delta: Array) -> Array:
        return -super().d_sinks(weight, delta)


class SinkGradientUnweighted(Model, op=SINK):
    """dsinks lacks the weight of the sink."""

    def d_sinks(self, weight: Array, delta: Array) -> Array:
        return super().d_sinks(np.ones_like(weight), delta)


class SinkGradientWithoutMean(Model, op=SINK):
    """dsinks lacks the row's mean, D: it has the log-sum-exp's part alone."""

    def d_sinks(self, weight: Array, delta: Array) -> Array:
        return super().d_sinks(weight, -self.d_lse())


class SinkGradientWithoutLse(Model, op=SINK):
    """dsinks lacks the part of the log-sum-exp."""

    def d_sinks(self, weight: Array, delta: Array) -> Array:
        return super().d_sinks(weight, delta + self.d_lse())


class SinkGradientOfEmptyRowMissing(Model, op=SINK):
    """A row of only its sink gives the sink no gradient."""

    def d_sinks(self, weight: Array, delta: Array) -> Array:
        seen = self.seen().any(axis=-1, keepdims=True)
        return super().d_sinks(np.where(seen, weight, 0.0), delta)


class SinkGradientOfFirstBatch(_OfFirstBatch, op=SINK):
    """dsinks is that of the first batch element."""


class SinkGradientAveraged(_Averaged, op=SINK):
    """dsinks is averaged over the batch instead of summed."""


class SinkMissingInBackward(Model, op=SINK):
    """The backward pass has weights that sum to 1 without the sink."""

    def weights_again(self, masked: Array, lse: Array) -> Array:
        p = super().weights_again(masked, lse)
        total = p.sum(axis=-1, keepdims=True)
        return p / np.where(total == 0, 1.0, total)


# ------------------------------------------------------------------------------ cosines


class CosineGradientUnprojected(Model, op=COSINE):
    """Gradients keep the part along the vector, which the length takes away."""

    def along(self, d: Array, unit: Array) -> Array:
        return np.zeros_like(d)


class CosineGradientProjectionAdded(Model, op=COSINE):
    """The part of a gradient along the vector is added instead of taken away."""

    def along(self, d: Array, unit: Array) -> Array:
        return -super().along(d, unit)


class CosineGradientUndivided(Model, op=COSINE):
    """Gradients are not divided by the length."""

    def over_length(self, d: Array, length: Array) -> Array:
        return d


class CosineGradientOfUnit(Model, op=COSINE):
    """Gradients are those of the vectors of length 1."""

    def unit_back(self, d: Array, x: Array) -> Array:
        return d


class CosineShortProjected(Model, op=COSINE):
    """Gradients of what is shorter than eps lose the part along the vector too."""

    def unit_back(self, d: Array, x: Array) -> Array:
        length = np.linalg.norm(x, axis=-1, keepdims=True)
        length = np.maximum(length, self.setting("eps", 1e-12))
        return self.over_length(d - self.along(d, x / length), length)


class CosineQueryGradientUntempered(Model, op=COSINE):
    """dq lacks the temperature."""

    def d_tempered(self, d: Array) -> Array:
        return d


class CosineTemperatureGradientMissing(Model, op=COSINE):
    """The temperature has a gradient of 0."""

    def d_temperature(self, dq: Array, unit: Array) -> Array:
        return np.zeros(self.case.sizes["n"])


class CosineTemperatureGradientTempered(Model, op=COSINE):
    """The gradient of the temperature has the temperature as a factor."""

    def d_temperature(self, dq: Array, unit: Array) -> Array:
        return super().d_temperature(dq, unit) * self.temperature()


class CosineTemperatureGradientOfQuery(Model, op=COSINE):
    """The gradient of the temperature is by the query as it is, not by its unit."""

    def d_temperature(self, dq: Array, unit: Array) -> Array:
        return super().d_temperature(dq, self.input("q"))


class CosineTemperatureGradientOfFirstBatch(_OfFirstBatch, op=COSINE):
    """The gradient of the temperature is that of the first batch element."""


class CosineTemperatureGradientAveraged(_Averaged, op=COSINE):
    """The gradient of the temperature is averaged over the batch instead of summed."""


# ---------------------------------------------------------------------- additive scores


class AdditiveSlopeMissing(Model, op=ADDITIVE):
    """The gradient does not pass the tanh's slope."""

    def bend_slope(self, bent: Array) -> Array:
        return np.ones_like(bent)


class AdditiveSlopeLinear(Model, op=ADDITIVE):
    """The tanh's slope is 1 − tanh instead of 1 − tanh²."""

    def bend_slope(self, bent: Array) -> Array:
        return 1 - bent


class AdditiveSlopeBentTwice(Model, op=ADDITIVE):
    """The tanh's slope is taken at the tanh: 1 − tanh²(tanh x)."""

    def bend_slope(self, bent: Array) -> Array:
        return 1 - np.tanh(bent) ** 2


class AdditiveWeightGradientOfFirstBatch(_OfFirstBatch, op=ADDITIVE):
    """Gradients of the weights are those of the first batch element."""


class AdditiveWeightGradientAveraged(_Averaged, op=ADDITIVE):
    """Gradients of the weights are averaged over the batch instead of summed."""


class AdditiveKeyWeightGradientOfLastHead(Model, op=ADDITIVE):
    """dw_k is that of the last head of a group instead of the sum."""

    def grouped_weight(self, gradient: Array) -> Array:
        g = self.case.sizes["g"]
        return gradient[:, g - 1 :: g]


class AdditiveScoreWeightGradientUnbent(Model, op=ADDITIVE):
    """dw_s is by the argument of the tanh instead of the tanh."""

    def d_additive(self, dx: Array, q: Array, k: Array) -> Arrays:
        found = super().d_additive(dx, q, k)
        dw_s = np.einsum("bnij,bnija->bna", dx, self.projections(q, k))
        return found | {"dw_s": self.over_batch(dw_s)}


class AdditiveWeightGradientsSwapped(Model, op=ADDITIVE):
    """The gradients of both weights are exchanged, where their shapes allow."""

    def d_additive(self, dx: Array, q: Array, k: Array) -> Arrays:
        found = super().d_additive(dx, q, k)
        if found["dw_q"].shape != found["dw_k"].shape:
            return found
        return found | {"dw_q": found["dw_k"], "dw_k": found["dw_q"]}


# ------------------------------------------------------------------------ latent width


class LatentGradientOfKeysLost(Model, op=LATENT):
    """What is compressed has the gradient of the values alone."""

    def d_compressed(self, dk: Array, dv: Array) -> Array:
        return super().d_compressed(np.zeros_like(dk), dv)


class LatentGradientOfValuesLost(Model, op=LATENT):
    """What is compressed has the gradient of the keys alone."""

    def d_compressed(self, dk: Array, dv: Array) -> Array:
        return super().d_compressed(dk, np.zeros_like(dv))


class LatentRotaryKeyGradientOfFirstHead(Model, op=LATENT):
    """The rotary key, which all heads share, has the gradient of the first alone."""

    def d_shared(self, d: Array) -> Array:
        return super().d_shared(d[:, :1])


class LatentRotaryKeyGradientAveraged(Model, op=LATENT):
    """The gradient of the shared rotary key is averaged over heads, not summed."""

    def d_shared(self, d: Array) -> Array:
        return super().d_shared(d) / self.case.sizes["n"]


class LatentRotaryKeyGradientUnturned(Model, op=LATENT):
    """The gradient of the rotary key is that of the turned one."""

    def d_shared(self, d: Array) -> Array:
        return d.sum(axis=1)


class LatentGradientTurnedForward(Model, op=LATENT):
    """Gradients are turned the way that the rotary parts are, instead of back."""

    def turned_back(self, d: Array, places: Array) -> Array:
        return self.turned(d, places)


class LatentGradientOfSourceLost(Model, op=LATENT):
    """Of x attending to itself only the part as queries has a gradient."""

    def both(self, d_x: Array, d_source: Array) -> Array:
        return d_x


class LatentWeightGradientOfFirstBatch(_OfFirstBatch, op=LATENT):
    """The gradients of the weights are those of the first batch element."""


class LatentWeightGradientAveraged(_Averaged, op=LATENT):
    """The gradients of the weights are averaged over the batch instead of summed."""

"""Mistakes that only the gradients show."""

import numpy as np

from attncheck.variants.model import Array, Model


class QueryGradientUnscaled(Model):
    """dq lacks the scale."""

    def query_scale(self) -> float:
        return 1.0


class KeyGradientUnscaled(Model):
    """dk lacks the scale."""

    def key_scale(self) -> float:
        return 1.0


class QueryGradientScaledTwice(Model):
    """dq has the scale twice."""

    def query_scale(self) -> float:
        return self.scale() ** 2


class KeyGradientScaledTwice(Model):
    """dk has the scale twice."""

    def key_scale(self) -> float:
        return self.scale() ** 2


class GradientsUnscaled(Model):
    """dq and dk lack the scale."""

    def query_scale(self) -> float:
        return 1.0

    def key_scale(self) -> float:
        return 1.0


class DefaultScaleInBackward(Model):
    """dq and dk have the default scale, whatever was given."""

    def query_scale(self) -> float:
        return self.case.sizes["d"] ** -0.5

    def key_scale(self) -> float:
        return self.query_scale()


class DeltaOmitted(Model):
    """The gradient of the softmax lacks the row's mean, D."""

    def delta(self, d_out: Array, out: Array, p: Array, dp: Array) -> Array:
        return np.zeros((*out.shape[:3], 1))


class DeltaUnweighted(Model):
    """D is subtracted without the weight: P·dP − D."""

    def d_logits(self, p: Array, dp: Array, delta: Array) -> Array:
        return p * dp - delta


class DeltaAdded(Model):
    """D is added instead of subtracted."""

    def d_logits(self, p: Array, dp: Array, delta: Array) -> Array:
        return p * (dp + delta)


class DeltaOfGradientOnly(Model):
    """D is the row's sum of dP instead of P·dP."""

    def delta(self, d_out: Array, out: Array, p: Array, dp: Array) -> Array:
        return np.where(p > 0, dp, 0.0).sum(axis=-1, keepdims=True)


class DeltaIsMean(Model):
    """D is the mean over the channels instead of the sum."""

    def delta(self, d_out: Array, out: Array, p: Array, dp: Array) -> Array:
        return super().delta(d_out, out, p, dp) / out.shape[-1]


class DeltaLosesChannel(Model):
    """D lacks the last channel of the output."""

    def delta(self, d_out: Array, out: Array, p: Array, dp: Array) -> Array:
        return (d_out * out)[..., :-1].sum(axis=-1, keepdims=True)


class DeltaUndropped(Model):
    """D is that of the weights without dropout."""

    def delta(self, d_out: Array, out: Array, p: Array, dp: Array) -> Array:
        if "dropout_keep" not in self.case.inputs:
            return super().delta(d_out, out, p, dp)
        undropped = d_out @ self.shown_value(
            self.spread("v"), self.exists(self.seen())
        ).swapaxes(-1, -2)
        return (p * undropped).sum(axis=-1, keepdims=True)


class SoftcapSlopeMissing(Model):
    """The gradient does not pass the softcap's slope."""

    def slope(self, x: Array, cap: float) -> Array:
        return np.ones_like(x)


class SoftcapSlopeOfCapped(Model):
    """The softcap's slope is 1 − t² with t = c·tanh instead of tanh."""

    def slope(self, x: Array, cap: float) -> Array:
        return 1 - (cap * np.tanh(x / cap)) ** 2


class SoftcapSlopeOfScore(Model):
    """The softcap's slope is 1 − (x/c)² instead of 1 − tanh²(x/c)."""

    def slope(self, x: Array, cap: float) -> Array:
        return 1 - (x / cap) ** 2


class SoftcapSlopeLinear(Model):
    """The softcap's slope is 1 − tanh instead of 1 − tanh²."""

    def slope(self, x: Array, cap: float) -> Array:
        return 1 - np.tanh(x / cap)


class DropoutMissingInBackward(Model):
    """The backward pass drops nothing."""

    def d_weights(self, d_out: Array, v: Array) -> Array:
        return d_out @ v.swapaxes(-1, -2)

    def d_value(self, p: Array, d_out: Array) -> Array:
        return p.swapaxes(-1, -2) @ d_out


class DropoutMissingInValueGradient(Model):
    """dv is that of the weights before dropout."""

    def d_value(self, p: Array, d_out: Array) -> Array:
        return p.swapaxes(-1, -2) @ d_out


class DropoutMissingInWeightGradient(Model):
    """The gradient of the weights does not pass dropout."""

    def d_weights(self, d_out: Array, v: Array) -> Array:
        return d_out @ v.swapaxes(-1, -2)


class BiasGradientScaled(Model):
    """dbias is multiplied by the scale."""

    def d_bias(self, ds: Array) -> Array:
        return super().d_bias(ds) * self.scale()


class BiasGradientAveraged(Model):
    """dbias is averaged over the axes that were broadcast instead of summed."""

    def d_bias(self, ds: Array) -> Array:
        total = super().d_bias(ds)
        return total * (total.size / max(ds.size, 1))


class BiasGradientOfFirst(Model):
    """dbias is that of the first element of the axes that were broadcast."""

    def d_bias(self, ds: Array) -> Array:
        if "bias" not in self.case.inputs:
            return ds
        return ds[tuple(slice(size) for size in self.case.inputs["bias"].shape)]


class BiasGradientWithoutMean(Model):
    """dbias lacks the row's mean, D, which the gradient of the logits has."""

    def d_logits(self, p: Array, dp: Array, delta: Array) -> Array:
        self._without = p * dp
        return super().d_logits(p, dp, delta)

    def d_bias(self, ds: Array) -> Array:
        return super().d_bias(self._without)


class BiasGradientCapped(Model):
    """dbias passes the softcap's slope."""

    def backward(self, q, k, v, forward):
        self._scores = forward["scores"]
        return super().backward(q, k, v, forward)

    def d_bias(self, ds: Array) -> Array:
        return super().d_bias(self.d_scores(ds, self._scores))


class LseGradientIgnored(Model):
    """The gradient that comes in with the log-sum-exp is ignored."""

    def d_lse(self) -> Array:
        return np.zeros((*self.size("bni"), 1))


class LseGradientNegated(Model):
    """The gradient that comes in with the log-sum-exp has the wrong sign."""

    def d_lse(self) -> Array:
        return -super().d_lse()


class LseGradientUnweighted(Model):
    """The gradient of the log-sum-exp goes to every key alike, without its weight."""

    def d_logits(self, p: Array, dp: Array, delta: Array) -> Array:
        d_lse = self.d_lse()
        return p * (dp - delta - d_lse) + d_lse


class BackwardUnmasked(Model):
    """The backward pass forgets the mask."""

    def backward(self, q, k, v, forward):
        return super().backward(q, k, v, forward | {"masked": forward["logits"]})

    def weights_again(self, masked: Array, lse: Array) -> Array:
        return np.where((lse == -np.inf)[..., None], 0.0, super().weights(masked, lse))


class ValueGradientUnnormalised(Model):
    """dv is that of weights before they are divided by the row sum."""

    def d_value(self, p: Array, d_out: Array) -> Array:
        top = p.max(axis=-1, keepdims=True, initial=0.0)
        return super().d_value(p / np.where(top == 0, 1.0, top), d_out)


class QueryAndKeyGradientsSwapped(Model):
    """Gradients of q and k are exchanged, where their shapes allow."""

    def backward(self, q, k, v, forward):
        found = super().backward(q, k, v, forward)
        if found["dq"].shape != found["dk"].shape:
            return found
        return found | {"dq": found["dk"], "dk": found["dq"]}

"""Sinks, cosines and additive scores."""

import numpy as np

from attncheck.variants.model import Array, Model

SINK, COSINE = "sink_attention", "cosine_attention"
ADDITIVE = "additive_attention"


class SinkScaled(Model, op=SINK):
    """The sink is multiplied by the scale."""

    def sink(self) -> Array:
        return super().sink() * self.scale()


class SinkCapped(Model, op=SINK):
    """The sink goes through the softcap."""

    def sink(self) -> Array:
        return self.capped(super().sink())


class SinkMissing(Model, op=SINK):
    """There is no sink."""

    def sink(self) -> Array:
        return np.full_like(super().sink(), -np.inf)


class SinkOfKeyHead(Model, op=SINK):
    """Every query head has the sink of its group's number."""

    def sink(self) -> Array:
        heads = np.arange(self.case.sizes["n"]) // self.case.sizes["g"]
        return super().sink()[heads]


class SinkMasked(Model, op=SINK):
    """A row that has no key has no sink either."""

    def lse(self, top: Array, total: Array) -> Array:
        empty = ~self.seen().any(axis=-1, keepdims=True)
        return np.where(empty, -np.inf, super().lse(top, total))


class SinkNotInLse(Model, op=SINK):
    """The log-sum-exp is that of the keys alone."""

    def attend(self, masked: Array, v: Array) -> tuple[Array, Array]:
        out, lse = super().attend(masked, v)
        alone = np.log(-np.expm1(self.sink()[..., 0] - lse)) + lse
        empty = ~self.seen().any(axis=-1)
        return out, np.where(empty, -np.inf, alone)


class SinkNotInOutput(Model, op=SINK):
    """The weights sum to 1 without the sink."""

    def attend(self, masked: Array, v: Array) -> tuple[Array, Array]:
        out, lse = super().attend(masked, v)
        left = -np.expm1(self.sink() - lse[..., None])
        empty = ~self.seen().any(axis=-1, keepdims=True)
        return np.where(empty, out, out / left), lse


class SinkIsOne(Model, op=SINK):
    """1 is added to the denominator, whatever the sink."""

    def sink(self) -> Array:
        return np.zeros_like(super().sink())


class CosineKeysAsTheyAre(Model, op=COSINE):
    """Keys are not divided by their length."""

    def unit_key(self, k: Array) -> Array:
        return k


class CosineQueriesAsTheyAre(Model, op=COSINE):
    """Queries are not divided by their length."""

    def unit_query(self, q: Array) -> Array:
        return q


class CosineScaled(Model, op=COSINE):
    """Cosines are divided by √d as well."""

    def scale(self) -> float:
        return self.case.sizes["d"] ** -0.5


class CosineTemperatureDivides(Model, op=COSINE):
    """Cosines are divided by the temperature."""

    def temperature(self) -> Array:
        return 1 / super().temperature()


class CosineTemperatureOfFirst(Model, op=COSINE):
    """All heads have the temperature of the first."""

    def temperature(self) -> Array:
        return np.full_like(super().temperature(), super().temperature()[0])


class CosineTemperatureIgnored(Model, op=COSINE):
    """The temperature is 10, whatever is given."""

    def temperature(self) -> Array:
        return np.full(self.case.sizes["n"], 10.0)


class CosineTemperatureOne(Model, op=COSINE):
    """The temperature is 1 where none is given."""

    def temperature(self) -> Array:
        given = "temperature" in self.case.inputs
        return super().temperature() if given else np.ones(self.case.sizes["n"])


class CosineEpsAdded(Model, op=COSINE):
    """eps is added to a length instead of being the least."""

    def unit(self, x: Array) -> Array:
        length = np.linalg.norm(x, axis=-1, keepdims=True)
        return x / (length + self.setting("eps", 1e-6))


class CosineByMeanSquare(Model, op=COSINE):
    """Vectors are divided by the root of their mean square, √d too little."""

    def unit(self, x: Array) -> Array:
        return super().unit(x) * self.case.sizes["d"] ** 0.5


class AdditiveTanhMissing(Model, op=ADDITIVE):
    """There is no tanh."""

    def bend(self, x: Array) -> Array:
        return x


class AdditiveScaled(Model, op=ADDITIVE):
    """Additive scores are divided by √d."""

    def scale(self) -> float:
        return self.case.sizes["d"] ** -0.5


class AdditiveScaledByFeatures(Model, op=ADDITIVE):
    """Additive scores are divided by the root of the number of features."""

    def scale(self) -> float:
        return self.case.sizes["a"] ** -0.5


class AdditiveWeightsSwapped(Model, op=ADDITIVE):
    """Queries go through the keys' weight, and keys through the queries'."""

    def query_weight(self) -> Array:
        return super().key_weight()

    def key_weight(self) -> Array:
        return super().query_weight()


class AdditiveKeyHeadsTiled(Model, op=ADDITIVE):
    """Query head n has the key weight of head n mod h."""

    def key_weight(self) -> Array:
        sizes = self.case.sizes
        return self.input("w_k")[np.arange(sizes["n"]) % sizes["h"]]

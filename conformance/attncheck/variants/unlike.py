"""Sinks, cosines, additive scores, and a latent width."""

import numpy as np

from attncheck.variants.model import Array, Model

SINK, COSINE = "sink_attention", "cosine_attention"
ADDITIVE, LATENT = "additive_attention", "latent_attention"


class SinkScaled(Model, op=SINK, reference="ROCm/rocm-libraries#12227"):
    """The sink is multiplied by the scale."""

    def sink(self) -> Array:
        return super().sink() * self.scale()


class SinkCapped(Model, op=SINK):
    """The sink goes through the softcap."""

    def sink(self) -> Array:
        return self.capped(super().sink())


class SinkMissing(Model, op=SINK, reference="NVIDIA/TransformerEngine#2541"):
    """There is no sink."""

    def sink(self) -> Array:
        return np.full_like(super().sink(), -np.inf)


class SinkTwice(Model, op=SINK, reference="ROCm/rocm-libraries#12227"):
    """The sink is counted twice."""

    def sink(self) -> Array:
        return super().sink() + np.log(2)


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
        return x / (length + self.setting("eps", 1e-12))


class CosineByMeanSquare(Model, op=COSINE):
    """Vectors are divided by the root of their mean square, √d too little."""

    def unit(self, x: Array) -> Array:
        return super().unit(x) * self.case.sizes["d"] ** 0.5


class AdditiveTanhMissing(Model, op=ADDITIVE):
    """There is no tanh."""

    def bend(self, x: Array) -> Array:
        return x

    def bend_slope(self, bent: Array) -> Array:
        return np.ones_like(bent)


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


class LatentScaleOfContent(Model, op=LATENT):
    """Scores are divided by √d, without the rotary part."""

    def scale(self) -> float:
        return self.case.sizes["d"] ** -0.5


class LatentQueryUnturned(Model, op=LATENT):
    """The rotary part of the queries is not turned."""

    def rotary_query(self, x: Array) -> Array:
        return x


class LatentKeyUnturned(Model, op=LATENT):
    """The rotary part of the keys is not turned."""

    def rotary_key(self, x: Array) -> Array:
        return x


class LatentRotaryMissing(Model, op=LATENT):
    """The scores have no rotary part."""

    def rotary_query(self, x: Array) -> Array:
        return np.zeros_like(x)


class LatentRotaryOfFirstHead(Model, op=LATENT):
    """Only the first head has the rotary part of the keys, which all share."""

    def rotary_query(self, x: Array) -> Array:
        first = np.arange(x.shape[1])[:, None, None] == 0
        return np.where(first, super().rotary_query(x), 0.0)


class LatentOffsetIgnored(Model, op=LATENT):
    """Queries are turned as if the first of them stood where the first key does."""

    def place_offset(self) -> Array:
        return np.zeros((1, 1), int)


class LatentPairingMixed(Model, op=LATENT):
    """Neighbours are paired where halves should be, or halves where neighbours."""

    def is_interleaved(self) -> bool:
        return not super().is_interleaved()


class LatentFromQueries(Model, op=LATENT):
    """Keys and values come from x though there is a context."""

    def context(self) -> Array:
        x, context = self.input("x"), super().context()
        return x if x.shape == context.shape else context

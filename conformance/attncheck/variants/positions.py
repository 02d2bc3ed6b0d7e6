"""Positions in attention: rotary angles, and what is added for a distance."""

import numpy as np

from attncheck.variants.model import Array, Model

ROTARY, ALIBI = "rotary_attention", "alibi_attention"
T5, SHAW = "t5_attention", "shaw_attention"


class RotaryPairingMixed(Model, op=ROTARY, reference="huggingface/transformers#25199"):
    """Neighbours are paired where halves should be, or halves where neighbours."""

    def is_interleaved(self) -> bool:
        return not super().is_interleaved()


class RotaryOffsetIgnored(Model, op=ROTARY, reference="flashinfer-ai/flashinfer#847"):
    """Queries are turned as if the first of them stood where the first key does."""

    def place_offset(self) -> Array:
        return np.zeros((1, 1), int)


class RotaryOffsetOfFirst(Model, op=ROTARY):
    """The offset of the first batch element is taken for all."""

    def place_offset(self) -> Array:
        return super().place_offset()[:1]


class RotaryKeysUnturned(Model, op=ROTARY):
    """Queries are turned and keys are not."""

    def key_places(self) -> Array:
        return np.zeros_like(super().key_places())


class RotaryOtherWay(Model, op=ROTARY):
    """Pairs are turned by minus the angle."""

    def angles(self, places: Array) -> Array:
        return -super().angles(places)


class RotaryWidthIgnored(Model, op=ROTARY):
    """All components are turned where only some should be."""

    def turned_width(self) -> int:
        return self.case.sizes["d"] // 2 * 2


class RotaryFrequenciesOfWidth(Model, op=ROTARY):
    """Frequencies are spread over the whole width where only a part of it is turned."""

    def frequencies(self) -> Array:
        width = self.turned_width()
        return self.base() ** (-np.arange(0, width, 2) / self.case.sizes["d"])


class RotaryLastComponents(Model, op=ROTARY):
    """The last components are turned where the first should be."""

    def pairs(self) -> tuple[Array, Array]:
        first, second = super().pairs()
        rest = self.case.sizes["d"] - self.turned_width()
        return first + rest, second + rest


class RotaryBaseIgnored(Model, op=ROTARY):
    """The base is 10 000, whatever is given."""

    def base(self) -> float:
        return 10000.0


class RotaryExponentByPair(Model, op=ROTARY):
    """Pair t turns at base^(−t/w) instead of base^(−2t/w)."""

    def frequencies(self) -> Array:
        width = self.turned_width()
        return self.base() ** (-np.arange(0, width, 2) / (2 * max(width, 1)))


class RotaryPlacesFromOne(Model, op=ROTARY):
    """Keys are counted from 1 and queries from 0."""

    def key_places(self) -> Array:
        return super().key_places() + 1


class RotaryValuesTurned(Model, op=ROTARY):
    """Values are turned like keys."""

    def operands(self) -> tuple[Array, Array, Array]:
        q, k, v = super().operands()
        width = min(self.turned_width(), v.shape[-1])
        if width < self.turned_width():
            return q, k, v
        return q, k, self.turned(v, self.key_places())


class RotaryAnglesRounded(
    Model, op=ROTARY, rounds=True, reference="EleutherAI/gpt-neox#1003"
):
    """Angles are rounded to 16 bits before their cosines."""

    def angles(self, places: Array) -> Array:
        return self.narrow(super().angles(places))


# ------------------------------------------------------- what a distance adds


class AlibiSign(Model, op=ALIBI):
    """The bias grows with the distance."""

    def linear_bias(self, distances: Array, slopes: Array) -> Array:
        return -super().linear_bias(distances, slopes)


class AlibiSigned(Model, op=ALIBI):
    """The distance has its sign, so that a later key is favoured."""

    def linear_bias(self, distances: Array, slopes: Array) -> Array:
        return distances * slopes[:, None, None]


class AlibiLaterKeysUnbiased(Model, op=ALIBI):
    """Keys that come later than the query have no bias."""

    def linear_bias(self, distances: Array, slopes: Array) -> Array:
        return super().linear_bias(np.minimum(distances, 0), slopes)


class AlibiSlopesOfAnyCount(Model, op=ALIBI, reference="ml-explore/mlx#343"):
    """Slopes are 2^(−8k/n) for every count of heads."""

    def published_slopes(self, n: int) -> list[float]:
        return [2.0 ** (-8.0 * k / n) for k in range(1, n + 1)]


class AlibiSlopesOfNextPower(Model, op=ALIBI):
    """Slopes are the first ones of the next power of two of heads."""

    def published_slopes(self, n: int) -> list[float]:
        return super().published_slopes(1 << (n - 1).bit_length())[:n]


class AlibiSlopesFromOne(Model, op=ALIBI, reference="paiml/aprender#2143"):
    """The first slope is 1."""

    def published_slopes(self, n: int) -> list[float]:
        slopes = super().published_slopes(n)
        return [1.0, *slopes[:-1]]


class AlibiSlopesReversed(Model, op=ALIBI):
    """Heads have their slopes in the other order."""

    def slopes(self) -> Array:
        return super().slopes()[::-1]


class AlibiSlopesIgnored(Model, op=ALIBI):
    """Slopes that are given are not used."""

    def slopes(self) -> Array:
        return np.array(self.published_slopes(self.case.sizes["n"]))


class AlibiOffsetIgnored(Model, op=ALIBI):
    """Distances are those of queries that begin at the first key."""

    def place_offset(self) -> Array:
        return np.zeros((1, 1), int)


class AlibiScaled(Model, op=ALIBI):
    """The bias by distance is added before the scale."""

    def linear_bias(self, distances: Array, slopes: Array) -> Array:
        return super().linear_bias(distances, slopes) * self.scale()


class T5LastBucketOverflows(Model, op=T5):
    """Far distances have buckets beyond the last, those of the other direction."""

    def last_bucket(self, bucket: Array, count: int) -> Array:
        return bucket

    def buckets(self, distance: Array) -> Array:
        return super().buckets(distance) % len(self.read("table"))


class T5DirectionSwapped(Model, op=T5):
    """Distances have the other sign."""

    def distances(self) -> Array:
        return -super().distances()


class T5OneDirection(Model, op=T5):
    """A table for both directions is read as one for earlier keys alone."""

    def is_both_ways(self) -> bool:
        return False


class T5BothDirections(Model, op=T5):
    """A table for earlier keys alone is read as one for both directions."""

    def is_both_ways(self) -> bool:
        return True


class T5MaxDistanceIgnored(Model, op=T5):
    """The longest distance is 128, whatever is given."""

    def max_distance(self) -> int:
        return 128


class T5OffsetIgnored(Model, op=T5):
    """Distances are those of queries that begin at the first key."""

    def place_offset(self) -> Array:
        return np.zeros((1, 1), int)


class T5Scaled(Model, op=T5):
    """The table's bias is multiplied by the scale."""

    def distance_bias(self) -> Array | float:
        return super().distance_bias() * self.scale()


class T5HeadsReversed(Model, op=T5):
    """Heads have each other's columns of the table."""

    def distance_bias(self) -> Array | float:
        return np.asarray(super().distance_bias())[:, ::-1]


class ShawSign(Model, op=SHAW):
    """Rows are those of i − j instead of j − i."""

    def distances(self) -> Array:
        return -super().distances()


class ShawWrapped(Model, op=SHAW):
    """Distances beyond the table wrap around instead of being clipped."""

    def table_rows(self) -> Array:
        count = len(self.read("key_table"))
        return (self.distances() + count // 2) % count


class ShawKeyTermUnscaled(Model, op=SHAW):
    """The term of the keys is added after the scale."""

    def key_term(self, q: Array) -> Array:
        scale = self.scale()
        return super().key_term(q) / scale if scale else super().key_term(q)


class ShawKeyTermMissing(Model, op=SHAW):
    """The scores have no term of the distance."""

    def key_term(self, q: Array) -> Array:
        return np.zeros(self.size("bnij"))


class ShawValueTermMissing(Model, op=SHAW):
    """The output has no term of the distance."""

    def value_term(self, masked: Array, lse: Array) -> Array:
        return np.zeros(self.size("bnie"))


class ShawValueTermUndropped(Model, op=SHAW):
    """The values' term is summed with the weights before dropout."""

    def value_term(self, masked: Array, lse: Array) -> Array:
        p = self.weights(masked, lse[..., 0])
        return np.einsum("bnij,bije->bnie", p, self.of_rows("value_table"))


class ShawOffsetIgnored(Model, op=SHAW):
    """Distances are those of queries that begin at the first key."""

    def place_offset(self) -> Array:
        return np.zeros((1, 1), int)

"""Positions: what is turned, or added, by the distance of a key; and back."""

import numpy as np

from attncheck.variants.model.heads import Heads
from attncheck.variants.model.parts import Array


class Places(Heads):
    """Rotary and relative positions."""

    def place_offset(self) -> Array:
        """By how much queries stand further on, `b 1` or `1 1`."""
        return np.array(self.setting("offset", 0)).reshape(-1, 1)

    def query_places(self) -> Array:
        """`b i` or `1 i`."""
        return self.place_offset() + np.arange(self.case.sizes["i"])

    def key_places(self) -> Array:
        """`1 j`."""
        return np.arange(self.case.sizes["j"])[None]

    def turned_width(self) -> int:
        """How many components are turned."""
        whole = "p" if "p" in self.case.sizes else "d"
        width = self.setting("width", None)
        return self.case.sizes[whole] if width is None else width

    def is_interleaved(self) -> bool:
        """Whether pairs are neighbours."""
        return self.setting("pairing", "halves") == "interleaved"

    def base(self) -> float:
        """What the frequencies are powers of."""
        return self.setting("base", 10000.0)

    def frequencies(self) -> Array:
        """One for each pair."""
        width = self.turned_width()
        return self.base() ** (-np.arange(0, width, 2) / max(width, 1))

    def angles(self, places: Array) -> Array:
        """Place times frequency, `b 1 i t`."""
        return places[:, None, :, None] * self.frequencies()

    def pairs(self) -> tuple[Array, Array]:
        """The first and the second component of every pair."""
        width = self.turned_width()
        if self.is_interleaved():
            return np.arange(0, width, 2), np.arange(1, width, 2)
        return np.arange(width // 2), np.arange(width // 2, width)

    def distances(self) -> Array:
        """How far each key is after each query, `b i j` or `1 i j`."""
        return self.key_places()[:, None, :] - self.query_places()[..., None]

    def distance_bias(self) -> Array | float:
        """What is added to a logit for the distance, `b n i j`."""
        if self.case.op == "alibi_attention":
            return self.linear_bias(self.distances()[:, None], self.slopes())
        if self.case.op == "t5_attention":
            rows = self.buckets(self.distances())
            return self.input("table")[rows].transpose(0, 3, 1, 2)
        return 0.0

    def linear_bias(self, distances: Array, slopes: Array) -> Array:
        """−m·|distance|."""
        return -np.abs(distances) * slopes[:, None, None]

    def slopes(self) -> Array:
        """One for each query head."""
        if "slopes" in self.case.inputs:
            return self.input("slopes")
        return np.array(self.published_slopes(self.case.sizes["n"]))

    def published_slopes(self, n: int) -> list[float]:
        """A power of two of heads has powers of its first slope; others borrow."""
        power = 2 ** int(np.log2(n))
        first = 2.0 ** (-8.0 / power)
        slopes = [first * first**k for k in range(power)]
        if power == n:
            return slopes
        return slopes + self.published_slopes(2 * power)[0::2][: n - power]

    def buckets(self, distance: Array) -> Array:
        """The row of the table for each distance, as the published code has it."""
        count = len(self.read("table"))
        rows, back = np.zeros_like(distance), -distance
        if self.is_both_ways():
            count //= 2
            rows, back = count * (distance > 0), np.abs(distance)
        back, exact = np.maximum(back, 0), count // 2
        far = np.log(np.maximum(back, 1) / exact) / np.log(self.max_distance() / exact)
        # So that a whole number is not missed by a rounding.
        far = exact + np.floor(far * (count - exact) + 1e-9).astype(int)
        return rows + np.where(back < exact, back, self.last_bucket(far, count))

    def is_both_ways(self) -> bool:
        """Whether later keys have buckets of their own."""
        return self.setting("bidirectional", True)

    def max_distance(self) -> int:
        """From where on all distances share a bucket."""
        return self.setting("max_distance", 128)

    def last_bucket(self, bucket: Array, count: int) -> Array:
        """No bucket is beyond the last."""
        return np.minimum(bucket, count - 1)

    def table_rows(self) -> Array:
        """The row of a table of keys or values, by the clipped distance, `b i j`."""
        clip = len(self.read("key_table")) // 2
        return np.clip(self.distances(), -clip, clip) + clip

    def key_term(self, q: Array) -> Array:
        """q·a, `b n i j`."""
        return np.einsum("bnid,bijd->bnij", q, self.of_rows("key_table"))

    def of_rows(self, table: str) -> Array:
        """A table at the rows, for every batch element, `b i j x`."""
        found = self.input(table)[self.table_rows()]
        return np.broadcast_to(found, (self.case.sizes["b"], *found.shape[1:]))

    def turned(self, x: Array, places: Array) -> Array:
        """Pairs as complex numbers, times e^(i·angle)."""
        first, second = self.pairs()
        pairs = (x[..., first] + 1j * x[..., second]) * np.exp(1j * self.angles(places))
        x = x.copy()
        x[..., first], x[..., second] = pairs.real, pairs.imag
        return x

    def turned_back(self, d: Array, places: Array) -> Array:
        """The gradient of what is turned."""
        return self.turned(d, -places)

    def d_slopes(self, ds: Array) -> Array:
        """The gradient of the slopes, in which the bias is linear."""
        ones = np.ones(self.case.sizes["n"])
        each = self.linear_bias(self.distances()[:, None], ones)
        return self.over_batch((ds * each).sum(axis=(2, 3)))

    def d_table(self, ds: Array, dx: Array) -> Array:
        """The gradient of the table of biases, from that of the logits."""
        d = ds.transpose(0, 2, 3, 1)
        return self.to_rows(d, self.buckets(self.distances()), len(self.read("table")))

    def to_rows(self, d: Array, rows: Array, count: int) -> Array:
        """`b i j x -> r x`: a row has the sum of the pairs that take it."""
        total = np.zeros((len(d), count, d.shape[-1]))
        rows = np.broadcast_to(rows, d.shape[:3])
        np.add.at(total, (np.arange(len(d))[:, None, None], rows), d)
        return self.over_batch(total)

    def d_weights_of_table(self, d_out: Array) -> Array:
        """What the table of values adds to the gradient of the weights."""
        d = np.einsum("bnie,bije->bnij", d_out, self.of_rows("value_table"))
        return d * self.keep()

    def d_query_of_table(self, dx: Array) -> Array:
        """What the table of keys adds to the gradient of the queries."""
        d = np.einsum("bnij,bijd->bnid", dx, self.of_rows("key_table"))
        return d * self.query_scale()

    def d_key_table(self, dx: Array, q: Array) -> Array:
        """The gradient of the table of keys."""
        d = np.einsum("bnij,bnid->bijd", self.stored(dx), q) * self.key_scale()
        return self.to_rows(d, self.table_rows(), len(self.read("key_table")))

    def d_value_table(self, p: Array, d_out: Array) -> Array:
        """The gradient of the table of values."""
        d = np.einsum("bnij,bnie->bije", self.stored_weights(p * self.keep()), d_out)
        return self.to_rows(d, self.table_rows(), len(self.read("value_table")))

"""Sinks, cosines and additive scores, and back."""

import numpy as np

from attncheck.variants.model.parts import Array, Arrays
from attncheck.variants.model.places import Places


class Unlike(Places):
    """Other scores, and a denominator."""

    def sink(self) -> Array:
        """The logit that joins the row sum, `n 1 1`."""
        return self.input("sinks")[:, None, None]

    def temperature(self) -> Array:
        """One for each query head."""
        if "temperature" in self.case.inputs:
            return self.input("temperature")
        return np.full(self.case.sizes["n"], 10.0)

    def unit_query(self, q: Array) -> Array:
        """A query of length 1."""
        return self.unit(q)

    def unit_key(self, k: Array) -> Array:
        """A key of length 1."""
        return self.unit(k)

    def unit(self, x: Array) -> Array:
        """x over its length, or over eps where it is shorter."""
        length = np.linalg.norm(x, axis=-1, keepdims=True)
        return x / np.maximum(length, self.setting("eps", 1e-12))

    def additive_scores(self, q: Array, k: Array) -> Array:
        """w·tanh(W q + U k)."""
        return np.einsum("bnija,na->bnij", self.features(q, k), self.input("w_s"))

    def features(self, q: Array, k: Array) -> Array:
        """tanh(W q + U k), `b n i j a`."""
        return self.bend(self.projections(q, k))

    def projections(self, q: Array, k: Array) -> Array:
        """W q + U k, `b n i j a`."""
        from_query = np.einsum("bnid,nda->bnia", q, self.query_weight())
        from_key = np.einsum("bnjd,nda->bnja", k, self.key_weight())
        return from_query[:, :, :, None] + from_key[:, :, None]

    def query_weight(self) -> Array:
        """W, `n d a`."""
        return self.input("w_q")

    def key_weight(self) -> Array:
        """U, for every query head that of its group, `n d a`."""
        return np.repeat(self.input("w_k"), self.case.sizes["g"], axis=0)

    def bend(self, x: Array) -> Array:
        """The tanh."""
        return np.tanh(x)

    def d_sinks(self, weight: Array, delta: Array) -> Array:
        """The gradient of the sinks: that of a logit whose value is 0."""
        return self.over_batch(-(weight * delta).sum(axis=(2, 3)))

    def d_tempered(self, d: Array) -> Array:
        """The gradient of the unit queries."""
        return d * self.by_head(self.temperature())

    def d_temperature(self, dq: Array, unit: Array) -> Array:
        """The gradient of the temperatures, from that of the queries that have them."""
        return self.over_batch((dq * unit).sum(axis=(2, 3)))

    def unit_back(self, d: Array, x: Array) -> Array:
        """The gradient of what is divided by its length, or by eps."""
        length = np.linalg.norm(x, axis=-1, keepdims=True)
        eps = self.setting("eps", 1e-12)
        unit = x / np.maximum(length, eps)
        across = np.where(length < eps, d, d - self.along(d, unit))
        return self.over_length(across, np.maximum(length, eps))

    def along(self, d: Array, unit: Array) -> Array:
        """The part of a gradient that would only make a vector longer."""
        return unit * (unit * d).sum(axis=-1, keepdims=True)

    def over_length(self, d: Array, length: Array) -> Array:
        """The gradient through the division, of what does not change the length."""
        return d / length

    def d_additive(self, dx: Array, q: Array, k: Array) -> Arrays:
        """All gradients that go through w·tanh(W q + U k)."""
        features = self.features(q, k)
        d = dx[..., None] * self.by_head(self.input("w_s")) * self.bend_slope(features)
        d_query, d_key = d.sum(axis=3), d.sum(axis=2)
        dk = np.einsum("bnja,nda->bnjd", d_key, self.key_weight())
        dw_k = self.grouped_weight(np.einsum("bnjd,bnja->bnda", k, d_key))
        return {
            "dq": np.einsum("bnia,nda->bnid", d_query, self.query_weight()),
            "dk": self.grouped_key(dk),
            "dw_q": self.over_batch(np.einsum("bnid,bnia->bnda", q, d_query)),
            "dw_k": self.over_batch(dw_k),
            "dw_s": self.over_batch(np.einsum("bnij,bnija->bna", dx, features)),
        }

    def bend_slope(self, bent: Array) -> Array:
        """The derivative of the tanh, from its value."""
        return 1 - bent**2

    def grouped_weight(self, gradient: Array) -> Array:
        """The gradient of every key/value head's weight."""
        return self.grouped(gradient)

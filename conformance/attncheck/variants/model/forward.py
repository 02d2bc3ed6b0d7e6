"""From q, k and v to the output and the log-sum-exp."""

import numpy as np

from attncheck.variants.model.parts import Array, Arrays
from attncheck.variants.model.softmax import Softmax


class Forward(Softmax):
    """The forward pass."""

    def operands(self) -> tuple[Array, Array, Array]:
        """q, k and v, as the scores and the output take them."""
        q, k, v = self.input("q"), self.spread("k"), self.spread("v")
        if self.case.op == "rotary_attention":
            q = self.turned(q, self.query_places())
            k = self.turned(k, self.key_places())
        if self.case.op == "cosine_attention":
            q = self.unit_query(q) * self.by_head(self.temperature())
            k = self.unit_key(k)
        return q, k, v

    def forward(self, q: Array, k: Array, v: Array) -> Arrays:
        """Output, log-sum-exp and what is between."""
        live = self.exists(self.seen())
        k, v = self.shown_key(k, live), self.shown_value(v, live)
        scores = self.scores(q, k)
        logits = self.logits(scores)
        masked = self.masked(logits, self.seen())
        out, lse = self.attend(masked, v)
        weights = self.weights(masked, lse)
        steps = {"scores": scores, "logits": logits, "masked": masked}
        return steps | {"weights": weights, "output": self.output(out), "lse": lse}

    def scores(self, q: Array, k: Array) -> Array:
        """Raw dot products, or what an operation has instead."""
        if self.case.op == "additive_attention":
            return self.additive_scores(q, k)
        products = q @ k.swapaxes(-1, -2)
        return (
            products + self.key_term(q) if "key_table" in self.case.inputs else products
        )

    def logits(self, scores: Array) -> Array:
        """Scale, softcap, bias, in this order."""
        return self.biased(self.capped(self.scaled(scores)))

    def scaled(self, scores: Array) -> Array:
        """The scores times the scale."""
        return scores * self.scale()

    def capped(self, x: Array) -> Array:
        """The softcap, where there is one."""
        return x if self.case.softcap is None else self.softcap(x, self.case.softcap)

    def softcap(self, x: Array, cap: float) -> Array:
        """c·tanh(x/c)."""
        return cap * np.tanh(x / cap)

    def biased(self, x: Array) -> Array:
        """The bias added."""
        return x + self.bias() + self.distance_bias()

    def masked(self, logits: Array, seen: Array) -> Array:
        """−∞ where the key is blocked."""
        return np.where(seen, logits, -np.inf)

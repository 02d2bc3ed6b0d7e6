"""Attention to fewer keys than there are."""

import numpy as np

from attncheck.variants.model.backward import Backward
from attncheck.variants.model.parts import Array, Arrays, safe


class LowRank(Backward):
    """Linformer's and Nyström's attention."""

    def by_combinations(self) -> Arrays:
        """Attention to r combinations of the keys."""
        is_key = self.keys_combined()
        k, v = (np.where(is_key, self.spread(name), 0.0) for name in "kv")
        k = np.einsum("bnjd,jr->bnrd", k, self.key_projection())
        v = np.einsum("bnje,jr->bnre", v, self.value_projection())
        q = np.where(self.seen().any(axis=-1, keepdims=True), self.input("q"), 0.0)
        logits = self.scaled(q @ k.swapaxes(-1, -2))
        logits = np.where(self.combinations_seen(logits.shape), logits, -np.inf)
        weights, lse = self.softmax(logits)
        return {"output": weights @ v, "lse": lse[..., 0]}

    def keys_combined(self) -> Array:
        """Which keys are in the combinations, `b n j 1`."""
        return self.exists(self.seen())

    def combinations_seen(self, shape: tuple[int, ...]) -> Array:
        """Which combinations a query sees: all, or none where no key is left."""
        return np.broadcast_to(self.seen().any(axis=-1, keepdims=True), shape)

    def key_projection(self) -> Array:
        """E."""
        return self.input("w_e")

    def value_projection(self) -> Array:
        """F; E where it is not given."""
        return self.input("w_f" if "w_f" in self.case.inputs else "w_e")

    def by_landmarks(self) -> Arrays:
        """Three softmaxes, the middle one inverted."""
        q, k, v = self.input("q"), self.spread("k"), self.spread("v")
        few_q, few_k = self.landmarks(q), self.landmarks(k)
        first, core, last = (
            self.softmax(self.scaled(x @ y.swapaxes(-1, -2)))[0]
            for x, y in ((q, few_k), (few_q, few_k), (few_q, k))
        )
        return {"output": self.through(first, core, last @ v)}

    def landmarks(self, x: Array) -> Array:
        """Of every segment one, `b n r d`."""
        count = self.setting("landmarks", 1)
        return np.stack(
            [self.landmark(part) for part in np.split(x, count, axis=2)], axis=2
        )

    def landmark(self, part: Array) -> Array:
        """The mean of a segment."""
        return part.mean(axis=2)

    def through(self, first: Array, core: Array, values: Array) -> Array:
        """The product of the three."""
        return first @ np.linalg.solve(core, values)

    def softmax(self, logits: Array) -> tuple[Array, Array]:
        """Weights and log-sum-exp of whole rows; 0 and −∞ where all is −∞."""
        top = safe(logits.max(axis=-1, keepdims=True))
        total = np.exp(logits - top).sum(axis=-1, keepdims=True)
        filled = np.where(total == 0, 1.0, total)
        return np.exp(logits - top) / filled, np.log(total) + top

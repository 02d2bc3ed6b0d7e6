"""Weights by features of queries and keys."""

import numpy as np

from attncheck.variants.model.backward import Backward
from attncheck.variants.model.parts import Array, Arrays, highest, safe


class Features(Backward):
    """Linear and Performer's attention."""

    def by_features(self) -> Arrays:
        """What sums over keys, of features times values, give a query."""
        seen = self.seen() & self.reached()
        live, attends = self.exists(seen), seen.any(axis=-1, keepdims=True)
        v = self.shown_value(self.spread("v"), live)
        q = np.where(attends, self.input("q"), 0.0)
        of_query, up = self.query_features(q)
        of_key, more = self.key_features(self.shown_key(self.spread("k"), live), live)
        sums = np.einsum("bnij,bnjr,bnje->bnire", seen, of_key, v)
        total = self.denominator(of_query, of_key, seen)
        out = np.einsum("bnir,bnire->bnie", of_query, sums)
        return {
            "output": self.normalised(out, total),
            "lse": self.log_denominator(total, up + more)[..., 0],
        }

    def reached(self) -> Array:
        """Whether the sum that a query takes has got to a key, `b n i j`."""
        if not self.is_causal():
            return np.full(self.size("bnij"), True)
        i, j = np.ogrid[: self.case.sizes["i"], : self.case.sizes["j"]]
        return np.broadcast_to(j - i <= self.last_key(), self.size("bnij"))

    def is_causal(self) -> bool:
        """Whether the sums are prefix sums."""
        return self.setting("causal", False)

    def last_key(self) -> int:
        """The last key that the first query sees."""
        return self.setting("offset", 0)

    def denominator(self, of_query: Array, of_key: Array, seen: Array) -> Array:
        """The sum of the weights, `b n i 1`."""
        sums = np.einsum("bnij,bnjr->bnir", seen, of_key)
        return np.sum(of_query * sums, axis=-1, keepdims=True)

    def normalised(self, out: Array, total: Array) -> Array:
        """Over the sum of the weights; 0 where all of them are."""
        return np.where(total == 0, 0.0, out / np.where(total == 0, 1.0, total))

    def log_denominator(self, total: Array, shift: Array | float) -> Array:
        """The log-sum-exp, shifts put back, of the mean over random features."""
        log = np.where(total == 0, -np.inf, np.log(np.where(total == 0, 1.0, total)))
        return log + shift - np.log(self.features_averaged())

    def features_averaged(self) -> int:
        """How many features a mean is taken over."""
        return len(self.read("draws")) if "draws" in self.case.inputs else 1

    def query_features(self, q: Array) -> tuple[Array, Array | float]:
        """`b n i r`, and by how much their logarithm is larger in truth."""
        if self.case.op == "linear_attention":
            return self.feature(q), 0.0
        logs = self.random_logs(q)
        top = logs.max(axis=-1, keepdims=True)
        return self.random_feature(logs - top), self.put_back(top)

    def key_features(self, k: Array, live: Array) -> tuple[Array, Array | float]:
        """`b n j r`, and by how much their logarithm is larger in truth."""
        if self.case.op == "linear_attention":
            return self.feature(k), 0.0
        logs = self.random_logs(k)
        top = self.key_top(np.where(live, logs, -np.inf))
        return self.random_feature(logs - top), self.put_back(highest(top))

    def key_top(self, logs: Array) -> Array:
        """The largest of all keys of a head, 0 where it has none."""
        return safe(logs.max(axis=(-2, -1), keepdims=True))

    def put_back(self, top: Array) -> Array:
        """What the log-sum-exp gets of what was taken off."""
        return top

    def feature(self, x: Array) -> Array:
        """relu, or elu + 1."""
        if self.feature_name() == "relu":
            return np.maximum(x, 0.0)
        return self.elu(x) + self.above_elu()

    def feature_name(self) -> str:
        """Which of them."""
        return self.setting("feature", "elu+1")

    def elu(self, x: Array) -> Array:
        """x, or eˣ − 1 below 0."""
        return np.where(x > 0, x, np.expm1(np.minimum(x, 0.0)))

    def above_elu(self) -> float:
        """What makes all features positive."""
        return 1.0

    def random_feature(self, log: Array) -> Array:
        """The exponential."""
        return np.exp(log)

    def random_logs(self, x: Array) -> Array:
        """w·x − |x|²/2, of x times the root of the scale."""
        x = x * self.feature_scale()
        products = np.einsum("bnxd,rd->bnxr", x, self.input("draws"))
        return products - self.half_norm(x)

    def feature_scale(self) -> float:
        """What queries and keys are multiplied by."""
        return self.case.scale_value**0.5

    def half_norm(self, x: Array) -> Array:
        """|x|²/2."""
        return np.linalg.norm(x, axis=-1, keepdims=True) ** 2 / 2

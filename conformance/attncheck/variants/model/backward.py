"""From the gradient of the output to those of all inputs."""

import numpy as np

from attncheck.variants.model.forward import Forward
from attncheck.variants.model.parts import Array, Arrays, blocks


class Backward(Forward):
    """The backward pass."""

    def backward(self, q: Array, k: Array, v: Array, forward: Arrays) -> Arrays:
        """The gradients of all inputs, from the output and the log-sum-exp."""
        masked, lse = forward["masked"], forward["lse"]
        live = self.exists(self.seen())
        k, v = self.shown_key(k, live), self.shown_value(v, live)
        rows = (lse != -np.inf)[..., None]
        d_out, d_lse = np.where(rows, self.incoming(), 0.0), self.d_lse()
        q = np.where(rows, q, 0.0)
        p = self.weights_again(masked, lse)
        dp = self.d_weights(d_out, v)
        if "value_table" in self.case.inputs:
            dp = dp + self.d_weights_of_table(d_out)
        delta = self.delta(d_out, forward["output"], p, dp) - d_lse
        ds = np.where(masked == -np.inf, 0.0, self.d_logits(p, dp, delta))
        dx = self.d_scores(ds, forward["scores"])
        gradients = {
            "dq": self.to_query(self.d_query(dx, k), rows),
            "dk": self.grouped_key(self.to_key(self.d_key(dx, q), live)),
            "dv": self.grouped_value(self.d_value(p, d_out)),
            "dbias": self.d_bias(ds),
        }
        return gradients | self.own_gradients(
            {"q": q, "k": k, "p": p, "ds": ds, "dx": dx}
            | {"d_out": d_out, "delta": delta, "lse": lse, "rows": rows}
        )

    def incoming(self) -> Array:
        """The gradient that the output of every head comes with."""
        if self.case.op == "latent_attention":
            return np.einsum("bic,nec->bnie", self.input("d_out"), self.input("w_o"))
        return self.input("d_out")

    def d_lse(self) -> Array:
        """The gradient that the log-sum-exp comes with; 0 for an empty row."""
        seen = self.seen().any(axis=-1) | ("sinks" in self.case.inputs)
        return np.where(seen, self.input("d_lse"), 0.0)[..., None]

    def weights_again(self, masked: Array, lse: Array) -> Array:
        """The weights, computed again."""
        return self.weights(masked, lse)

    def d_weights(self, d_out: Array, v: Array) -> Array:
        """The gradient of the weights, through dropout."""
        return (d_out @ v.swapaxes(-1, -2)) * self.keep()

    def delta(self, d_out: Array, out: Array, p: Array, dp: Array) -> Array:
        """Σ over the row of weights times their gradients, from the output."""
        return (d_out * out).sum(axis=-1, keepdims=True)

    def d_logits(self, p: Array, dp: Array, delta: Array) -> Array:
        """The gradient of the logits."""
        return p * (dp - delta)

    def d_scores(self, ds: Array, scores: Array) -> Array:
        """The gradient of the scaled scores."""
        if self.case.softcap is None:
            return ds
        return ds * self.slope(self.scaled(scores), self.case.softcap)

    def slope(self, x: Array, cap: float) -> Array:
        """The derivative of the softcap."""
        return 1 - np.tanh(x / cap) ** 2

    def d_query(self, dx: Array, k: Array) -> Array:
        """The gradient of the queries, block of keys by block of keys."""
        total, dx = np.zeros((*dx.shape[:3], k.shape[-1])), self.stored(dx)
        for tile in blocks(dx.shape[-1], self.tile):
            part = dx[..., tile] @ k[..., tile, :] * self.query_scale()
            total = self.add_query(total, part)
        if "key_table" in self.case.inputs:
            total = total + self.d_query_of_table(dx)
        return total

    def d_key(self, dx: Array, q: Array) -> Array:
        """The gradient of the keys of every query head."""
        return self.stored(dx).swapaxes(-1, -2) @ q * self.key_scale()

    def d_value(self, p: Array, d_out: Array) -> Array:
        """The gradient of the values of every query head."""
        return self.stored_weights(p * self.keep()).swapaxes(-1, -2) @ d_out

    def add_query(self, total: Array, part: Array) -> Array:
        """The sum over blocks of keys that gives dq."""
        return total + part

    def d_bias(self, ds: Array) -> Array:
        """The gradient of the bias, summed over the axes that were broadcast."""
        if "bias" not in self.case.inputs:
            return ds
        shape = self.case.inputs["bias"].shape
        axes = tuple(a for a, size in enumerate(shape) if size != ds.shape[a])
        return ds.sum(axis=axes, keepdims=True)

    def to_query(self, d: Array, rows: Array) -> Array:
        """From the gradient of q as the scores take it to that of the input."""
        if self.case.op == "rotary_attention":
            return self.turned_back(d, self.query_places())
        if self.case.op == "cosine_attention":
            return self.unit_back(self.d_tempered(d), self.shown_query(rows))
        return d

    def to_key(self, d: Array, live: Array) -> Array:
        """Likewise of the keys of every query head."""
        if self.case.op == "rotary_attention":
            return self.turned_back(d, self.key_places())
        if self.case.op == "cosine_attention":
            return self.unit_back(d, self.shown_key(self.spread("k"), live))
        return d

    def shown_query(self, rows: Array) -> Array:
        """The queries as they are given, 0 where they have no key."""
        return np.where(rows, self.input("q"), 0.0)

    def own_gradients(self, found: Arrays) -> Arrays:
        """Those of the inputs that only the operation has, and what they add."""
        inputs, results = self.case.inputs, {}
        if "slopes" in inputs:
            results["dslopes"] = self.d_slopes(found["ds"])
        if "table" in inputs:
            results["dtable"] = self.d_table(found["ds"], found["dx"])
        if "sinks" in inputs:
            weight = np.exp(self.sink() - found["lse"][..., None])
            results["dsinks"] = self.d_sinks(weight, found["delta"])
        if "temperature" in inputs:
            unit = self.unit_query(self.shown_query(found["rows"]))
            dq = self.d_query(found["dx"], found["k"])
            results["dtemperature"] = self.d_temperature(dq, unit)
        if "value_table" in inputs:
            results["dvalue_table"] = self.d_value_table(found["p"], found["d_out"])
        if "key_table" in inputs:
            results["dkey_table"] = self.d_key_table(found["dx"], found["q"])
        if self.case.op == "additive_attention":
            dx = found["dx"] * self.scale()
            results |= self.d_additive(dx, found["q"], found["k"])
        return results

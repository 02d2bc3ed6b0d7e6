"""Attention in float64, in blocks of keys as kernels do it; every method is one step.

A variant replaces some steps.  The model shares no code with the definition, with the
rooms, or with the formulas that are certified.
"""

from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from attncheck.budget import output_dtype
from attncheck.case import DTYPES, Case

Array = np.ndarray
Arrays = dict[str, np.ndarray]

TILE = 16
"""Keys, or queries, of a block."""


class Model:
    """One call of a case.  Keys and values are repeated for every query head.

    Axes are those of the spec with `n` for `h`: q and k are `b n i d` and `b n j d`, v
    is `b n j e`, everything between `b n i j`, a row's numbers `b n i 1`.
    """

    reference: ClassVar[str] = ""
    """Where the mistake was seen in public, as `owner/repo#number`."""
    convention: ClassVar[tuple[str, Any] | None] = None
    """The field of `Conventions` that the variant changes, and to what."""
    rounds: ClassVar[bool] = False
    """Whether it is the precision that differs, not the formula."""

    def __init__(self, case: Case, *, stores: bool = False) -> None:
        """`stores`: round weights and d_logits to storage before their products, as
        the profile tensor-core does."""
        self.case, self.stores = case, stores

    def __init_subclass__(
        cls,
        reference: str = "",
        convention: tuple[str, Any] | None = None,
        rounds: bool = False,
    ) -> None:
        cls.reference, cls.convention, cls.rounds = reference, convention, rounds

    def results(self) -> Arrays:
        """Everything that the case could want, in float64."""
        if self.case.op == "multi_head_attention":
            forward = self.forward(*self.projected())
            return forward | {"output": self.merged(forward["output"])}
        operands = self.input("q"), self.spread("k"), self.spread("v")
        forward = self.forward(*operands)
        return forward | self.backward(*operands, forward)

    # ------------------------------------------------------------------- the inputs

    def input(self, name: str) -> Array:
        """An input in float64, or its neutral element where the case has none."""
        if name in self.case.inputs:
            return self.read(name).astype(np.float64)
        return np.zeros(self.size({"d_out": "bnie", "d_lse": "bni"}[name]))

    def read(self, name: str) -> Array:
        """An input as it is stored."""
        return self.case.inputs[name]

    def size(self, axes: str) -> tuple[int, ...]:
        """The sizes of some axes."""
        return tuple(self.case.sizes[axis] for axis in axes)

    def full(self, name: str, default: float | bool) -> Array:
        """A mask or bias at full size, `b n i j`."""
        array = self.read(name) if name in self.case.inputs else np.array(default)
        return np.broadcast_to(array, self.size("bnij"))

    def spread(self, name: str) -> Array:
        """Keys or values, for every query head the head that it shares."""
        return self.repeated(self.input(name))

    def repeated(self, array: Array) -> Array:
        """`b h j x` → `b n j x`."""
        return np.repeat(array, self.case.sizes["g"], axis=1)

    def grouped(self, gradient: Array) -> Array:
        """`b n j x` → `b h j x`: the sum over the heads of a group."""
        b, h, g = self.size("bhg")
        return gradient.reshape(b, h, g, *gradient.shape[2:]).sum(axis=2)

    def seen(self) -> Array:
        """Whether the query may see the key."""
        return self.full("mask", True)

    def bias(self) -> Array:
        """The bias."""
        return self.full("bias", 0.0).astype(np.float64)

    def keep(self) -> Array:
        """The factor that dropout puts on every weight."""
        if "dropout_keep" not in self.case.inputs:
            return np.ones(self.size("bnij"))
        return self.kept(self.full("dropout_keep", True), self.case.dropout_rate)

    def kept(self, keep: Array, rate: float) -> Array:
        """0 or 1/(1 − rate)."""
        return keep / (1 - rate)

    # ------------------------------------------------------------------ projections

    def projected(self) -> tuple[Array, Array, Array]:
        """q, k and v of a multi-head case."""
        x = self.input("x")
        context = self.context()
        return (
            self.project(x, "q"),
            self.repeated(self.project(context, "k")),
            self.repeated(self.project(context, "v")),
        )

    def context(self) -> Array:
        """Where keys and values come from."""
        return self.input("context" if "context" in self.case.inputs else "x")

    def weight(self, kind: str) -> Array:
        """The weight of a projection, `c n d`."""
        return self.input(f"w_{kind}")

    def project(self, x: Array, kind: str) -> Array:
        """`b i c` → `b n i d`."""
        weight = self.weight(kind)
        flat = x @ weight.reshape(len(weight), -1) + self.shift(kind)
        return self.split(flat, *weight.shape[1:])

    def shift(self, kind: str) -> Array | float:
        """The bias of a projection, its heads side by side; 0 where it has none."""
        name = f"b_{kind}"
        return self.input(name).ravel() if name in self.case.inputs else 0.0

    def split(self, flat: Array, heads: int, width: int) -> Array:
        """`b i (n d)` → `b n i d`."""
        return flat.reshape(*flat.shape[:2], heads, width).transpose(0, 2, 1, 3)

    def merged(self, heads: Array) -> Array:
        """`b n i e` → `b i c`: the output projection."""
        weight = self.weight("o")
        flat = self.joined(heads)
        return flat @ weight.reshape(-1, weight.shape[-1]) + self.shift("o")

    def joined(self, heads: Array) -> Array:
        """`b n i e` → `b i (n e)`."""
        return heads.transpose(0, 2, 1, 3).reshape(*self.size("bi"), -1)

    # ---------------------------------------------------------------------- forward

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

    def exists(self, seen: Array) -> Array:
        """Whether any query of a group sees the key: `b n j 1`."""
        b, h, g, i, j = self.size("bhgij")
        of_group = seen.reshape(b, h, g, i, j).any(axis=(2, 3))
        return np.repeat(of_group, g, axis=1)[..., None]

    def shown_key(self, k: Array, live: Array) -> Array:
        """Keys, 0 where nobody sees them."""
        return np.where(live, k, 0.0)

    def shown_value(self, v: Array, live: Array) -> Array:
        """Values, 0 where nobody sees them."""
        return np.where(live, v, 0.0)

    def scores(self, q: Array, k: Array) -> Array:
        """Raw dot products."""
        return q @ k.swapaxes(-1, -2)

    def scale(self) -> float:
        """The factor on the raw scores."""
        return self.case.scale_value

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
        return x + self.bias()

    def masked(self, logits: Array, seen: Array) -> Array:
        """−∞ where the key is blocked."""
        return np.where(seen, logits, -np.inf)

    # ---------------------------------------------------- softmax, a block at a time

    def tiles(self) -> list[slice]:
        """The blocks of keys."""
        return _blocks(self.case.sizes["j"])

    def attend(self, masked: Array, v: Array) -> tuple[Array, Array]:
        """Output and log-sum-exp, normalised after the product with the values."""
        rows = (*masked.shape[:3], 1)
        top, total = np.full(rows, -np.inf), np.zeros(rows)
        out, keep = np.zeros((*rows[:3], v.shape[-1])), self.keep()
        for tile in self.tiles():
            new = self.top(top, masked[..., tile])
            factor = self.rescale(top, new)
            p = self.exp(masked[..., tile] - _safe(new))
            total = self.sum_up(self.total_rescaled(total, factor), p)
            part = self.stored_weights(p * keep[..., tile]) @ self.values(v, tile)
            out = self.add(self.out_rescaled(out, factor), part)
            top = new
        empty = top == -np.inf
        return self.divided(out, total, empty), self.lse(top, total)[..., 0]

    def values(self, v: Array, tile: slice) -> Array:
        """The values of a block."""
        return v[..., tile, :]

    def top(self, top: Array, logits: Array) -> Array:
        """The running maximum."""
        return np.maximum(top, logits.max(axis=-1, keepdims=True))

    def exp(self, x: Array) -> Array:
        """The exponential of a block's logits, less the maximum."""
        return np.exp(x)

    def rescale(self, old: Array, new: Array) -> Array:
        """What a sum over earlier blocks is multiplied by when the maximum grows."""
        return np.exp(old - _safe(new))

    def total_rescaled(self, total: Array, factor: Array) -> Array:
        """The row sum so far."""
        return total * factor

    def out_rescaled(self, out: Array, factor: Array) -> Array:
        """The output so far."""
        return out * factor

    def sum_up(self, total: Array, p: Array) -> Array:
        """The row sum."""
        return total + p.sum(axis=-1, keepdims=True)

    def add(self, total: Array, part: Array) -> Array:
        """A sum over blocks, in the accumulator."""
        return total + part

    def stored(self, x: Array) -> Array:
        """An operand of a product, as it is kept until then."""
        return self.narrow(x) if self.stores else x

    def stored_weights(self, p: Array) -> Array:
        """The weights, as they are kept until their products."""
        return self.stored(p)

    def divided(self, out: Array, total: Array, empty: Array) -> Array:
        """The output of a row; 0 where it is empty."""
        return np.where(empty, 0.0, out / np.where(empty, 1.0, total))

    def lse(self, top: Array, total: Array) -> Array:
        """The log-sum-exp; −∞ where the row is empty."""
        return np.where(top == -np.inf, -np.inf, top + np.log(total))

    def weights(self, masked: Array, lse: Array) -> Array:
        """The weights, from the log-sum-exp; 0 where blocked."""
        p = np.exp(masked - _safe(lse[..., None]))
        return np.where(masked == -np.inf, 0.0, p)

    def output(self, out: Array) -> Array:
        """The output before it is rounded."""
        return out

    # --------------------------------------------------------------------- backward

    def backward(self, q: Array, k: Array, v: Array, forward: Arrays) -> Arrays:
        """The gradients of all inputs, from the output and the log-sum-exp."""
        masked, lse = forward["masked"], forward["lse"]
        live = self.exists(self.seen())
        k, v = self.shown_key(k, live), self.shown_value(v, live)
        rows = (lse != -np.inf)[..., None]
        d_out, d_lse = np.where(rows, self.input("d_out"), 0.0), self.d_lse()
        q = np.where(rows, q, 0.0)
        p = self.weights_again(masked, lse)
        dp = self.d_weights(d_out, v)
        delta = self.delta(d_out, forward["output"], p, dp) - d_lse
        ds = np.where(masked == -np.inf, 0.0, self.d_logits(p, dp, delta))
        dx = self.d_scores(ds, forward["scores"])
        return {
            "dq": self.d_query(dx, k),
            "dk": self.grouped_key(self.d_key(dx, q)),
            "dv": self.grouped_value(self.d_value(p, d_out)),
            "dbias": self.d_bias(ds),
        }

    def d_lse(self) -> Array:
        """The gradient that the log-sum-exp comes with; 0 for an empty row."""
        seen = self.seen().any(axis=-1)
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
        total, dx = np.zeros(self.size("bnid")), self.stored(dx)
        for tile in _blocks(dx.shape[-1]):
            part = dx[..., tile] @ k[..., tile, :] * self.query_scale()
            total = self.add_query(total, part)
        return total

    def d_key(self, dx: Array, q: Array) -> Array:
        """The gradient of the keys of every query head."""
        return self.stored(dx).swapaxes(-1, -2) @ q * self.key_scale()

    def d_value(self, p: Array, d_out: Array) -> Array:
        """The gradient of the values of every query head."""
        return self.stored_weights(p * self.keep()).swapaxes(-1, -2) @ d_out

    def query_scale(self) -> float:
        """The scale, once more."""
        return self.scale()

    def key_scale(self) -> float:
        """The scale, once more."""
        return self.scale()

    def add_query(self, total: Array, part: Array) -> Array:
        """The sum over blocks of keys that gives dq."""
        return total + part

    def grouped_key(self, gradient: Array) -> Array:
        """dk of every key/value head."""
        return self.grouped(gradient)

    def grouped_value(self, gradient: Array) -> Array:
        """dv of every key/value head."""
        return self.grouped(gradient)

    def d_bias(self, ds: Array) -> Array:
        """The gradient of the bias, summed over the axes that were broadcast."""
        if "bias" not in self.case.inputs:
            return ds
        shape = self.case.inputs["bias"].shape
        axes = tuple(a for a, size in enumerate(shape) if size != ds.shape[a])
        return ds.sum(axis=axes, keepdims=True)

    # -------------------------------------------------------------------- precision

    @cached_property
    def storage(self) -> np.dtype:
        """The storage type; for wide ones the type that kernels save in: bfloat16."""
        storage = DTYPES[self.case.dtype]
        return storage if storage.itemsize == 2 else DTYPES["BF16"]

    def narrow(self, x: Array) -> Array:
        """Rounded to 16 bits."""
        return x.astype(self.storage).astype(np.float64)


def rounded(case: Case, results: Arrays) -> Arrays:
    """The results that the case wants, each in its own type."""
    return {
        name: array.astype(output_dtype(case, name))
        for name, array in results.items()
        if name in case.wants
    }


def narrow_sum(terms: Array, dtype: Any) -> Array:
    """Σ over the last axis, every partial sum rounded to `dtype`."""
    total = np.zeros(terms.shape[:-1])
    for term in np.moveaxis(terms, -1, 0):
        total = (total + term).astype(dtype).astype(np.float64)
    return total


def toward_zero(x: Array, dtype: np.dtype) -> Array:
    """Cut off to `dtype` instead of rounded."""
    nearest = x.astype(dtype)
    smaller = np.nextafter(nearest, dtype.type(0))
    wide = np.abs(nearest.astype(np.float64))
    return np.where(wide > np.abs(x), smaller, nearest).astype(np.float64)


def _blocks(length: int) -> list[slice]:
    return [slice(at, min(at + TILE, length)) for at in range(0, length, TILE)]


def _safe(row: Array) -> Array:
    """0 in place of −∞, so that −∞ − 0 = −∞."""
    return np.where(row == -np.inf, 0.0, row)

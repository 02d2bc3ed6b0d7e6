"""The definition a second time: formulas over whole arrays, in any arithmetic.

In pairs of float64 they give what a float64 case must give; in balls they prove that
this, and the definition in float64, are good enough (`attncheck.certify`).  No code is
shared with `attncheck.definition`, so that what is proven includes its meaning.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add
from typing import Any, Protocol

import numpy as np

from attncheck.case import Case
from attncheck.operations import OPERATIONS

Array = Any
"""Numbers of some arithmetic: + − · / @ and abs, indices, reshape and swapaxes."""


class Arithmetic(Protocol):
    """What an arithmetic has beside the operators of its arrays; a module can be one.

    NaN spreads in it as in IEEE 754; infinities are stored, but not computed with.
    """

    def number(self, value: Any, /) -> Array:
        """The float64 numbers given, exactly; numbers as they are."""

    def nearest(self, value: Array, /) -> np.ndarray:
        """The float64 numbers that lie nearest."""

    def where(self, condition: np.ndarray, yes: Any, no: Any, /) -> Array:
        """As of arrays."""

    def product(self, a: Array, b: Array, more: int, /) -> Array:
        """a @ b; where rounding is bounded, as if summed with `more` further terms."""

    def exp(self, x: Array, /) -> Array:
        """eˣ."""

    def log(self, x: Array, /) -> Array:
        """The natural logarithm."""

    def tanh(self, x: Array, /) -> Array:
        """The hyperbolic tangent."""

    def sqrt(self, x: Array, /) -> Array:
        """The square root."""

    def cos(self, x: Array, /) -> Array:
        """The cosine."""

    def sin(self, x: Array, /) -> Array:
        """The sine."""

    def inverse(self, x: Array, /) -> Array:
        """The inverse of square matrices, along the last two axes."""


def results(case: Case, numbers: Arithmetic) -> dict[str, Array]:
    """What `definition.expected` gives, by the same names and in the same shapes.

    Not covered are visible infinities in arrays other than the bias and, but for the
    gradients, the values; and NaN in a key that some of its queries may not see.
    """
    if case.op in OPERATIONS:
        return OPERATIONS[case.op].results(
            case, numbers, lambda one: _results(one.case, numbers, one.operands)
        )
    return _results(case, numbers, {})


def _results(
    case: Case, numbers: Arithmetic, operands: Mapping[str, Array]
) -> dict[str, Array]:
    formulas = _Formulas(case, numbers, operands)
    found = formulas.forward()
    if case.op == "multi_head_attention":
        found["output"] = formulas.merged(found["heads"])
    elif {"d_out", "d_lse"} & set(case.inputs):
        found |= formulas.gradients()
    return found


@dataclass(frozen=True, eq=False)
class _Formulas:
    """The query heads of a group are stacked, as rows of their key/value head.

    Their axis is `r`, g · i long.
    """

    case: Case
    numbers: Arithmetic
    operands: Mapping[str, Array]
    """q, k, v, d_out and the bias at full size, where they are not what the case
    holds."""

    # ------------------------------------------------------------------ what is given

    @cached_property
    def seen(self) -> np.ndarray:
        """`b h r j`, boolean."""
        return self._rows("mask", "j", absent=True)

    @cached_property
    def bias(self) -> np.ndarray:
        """`b h r j`, float64."""
        return self._rows("bias", "j")

    @property
    def _finite_bias(self) -> Array:
        """`b h r j`, 0 where it is infinite."""
        exact = "bias" in self.operands
        bias = self._stacked(self.operands["bias"]) if exact else self.bias
        return self.numbers.where(np.isinf(self.bias), 0.0, bias)

    @cached_property
    def kept(self) -> Array:
        """`b h r j`: the factor that dropout puts on every weight."""
        left = self.numbers.number(1.0) - self.case.dropout_rate
        if "dropout_keep" not in self.case.inputs:
            return self.numbers.number(1.0)
        return self.numbers.number(self._rows("dropout_keep", "j")) / left

    @cached_property
    def q(self) -> Array:
        """`b h r d`, 0 where no key is seen."""
        if self.case.op == "attention":
            q = self._stacked(self._operand("q"))
        else:
            q = self._stacked(self._projected("x", "w_q", "b_q"))
        attends = np.any(self.seen, axis=-1, keepdims=True)
        return self.numbers.where(attends, q, 0.0)

    @cached_property
    def k(self) -> Array:
        """`b h j d`, 0 where no query sees it."""
        if self.case.op == "attention":
            k = self._operand("k")
        else:
            k = self._projected(self._context, "w_k", "b_k")
        return self.numbers.where(self._attended, k, 0.0)

    @cached_property
    def v(self) -> Array:
        """`b h j e`, 0 where no query sees it, or where it is infinite."""
        if self.case.op == "attention":
            v = self._operand("v")
            v = self.numbers.where(np.isinf(self.numbers.nearest(v)), 0.0, v)
        else:
            v = self._projected(self._context, "w_v", "b_v")
        return self.numbers.where(self._attended, v, 0.0)

    @cached_property
    def infinite(self) -> np.ndarray:
        """`b h j e`: the infinities among the values that are seen, else 0."""
        v = self.case.inputs.get("v", np.zeros(()))
        return np.where(np.isinf(v) & self._attended, v, 0).astype(np.float64)

    # ---------------------------------------------------------------------- forward

    @cached_property
    def scores(self) -> Array:
        """`b h r j`."""
        return self.q @ self.k.swapaxes(-1, -2)

    @cached_property
    def scaled(self) -> Array:
        """`b h r j`, over the softcap where there is one."""
        scaled = self.scores * self.case.scale_value
        return scaled if self.case.softcap is None else scaled / self.case.softcap

    @cached_property
    def logits(self) -> Array:
        """`b h r j`, without the infinities of the bias."""
        capped = self.scaled
        if self.case.softcap is not None:
            capped = self.numbers.tanh(capped) * self.case.softcap
        return capped + self._finite_bias

    @cached_property
    def live(self) -> np.ndarray:
        """`b h r j`: seen, and its logit is not −∞."""
        is_nan = np.isnan(self.numbers.nearest(self.logits))
        return self.seen & (is_nan | (self.bias > -np.inf))

    @cached_property
    def empty(self) -> np.ndarray:
        """`b h r 1`: nothing lives in the row."""
        return ~np.any(self.live, axis=-1, keepdims=True)

    @cached_property
    def shift(self) -> np.ndarray:
        """`b h r 1`, float64: close to the greatest logit; any other would do."""
        logits = self.numbers.nearest(self.logits)
        logits = np.where(self.live & np.isfinite(logits), logits, -np.inf)
        top = logits.max(axis=-1, keepdims=True, initial=-np.inf)
        return np.where(np.isfinite(top), top, 0.0)

    @cached_property
    def exponentials(self) -> Array:
        """`b h r j`, NaN at a bias of +∞, because ∞ − ∞ is."""
        where = self.numbers.where
        logits = where(self.bias == np.inf, np.nan, self.logits)
        logits = where(self.live, logits - self.shift, 0.0)
        return where(self.live, self.numbers.exp(logits), 0.0)

    @cached_property
    def total(self) -> Array:
        """`b h r 1`: the row sum, 1 where it is empty."""
        return self.numbers.where(self.empty, 1.0, self._row_sum(self.exponentials))

    @cached_property
    def weights(self) -> Array:
        """`b h r j`, before dropout."""
        return self.numbers.where(self.seen, self.exponentials / self.total, 0.0)

    @cached_property
    def used(self) -> Array:
        """`b h r j`: after dropout."""
        return self.weights * self.kept

    @cached_property
    def heads(self) -> Array:
        """`b h r e`."""
        infinite = self.numbers.nearest(self.used) @ self.infinite
        heads = self.numbers.where(np.isfinite(infinite), self.used @ self.v, infinite)
        return self.numbers.where(self.empty, 0.0, heads)

    def forward(self) -> dict[str, Array]:
        """Results as they are returned, their infinities put in."""
        where = self.numbers.where
        is_infinite = np.isinf(self.bias) & ~np.isnan(self.numbers.nearest(self.logits))
        logits = where(is_infinite, self.bias, self.logits)
        log = self.numbers.log(self.total) + self.shift
        found = {
            "scores": where(self.seen, self.scores, np.nan),
            "logits": where(self.seen, logits, np.nan),
            "masked": where(self.seen, logits, -np.inf),
            "weights": self.weights,
            "heads": self.heads,
            "output": self.heads,
            "lse": where(self.empty, -np.inf, log),
        }
        found = {name: self._unstacked(array) for name, array in found.items()}
        return found | {"lse": found["lse"][..., 0]}

    def merged(self, heads: Array) -> Array:
        """`b n i e -> b i c`."""
        parts = heads @ self.numbers.number(self._float64("w_o"))
        terms = [parts[:, n] for n in range(self.case.sizes["n"])]
        return reduce(add, terms) + self._optional("b_o")

    # --------------------------------------------------------------------- backward

    @cached_property
    def d_out(self) -> Array:
        """`b h r e`, 0 in empty rows."""
        exact = "d_out" in self.operands
        d_out = (
            self._stacked(self._operand("d_out")) if exact else self._rows("d_out", "e")
        )
        return self.numbers.where(self.empty, 0.0, d_out)

    @cached_property
    def d_lse(self) -> Array:
        """`b h r 1`, 0 in empty rows."""
        d_lse = self.case.inputs.get("d_lse", np.zeros((1, 1, 1)))[..., None]
        d_lse = self._stacked(self._full(d_lse, (1,)).astype(np.float64))
        return self.numbers.where(self.empty, 0.0, d_lse)

    @cached_property
    def d_logits(self) -> Array:
        """`b h r j`: p (dp − Σ p dp + d_lse), dp being the gradient of the weights."""
        dp = (self.d_out @ self.v.swapaxes(-1, -2)) * self.kept
        mean = self._row_sum(self.weights * dp)
        ds = self.weights * (dp - mean + self.d_lse)
        return self.numbers.where(self.seen, ds, 0.0)

    @cached_property
    def slope(self) -> Array:
        """`b h r j`: sech² of what is capped, 4e^−2|x|/(1 + e^−2|x|)²."""
        if self.case.softcap is None:
            return self.numbers.number(1.0)
        small = self.numbers.exp(abs(self.scaled) * -2.0)
        return small * 4.0 / ((small + 1.0) * (small + 1.0))

    def gradients(self) -> dict[str, Array]:
        """Gradients of sum(output · d_out) + sum(lse · d_lse)."""
        dx = self.d_logits * self.slope * self.case.scale_value
        found = {
            "dq": self._unstacked(dx @ self.k),
            "dk": dx.swapaxes(-1, -2) @ self.q,
            "dv": self.used.swapaxes(-1, -2) @ self.d_out,
        }
        if "bias" in self.case.inputs:
            found["dbias"] = self._summed_to_bias(self._unstacked(self.d_logits))
        return found

    def _summed_to_bias(self, array: Array) -> Array:
        """`b n i j` summed over the axes along which the bias is 1, kept as 1."""
        for axis, size in enumerate(self.case.inputs["bias"].shape):
            if size != array.shape[axis]:
                before, after = array.shape[:axis], array.shape[axis + 1 :]
                index = (slice(None),) * axis
                terms = [array[*index, at : at + 1] for at in range(array.shape[axis])]
                zero = self.numbers.number(np.zeros((*before, 1, *after)))
                array = reduce(add, terms, zero)
        return array

    # ------------------------------------------------------------------ arrangement

    @property
    def _attended(self) -> np.ndarray:
        """`b h j 1`: some row sees the key."""
        return np.any(self.seen, axis=-2, keepdims=True).swapaxes(-1, -2)

    @property
    def _context(self) -> str:
        return "context" if "context" in self.case.inputs else "x"

    def _projected(self, name: str, weight: str, bias: str) -> Array:
        """`b j m, m h d -> b h j d`."""
        x, w = self._float64(name)[:, None], self._float64(weight).swapaxes(0, 1)
        product = self.numbers.number(x) @ self.numbers.number(w)
        return product + self._optional(bias)[..., None, :]

    def _row_sum(self, array: Array) -> Array:
        """`b h r j -> b h r 1`."""
        return array @ self.numbers.number(np.ones((self.case.sizes["j"], 1)))

    def _rows(self, name: str, axis: str, *, absent: float = 0.0) -> np.ndarray:
        """An input at full size, `b h r` and one more axis; bool, or else float64."""
        array = self.case.inputs.get(name, np.full((1, 1, 1, 1), absent))
        array = self._full(array, (self.case.sizes[axis],))
        return self._stacked(array if array.dtype == bool else array.astype(np.float64))

    def _full(self, array: np.ndarray, width: tuple[int, ...]) -> np.ndarray:
        sizes = self.case.sizes
        return np.broadcast_to(array, (sizes["b"], sizes["n"], sizes["i"], *width))

    def _stacked(self, array: Array) -> Array:
        """`b (h g) i x -> b h (g i) x`."""
        b, h, g, i = (self.case.sizes[axis] for axis in "bhgi")
        return array.reshape(b, h, g * i, array.shape[-1])

    def _unstacked(self, array: Array) -> Array:
        """`b h (g i) x -> b (h g) i x`."""
        b, n, i = (self.case.sizes[axis] for axis in "bni")
        return array.reshape(b, n, i, array.shape[-1])

    def _operand(self, name: str) -> Array:
        if name in self.operands:
            return self.operands[name]
        return self.numbers.number(self._float64(name))

    def _optional(self, name: str) -> np.ndarray:
        return self.case.inputs.get(name, np.zeros((1, 1))).astype(np.float64)

    def _float64(self, name: str) -> np.ndarray:
        return self.case.inputs[name].astype(np.float64)

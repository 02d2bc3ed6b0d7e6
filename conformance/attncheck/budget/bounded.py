"""Numbers that carry a bound of their error: running error analysis.

Every number is its exact value, in float64, with a bound of how far one that is
computed by the profile may lie from it.  What an operation does before and after plain
attention (`attncheck.operations`), run in this arithmetic, gives the errors of the
operands, and takes those of the gradients back to the operation's own inputs.

A sum of products is bounded in any order, as everywhere in the budget.
Source: Higham, Accuracy and Stability of Numerical Algorithms, §3.3.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attncheck import floats
from attncheck.budget.profile import Units
from attncheck.budget.rounding import compound, gamma

SVD = 8
"""Backward error of singular values, in units of r·u times the largest: not derived
(LAPACK promises a modest function of r), but measured on the rooms' pseudo-inverse."""


@dataclass(frozen=True, eq=False)
class Bounded:
    """An array of numbers, and of bounds of their errors; operators as of arrays."""

    value: np.ndarray
    error: np.ndarray
    unit: Units

    __array_ufunc__ = None  # `float64 array * bounded` is left to the bounded

    @property
    def shape(self) -> tuple[int, ...]:
        """As of an array."""
        return self.value.shape

    @property
    def reach(self) -> np.ndarray:
        """The greatest magnitude that a number can be computed as."""
        return np.abs(self.value) + self.error

    def map(self, rearrange: Callable[[np.ndarray], np.ndarray]) -> "Bounded":
        """Both arrays rearranged alike."""
        return replace(self, value=rearrange(self.value), error=rearrange(self.error))

    def __getitem__(self, index: Any) -> "Bounded":
        return self.map(lambda array: array[index])

    def reshape(self, *shape: int) -> "Bounded":
        """As of an array."""
        return self.map(lambda array: array.reshape(*shape))

    def swapaxes(self, a: int, b: int) -> "Bounded":
        """As of an array."""
        return self.map(lambda array: array.swapaxes(a, b))

    def __neg__(self) -> "Bounded":
        return replace(self, value=-self.value)

    def __abs__(self) -> "Bounded":
        return replace(self, value=np.abs(self.value))

    def __add__(self, other: Any) -> "Bounded":
        other = self._like(other)
        return self._rounded(self.value + other.value, self.error + other.error)

    def __sub__(self, other: Any) -> "Bounded":
        return self + -self._like(other)

    def __rsub__(self, other: Any) -> "Bounded":
        return -self + other

    def __mul__(self, other: Any) -> "Bounded":
        other = self._like(other)
        error = self.error * other.reach + np.abs(self.value) * other.error
        error = error + self._flushed(self.reach, other.reach)
        return self._rounded(self.value * other.value, error)

    def __truediv__(self, other: Any) -> "Bounded":
        other = self._like(other)
        least = np.maximum(np.abs(other.value) - other.error, 0.0)
        value = self.value / other.value
        error = (self.error + np.abs(value) * other.error) / least
        return self._rounded(value, error + self._flushed(self.reach, 1 / least))

    def __matmul__(self, other: "Bounded") -> "Bounded":
        """`… r k, … k c -> … r c`, summed in any order."""
        return self.times(other, 0)

    def times(self, other: "Bounded", more: int) -> "Bounded":
        """The product, in whose sums there may be `more` terms."""
        unit, terms = self.unit, self.shape[-1] + more
        size = self.reach @ other.reach
        relative = compound(gamma(terms, unit.sum), unit.operand, unit.operand, unit.s)
        error = self.error @ other.reach + np.abs(self.value) @ other.error
        sums = self.reach.sum(axis=-1)[..., :, None]
        sums = sums + other.reach.sum(axis=-2)[..., None, :]
        lost = unit.tiny * (sums + 3 * terms + 8) + unit.small("s")
        error = error * (1 + unit.s) + relative * size + np.where(size > 0, lost, 0.0)
        return replace(self, value=self.value @ other.value, error=error)

    __radd__, __rmul__ = __add__, __mul__

    def _like(self, other: Any) -> "Bounded":
        if isinstance(other, Bounded):
            return other
        value = np.asarray(other, np.float64)
        return replace(self, value=value, error=np.zeros_like(value))

    def _flushed(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Of a product whose factors may be flushed; a factor of 0 leaves none."""
        return np.where((a > 0) & (b > 0), self.unit.tiny * (a + b), 0.0)

    def _rounded(self, value: np.ndarray, error: np.ndarray) -> "Bounded":
        """After an elementwise operation; what is 0 for certain has no error."""
        unit, reach = self.unit, np.abs(value) + error
        lost = np.where(reach > 0, unit.tiny + unit.small("s"), 0.0)
        error = error + compound(unit.a, unit.s) * reach + lost
        return replace(self, value=value, error=error)


def _norm(x: np.ndarray) -> np.ndarray:
    """Of every matrix, `… 1 1`."""
    return np.sqrt((x * x).sum(axis=(-2, -1), keepdims=True))


class Bounds:
    """The arithmetic of an implementation whose roundings are `unit`."""

    def __init__(self, unit: Units) -> None:
        self.unit = unit

    def number(self, value: Any) -> Bounded:
        """Exactly the float64 numbers given; bounded ones as they are."""
        if isinstance(value, Bounded):
            return value
        value = np.asarray(value, np.float64)
        return Bounded(value, np.zeros_like(value), self.unit)

    def product(self, a: Bounded, b: Bounded, more: int) -> Bounded:
        """a @ b, summed in any order and with `more` further terms.

        A chain of products is bounded in any order if each product counts the terms of
        the others.
        """
        return a.times(b, more)

    def nearest(self, value: Bounded) -> np.ndarray:
        """The exact values."""
        return value.value

    def where(self, condition: np.ndarray, yes: Any, no: Any) -> Bounded:
        """As of arrays."""
        yes, no = self.number(yes), self.number(no)
        value = np.where(condition, yes.value, no.value)
        return Bounded(value, np.where(condition, yes.error, no.error), self.unit)

    def exp(self, x: Bounded) -> Bounded:
        """An error of the exponent is a factor."""
        value = np.exp(x.value)
        return x._rounded(value, value * np.expm1(x.error + self.unit.exp))

    def log(self, x: Bounded) -> Bounded:
        """Relative, or absolute near 1."""
        value = np.log(x.value)
        error = -np.log1p(-np.minimum(x.error / x.value, 1.0))
        return x._rounded(value, error + self.unit.log * (np.abs(value) + error + 1))

    def sqrt(self, x: Bounded) -> Bounded:
        """|√x̂ − √x| ≤ |x̂ − x| / √x."""
        value = np.sqrt(x.value)
        with np.errstate(all="ignore"):
            error = np.where(value > 0, x.error / value, np.sqrt(x.error))
        return x._rounded(value, error)

    def tanh(self, x: Bounded) -> Bounded:
        """As the budget has it for the softcap; from exp it has an absolute error."""
        value, unit = np.tanh(x.value), self.unit
        slope = np.minimum(1.0, 1 - value**2 + x.error)
        error = slope * x.error + unit.tanh * np.abs(value) + unit.exp / 2 + 3 * unit.a
        return x._rounded(value, np.where(x.reach > 0, error, 0.0))

    def cos(self, x: Bounded) -> Bounded:
        """The slope is at most 1; cos itself errs like tanh."""
        return self._turned(x, np.cos(x.value))

    def sin(self, x: Bounded) -> Bounded:
        """Likewise, and sin 0 is 0."""
        return self._turned(x, np.sin(x.value))

    def inverse(self, x: Bounded) -> Bounded:
        """‖(A + E)⁻¹ − A⁻¹‖ ≤ ‖A⁻¹‖²‖E‖ / (1 − ‖A⁻¹‖‖E‖); no bound from 1/2 on, and
        none where A has a pseudo-inverse only.

        E is the error of A, and the backward error of the singular values.  Norms are
        those of Frobenius, which no spectral norm and no element exceeds.
        """
        value = floats.inverse(x.value)
        off = SVD * x.shape[-1] * self.unit.sum
        norm, size = _norm(x.value), _norm(value)
        moved = _norm(x.error) + off * norm
        with np.errstate(all="ignore"):
            error = size * (size * moved / (1 - size * moved) + off)
        rest = _norm(x.value @ value - np.eye(x.shape[-1]))
        error = np.where((2 * size * moved < 1) & (2 * rest < 1), error, np.inf)
        return x._rounded(value, np.broadcast_to(error, value.shape))

    def _turned(self, x: Bounded, value: np.ndarray) -> Bounded:
        own = np.where(x.reach > 0, self.unit.tanh, 0.0)
        return x._rounded(value, x.error + own)

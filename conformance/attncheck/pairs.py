"""Pairs of float64: twice the precision, from sums and products whose error is kept.

A number is hi + lo, not evaluated, with |lo| at most half a unit in the last place of
hi.  What matters is made of operations that IEEE 754 defines, so it is as good on every
machine.  How good is not argued here, but proven case by case (`attncheck.certify`).
NaN spreads as in float64; infinities become NaN.

Sources: Dekker (1971), doi 10.1007/BF01397083 (products); Ogita, Rump & Oishi (2005),
doi 10.1137/030601818 (`Dot2`); Hida, Li & Bailey (2001), doi 10.1109/ARITH.2001.930115
(sums, quotients, exp).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from attncheck import floats

_LOW_BITS = 27
"""Of the 53 of a significand; what is above them is exact in a product."""

_TERMS, _HALVINGS = 12, 4
"""Of exp's series: its argument is at most (ln 2)/2 · 2⁻⁴, so 2⁻¹⁰⁰ is left out."""

_LAST = 28
"""Of the series of sine and cosine: of an argument up to π/4, 2⁻¹¹⁰ is left out."""

_HALF_PI = "0x1.921fb54442d18p+0", "0x1.1a62633145c07p-54"
_LN_2 = "0x1.62e42fefa39efp-1", "0x1.abc9e3b39803fp-56"


@dataclass(frozen=True, eq=False)
class Pair:
    """An array of numbers hi + lo; operators as of an array of float64."""

    hi: np.ndarray
    lo: np.ndarray

    __array_ufunc__ = None  # `float64 array * pair` is left to the pair

    def map(self, rearrange: Callable[[np.ndarray], np.ndarray]) -> "Pair":
        """Both arrays rearranged alike."""
        return Pair(rearrange(self.hi), rearrange(self.lo))

    @property
    def shape(self) -> tuple[int, ...]:
        """As of an array."""
        return self.hi.shape

    def __getitem__(self, index) -> "Pair":
        return self.map(lambda array: array[index])

    def reshape(self, *shape: int) -> "Pair":
        """As of an array."""
        return self.map(lambda array: array.reshape(*shape))

    def swapaxes(self, a: int, b: int) -> "Pair":
        """As of an array."""
        return self.map(lambda array: array.swapaxes(a, b))

    def __neg__(self) -> "Pair":
        return Pair(-self.hi, -self.lo)

    def __abs__(self) -> "Pair":
        sign = np.where(self.hi < 0, -1.0, 1.0)
        return self.map(lambda array: sign * array)

    def __add__(self, other: "Number") -> "Pair":
        other = number(other)
        high, error = _sum(self.hi, other.hi)
        low, rest = _sum(self.lo, other.lo)
        high, error = _short_sum(high, error + low)
        return Pair(*_short_sum(high, error + rest))

    def __sub__(self, other: "Number") -> "Pair":
        return self + -number(other)

    def __mul__(self, other: "Number") -> "Pair":
        other = number(other)
        high, error = _product(self.hi, other.hi)
        cross = self.hi * other.lo + self.lo * other.hi
        return Pair(*_short_sum(high, error + cross))

    def __truediv__(self, other: "Number") -> "Pair":
        other = number(other)
        first = self.hi / other.hi
        second = (self - other * first).hi / other.hi
        return Pair(*_short_sum(first, second))

    def __matmul__(self, other: "Pair") -> "Pair":
        """`… r k, … k c -> … r c`: Dot2, with the products of the low parts after."""
        cross = self.hi @ other.lo + self.lo @ other.hi
        total, error = np.zeros_like(cross), cross
        for k in range(self.hi.shape[-1]):
            column, row = self.hi[..., k : k + 1], other.hi[..., k : k + 1, :]
            product, lost = _product(column, row)
            total, rest = _sum(total, product)
            error = error + (rest + lost)
        return Pair(*_short_sum(total, error))

    __radd__, __rmul__ = __add__, __mul__


Number = Pair | np.ndarray | float


def number(value: Number) -> Pair:
    """Exactly the float64 numbers given."""
    if isinstance(value, Pair):
        return value
    high = np.asarray(value, np.float64)
    return Pair(high, np.zeros_like(high))


def nearest(value: Pair) -> np.ndarray:
    """The nearest float64."""
    return value.hi


def product(a: Pair, b: Pair, more: int) -> Pair:
    """a @ b."""
    return a @ b


def where(condition: np.ndarray, yes: Number, no: Number) -> Pair:
    """As of arrays."""
    yes, no = number(yes), number(no)
    pick = (np.where(condition, *both) for both in ((yes.hi, no.hi), (yes.lo, no.lo)))
    return Pair(*pick)


def exp(x: Pair) -> Pair:
    """exp(x), 0 below −800 and ∞ above 800."""
    power, grown = _exponential(x)
    return (grown + 1.0).map(lambda array: np.ldexp(array, power))


def log(x: Pair) -> Pair:
    """ln(x) for x > 0: one step of Newton's method on exp."""
    start = np.log(x.hi)
    return x * exp(number(-start)) - 1.0 + start


def tanh(x: Pair) -> Pair:
    """(1 − e^−2|x|)/(1 + e^−2|x|) with the sign of x, without cancellation near 0."""
    power, grown = _exponential(abs(x) * -2.0)
    shrunk = where(power == 0, grown, exp(abs(x) * -2.0) - 1.0)
    return shrunk / (shrunk + 2.0) * np.where(x.hi < 0, 1.0, -1.0)


def sqrt(x: Pair) -> Pair:
    """√x for x ≥ 0: one step of Newton's method."""
    start = number(np.sqrt(x.hi))
    return where(x.hi > 0, start + (x - start * start) / (start * 2.0), 0.0)


def inverse(x: Pair) -> Pair:
    """One step of Newton's method: the rest is squared, so it must be small."""
    start = number(floats.inverse(x.hi))
    rest = number(np.eye(x.shape[-1])) - x @ start
    return start + start @ rest


def cos(x: Pair) -> Pair:
    """The cosine, for |x| well below 2⁵³."""
    return _turned(x, 1)


def sin(x: Pair) -> Pair:
    """The sine, likewise."""
    return _turned(x, 0)


def _turned(x: Pair, quarters: int) -> Pair:
    """sin(x + quarters · π/2), from the series of the one or the other near 0."""
    half_pi = Pair(*(np.array(float.fromhex(part)) for part in _HALF_PI))
    turns = np.rint(x.hi / half_pi.hi)
    rest = x - half_pi * turns
    square = -(rest * rest)
    sine, cosine = number(1.0), number(1.0)
    for n in range(_LAST, 0, -2):
        sine = sine * square / (n * (n + 1.0)) + 1.0
        cosine = cosine * square / (n * (n - 1.0)) + 1.0
    quadrant = (turns + quarters) % 4
    found = where(quadrant % 2 == 0, sine * rest, cosine)
    return found * np.where(quadrant < 2, 1.0, -1.0)


def _exponential(x: Pair) -> tuple[np.ndarray, Pair]:
    """(k, y) with eˣ = 2ᵏ(1 + y) and |y| < 1/2."""
    x = where(np.abs(x.hi) > 800, np.copysign(800.0, x.hi), x)
    ln_2 = Pair(*(np.array(float.fromhex(part)) for part in _LN_2))
    power = np.rint(np.where(np.isnan(x.hi), 0.0, x.hi) / ln_2.hi)
    rest = (x - ln_2 * power) * 2.0**-_HALVINGS
    # Times n!, so that all coefficients are whole.
    series, factor = number(1.0), 1.0
    for n in range(_TERMS, 1, -1):
        factor *= n
        series = series * rest + factor
    grown = series * rest / factor
    for _ in range(_HALVINGS):
        grown = (grown + 2.0) * grown
    return power.astype(np.int64), grown


def _sum(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """a + b rounded, and what was lost."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _short_sum(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same, if |a| ≥ |b|."""
    total = a + b
    return total, b - (total - a)


def _product(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """a · b rounded, and what was lost."""
    product = a * b
    (a, a_low), (b, b_low) = _halves(a), _halves(b)
    return product, ((a * b - product) + a * b_low + a_low * b) + a_low * b_low


def _halves(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`a` as a sum of two numbers of 26 bits."""
    # On the bits: the usual multiplication by 2²⁷ + 1 overflows.
    bits = a.view(np.int64) + (1 << _LOW_BITS - 1) & -(1 << _LOW_BITS)
    high = bits.view(np.float64)
    return high, a - high

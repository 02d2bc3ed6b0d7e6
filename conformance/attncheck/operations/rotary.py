"""Rotary positions: queries and keys are turned by angles that grow with the place.

Su et al., *RoFormer* (2021), arXiv 2104.09864, equation 34.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from attncheck.operations.operation import (
    OFFSET,
    Array,
    Operation,
    Reduced,
    Results,
    Setting,
    is_integer,
    is_number,
    own,
    places,
    plain,
)

if TYPE_CHECKING:
    from attncheck.case import Case
    from attncheck.formulas import Arithmetic

PAIRINGS = ("halves", "interleaved")


@dataclass(frozen=True, eq=False)
class Turn:
    """Turns `b x i d`: pairs (x, y) become (x cos − y sin, y cos + x sin)."""

    numbers: "Arithmetic"
    positions: np.ndarray
    """`b i`, or `1 i`."""
    width: int
    turned: int
    """How many components take part: the first ones."""
    base: float
    is_interleaved: bool

    @cached_property
    def partner(self) -> np.ndarray:
        """The other component of the pair; that itself which is not turned."""
        component = np.arange(self.width)
        half = self.turned // 2
        other = component ^ 1 if self.is_interleaved else (component + half)
        if not self.is_interleaved:
            other = np.where(component < half, other, component - half)
        return np.where(component < self.turned, other, component)

    @cached_property
    def _pair(self) -> np.ndarray:
        """Which pair a component belongs to, t."""
        half = max(self.turned // 2, 1)
        component = np.arange(self.width)
        return component // 2 if self.is_interleaved else component % half

    @cached_property
    def angles(self) -> Array:
        """`b 1 i d`: position · base^(−2t/width)."""
        number = self.numbers.number
        power = number(-2.0 * self._pair) / float(max(self.turned, 1))
        frequency = self.numbers.exp(self.numbers.log(number(self.base)) * power)
        return frequency * self.positions[:, None, :, None].astype(np.float64)

    @cached_property
    def cos(self) -> Array:
        """`b 1 i d`."""
        return self.numbers.cos(self.angles)

    @cached_property
    def sin(self) -> Array:
        """`b 1 i d`: with the sign with which the partner comes in."""
        component = np.arange(self.width)
        first = component < self.partner
        return self.numbers.sin(self.angles) * np.where(first, -1.0, 1.0)

    def __call__(self, x: Array) -> Array:
        """What is turned."""
        turned = x * self.cos + x[..., self.partner] * self.sin
        return self._where_turned(turned, x)

    def back(self, d: Array) -> Array:
        """The gradient of what is turned: turned the other way."""
        turned = d * self.cos + (d * self.sin)[..., self.partner]
        return self._where_turned(turned, d)

    def _where_turned(self, turned: Array, x: Array) -> Array:
        return self.numbers.where(np.arange(self.width) < self.turned, turned, x)


def turns(case: "Case", numbers: "Arithmetic") -> tuple[Turn, Turn]:
    """That of the queries and that of the keys."""
    given, d = case.settings, case.sizes["d"]
    width, base = given.get("width"), given.get("base", 10000.0)
    shape = d, d if width is None else width, base
    pairing = given.get("pairing", "halves") == "interleaved"
    keys = np.arange(case.sizes["j"])[None]
    return (
        Turn(numbers, places(case), *shape, pairing),
        Turn(numbers, keys, *shape, pairing),
    )


def reduce(case: "Case", numbers: "Arithmetic") -> Reduced:
    """Plain attention on turned queries and keys."""
    of_query, of_key = turns(case, numbers)
    q, k = (numbers.number(own(case, name)) for name in "qk")
    operands = {"q": of_query(q), "k": of_key(k), "v": numbers.number(own(case, "v"))}

    def back(found: Results) -> dict[str, Array]:
        same = {n: found[n] for n in ("output", "lse", "dv", "dbias") if n in found}
        if "dq" not in found:
            return same
        return same | {"dq": of_query.back(found["dq"]), "dk": of_key.back(found["dk"])}

    return Reduced(plain(case, numbers, **operands), operands, back)


BASE = Setting(lambda x: is_number(x) and x > 0, "a number above 0")
PAIRING = Setting(
    lambda x: isinstance(x, str) and x in PAIRINGS, f"one of {', '.join(PAIRINGS)}"
)

ROTARY = Operation(
    "rotary_attention",
    "rotary attention",
    reduce,
    settings={
        "offset": OFFSET,
        "base": BASE,
        "width": Setting(
            lambda x: x is None or (is_integer(x) and x >= 0 and x % 2 == 0),
            "null or an even number of components",
        ),
        "pairing": PAIRING,
    },
)

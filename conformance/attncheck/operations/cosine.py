"""Queries and keys of length 1, and a temperature for each head.

Henry et al. (2020), arXiv 2010.04245.
"""

from typing import TYPE_CHECKING

import numpy as np

from attncheck.operations.operation import (
    Array,
    Operation,
    Reduced,
    Results,
    Setting,
    is_number,
    own,
    plain,
    summed,
)

if TYPE_CHECKING:
    from attncheck.case import Case
    from attncheck.formulas import Arithmetic

EPS, TEMPERATURE = 1e-12, 10.0
"""What the rooms have by default."""


def reduce(case: "Case", numbers: "Arithmetic") -> Reduced:
    """Plain attention on τ·q/|q| and k/|k|, unscaled; a length is eps at least."""
    q, k, v = (numbers.number(own(case, name)) for name in "qkv")
    eps = case.settings.get("eps", EPS)
    n = case.sizes["n"]
    is_given = "temperature" in case.inputs
    given = own(case, "temperature") if is_given else np.full(n, TEMPERATURE)
    temperature = numbers.number(given).reshape(1, n, 1, 1)
    q_unit, k_unit = Unit(numbers, q, eps), Unit(numbers, k, eps)
    operands = {"q": q_unit.vector * temperature, "k": k_unit.vector, "v": v}

    def back(found: Results) -> dict[str, Array]:
        results = {
            name: found[name]
            for name in ("output", "lse", "dv", "dbias")
            if name in found
        }
        if "dq" not in found:
            return results
        dq = found["dq"]
        results |= {"dq": q_unit.back(dq * temperature), "dk": k_unit.back(found["dk"])}
        if is_given:
            d = summed(numbers, dq * q_unit.vector, [0, 2, 3])
            results["dtemperature"] = d.reshape(n)
        return results

    return Reduced(plain(case, numbers, **operands, scale=1.0), operands, back)


class Unit:
    """x/max(|x|, eps), along the last axis."""

    def __init__(self, numbers: "Arithmetic", x: Array, eps: float) -> None:
        length = numbers.sqrt(summed(numbers, x * x, [-1]))
        self._numbers = numbers
        self._is_long = numbers.nearest(length) >= eps
        length = numbers.where(self._is_long, length, eps)
        # An implementation may divide, or multiply by the inverse.
        self._inverse = numbers.number(1.0) / length
        self.vector = x * self._inverse

    def back(self, d: Array) -> Array:
        """(d − u (u·d))/|x|, or d/eps."""
        along = self.vector * summed(self._numbers, self.vector * d, [-1])
        return self._numbers.where(self._is_long, d - along, d) * self._inverse


COSINE = Operation(
    "cosine_attention",
    "attention by cosines",
    reduce,
    optional={"temperature": "n"},
    settings={"eps": Setting(lambda x: is_number(x) and x > 0, "a number above 0")},
    without=("scale",),
)

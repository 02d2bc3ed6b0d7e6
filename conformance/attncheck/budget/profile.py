"""Profiles: which intermediates an implementation may round, as data."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import ml_dtypes
import numpy as np

from attncheck.budget.rounding import half_ulp, in_exponent, unit_roundoff
from attncheck.case import DTYPES, Case

Rounding = float | Literal["storage"]
"""A unit roundoff, or that of the case's storage type; 0: kept in the accumulator."""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Which intermediates an implementation may round, and how well it computes exp.

    The accumulator is float32, or float64 for float64 cases, whatever the profile.
    """

    weights: Rounding = 0.0
    """u_p: the weights, before their products with V and with the output's gradient."""
    d_logits: Rounding = 0.0
    """u_ds: the gradient of the logits, before the products that give dq and dk."""
    d_weights: Rounding = 0.0
    """u_dp: the gradient of the weights."""
    scores: Rounding = 0.0
    """u_s: scores and every named intermediate around them (unfused framework code)."""
    d_heads: Rounding = 0.0
    """Every query head's gradient of k and v, before it is summed over its group."""
    operands: float = 0.0
    """u_in: every operand of a matrix product; float64 cases keep theirs."""
    exp: float | None = None
    """Relative error of exp; None: 4 units of the accumulator."""
    exp_in_16_bits: float | None = None
    """Likewise where the storage type has 16 bits; None: as in all types."""
    log: float | None = None
    """Error of log, relative or, near 1, absolute; None: 4 units."""
    tanh: float | None = None
    """Relative error of tanh; None: 4 units."""
    flush_to_zero: bool = True
    """Whether subnormal numbers of the accumulator's type may become 0."""
    row_sum_of_rounded: bool = False
    """Whether the softmax's row sum may be taken over the rounded weights."""


PROFILES = {
    "strict": Profile(),
    "tf32": Profile(operands=2.0**-11),
    "tensor-core": Profile(weights="storage", d_logits="storage"),
    "tensor-core+dP": Profile(
        weights="storage", d_logits="storage", d_weights="storage"
    ),
    "tensor-core+exp": Profile(
        weights="storage",
        d_logits="storage",
        d_heads="storage",
        exp_in_16_bits=2.0**-13,
    ),
    "eager": Profile(
        weights="storage",
        d_logits="storage",
        d_weights="storage",
        scores="storage",
        d_heads="storage",
    ),
}
"""From the strictest to the loosest."""


class Units(NamedTuple):
    """A profile resolved for a case: plain numbers, in the letters of the formulas.

    Every number can be set to 0 alone, to see what the others leave of a bound.
    """

    a: float
    """Of every elementwise operation in the accumulator."""
    dot: float
    """Of the sums that make scores, likewise in the accumulator."""
    sum: float
    """Of all other sums."""
    p: float
    ds: float
    dp: float
    s: float
    heads: float
    operand: float
    exp: float
    log: float
    tanh: float
    row_sum: float
    o: float
    """Of the output, which the backward pass may read from storage."""
    eta: float
    """Absolute error of rounding a small number to storage."""
    tiny: float
    """Absolute error of underflow in the accumulator, of an operand or a result."""
    stored: frozenset[str]
    """Which of the letters above stand for a rounding to storage."""

    def small(self, letter: str) -> float:
        """Absolute error of a small number that is kept in storage, if it is."""
        return self.eta if letter in self.stored else 0.0


def units(case: Case, profile: Profile) -> Units:
    """The numbers of `profile` for the types of `case`."""
    storage, u = DTYPES[case.dtype], unit_roundoff(case.accumulation)
    exp = profile.exp
    if storage.itemsize == 2 and profile.exp_in_16_bits is not None:
        exp = profile.exp_in_16_bits
    info = ml_dtypes.finfo(case.accumulation)

    def unit(rounding: Rounding) -> float:
        return unit_roundoff(storage) if rounding == "storage" else float(rounding)

    flushes = profile.flush_to_zero or profile.operands > 0
    rounded = {
        "p": unit(profile.weights),
        "ds": unit(profile.d_logits),
        "dp": unit(profile.d_weights),
        "s": unit(profile.scores),
        "heads": unit(profile.d_heads) if case.sizes["g"] > 1 else 0.0,
        "row_sum": unit(profile.weights) if profile.row_sum_of_rounded else 0.0,
    }
    return Units(
        a=u,
        dot=u,
        sum=u,
        **rounded,
        o=unit_roundoff(storage),
        operand=0.0 if case.dtype == "F64" else profile.operands,
        exp=in_exponent(4 * u if exp is None else exp),
        log=4 * u if profile.log is None else profile.log,
        tanh=4 * u if profile.tanh is None else profile.tanh,
        eta=float(half_ulp(np.zeros(()), storage)) if storage.itemsize == 2 else 0.0,
        tiny=float(info.smallest_normal if flushes else info.smallest_subnormal),
        stored=frozenset(letter for letter, value in rounded.items() if value),
    )

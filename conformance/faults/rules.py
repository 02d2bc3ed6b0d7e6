"""The rules by which results are called right or wrong: ours, and those in use.

All of them compare with the definition, which is more than their users have: most
compare with a reference of the same precision.  NaN where NaN is expected, and an
infinity where it is expected, is right by every rule.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from attncheck.case import ALL_GRADIENTS, Case
from attncheck.verdict import compare

Arrays = Mapping[str, np.ndarray]

OUTPUT_AND_GRADIENTS = ("output", *ALL_GRADIENTS)
RESULTS = ("output", "lse", *ALL_GRADIENTS)


@dataclass(frozen=True)
class Given:
    """A case, and what its results are compared with."""

    case: Case
    want: Arrays
    """The definition's results, in float64."""
    bounds: Arrays | None
    """How far off they may be; None where the case says nothing under its profile."""
    naive: Arrays
    """What PyTorch makes of the case in its own storage type, step by step."""


@dataclass(frozen=True)
class Rule:
    """One way to call a result right or wrong."""

    name: str
    sentence: str
    accepts: Callable[[Given, str, np.ndarray], bool]
    """`(given, name of the result, result) → right`."""
    looks_at: tuple[str, ...] = OUTPUT_AND_GRADIENTS
    """The results that its users compare."""
    dtypes: tuple[str, ...] = ("F64", "F32", "BF16", "F16")

    def flags(self, given: Given, results: Arrays) -> set[str]:
        """The names of the results that it calls wrong."""
        return {
            name
            for name, got in results.items()
            if name in self.looks_at and not self.accepts(given, name, got)
        }


def error(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """|got − want|; 0 where they are the same, ∞ where only one is not a number, or
    where the shape is another."""
    if got.shape != want.shape:
        return np.array(np.inf)
    wide = got.astype(np.float64)
    same = (wide == want) | (np.isnan(wide) & np.isnan(want))
    with np.errstate(all="ignore"):
        found = np.abs(wide - want)
    return np.where(same, 0.0, np.where(np.isnan(found), np.inf, found))


def within_budget(given: Given, name: str, got: np.ndarray) -> bool:
    """Every element inside its bound."""
    if given.bounds is None:
        return True
    found = compare(given.case, name, got, given.want[name], given.bounds[name])
    return found.status == "pass"


def close(
    given: Given,
    name: str,
    got: np.ndarray,
    *,
    rtol: Mapping[str, float] | float,
    atol: Mapping[str, float] | float,
) -> bool:
    """Every element within `atol + rtol · |want|`, which may depend on the type."""
    want = given.want[name]
    relative, absolute = (
        by_type if isinstance(by_type, float) else by_type[given.case.dtype]
        for by_type in (rtol, atol)
    )
    with np.errstate(all="ignore"):
        room = absolute + relative * np.abs(want)
    return bool((error(got, want) <= np.where(np.isfinite(room), room, 0.0)).all())


def twice_naive(given: Given, name: str, got: np.ndarray) -> bool:
    """The greatest error at most twice the greatest of the naive computation."""
    limit, found = (
        error(array, given.want[name]).max(initial=0.0)
        for array in (given.naive[name], got)
    )
    return bool(found <= 2 * limit)


TORCH_RTOL = {"F64": 1e-7, "F32": 1.3e-6, "BF16": 1.6e-2, "F16": 1e-3}
TORCH_ATOL = {"F64": 1e-7, "F32": 1e-5, "BF16": 1e-5, "F16": 1e-5}
"""The defaults of torch.testing.assert_close."""

ELEMENTS = "attncheck"
WITHOUT_LSE = "attncheck, no lse"

RULES = (
    Rule(
        ELEMENTS,
        "Every element within its error budget; the statistics of all random cases and "
        "the laws too. Output, log-sum-exp, gradients.",
        within_budget,
        RESULTS,
    ),
    Rule(
        WITHOUT_LSE,
        "The same, of an implementation that does not show its log-sum-exp.",
        within_budget,
    ),
    Rule(
        "2 × PyTorch",
        "The greatest error at most twice that of the same steps in PyTorch in the "
        "same type: the rule of flash-attention's tests.",
        twice_naive,
    ),
    Rule(
        "allclose 1e-3",
        "|error| ≤ 1e-3 + 1e-3 · |expected|.",
        partial(close, rtol=1e-3, atol=1e-3),
    ),
    Rule(
        "assert_close",
        "The defaults of torch.testing.assert_close for the type.",
        partial(close, rtol=TORCH_RTOL, atol=TORCH_ATOL),
    ),
    Rule(
        "assert_allclose",
        "The default of numpy.testing.assert_allclose: |error| ≤ 1e-7 · |expected|.",
        partial(close, rtol=1e-7, atol=0.0),
        dtypes=("F64",),
    ),
    Rule(
        "allclose 1e-2",
        "|error| ≤ 1e-2 + 1e-2 · |expected|.",
        partial(close, rtol=1e-2, atol=1e-2),
    ),
)

OURS = tuple(rule for rule in RULES if rule.name in (ELEMENTS, WITHOUT_LSE))
"""The rules that look at all cases together too."""

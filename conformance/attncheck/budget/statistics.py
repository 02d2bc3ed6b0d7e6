r"""What many elements show together: an excess of noise, and a gain.

An error that stays inside the bound of every element can still be found in all of them.
Under the model that independent roundings have mean 0 and at most the variance of a
uniform error, a third of the deviation's square, errors scaled by it have a mean square
of at most 1 (`rms`), and do not follow the values themselves (`gain`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attncheck.budget.bounds import Budget, output_dtype
from attncheck.budget.profile import Profile, units
from attncheck.budget.rounding import gamma, half_ulp, unit_roundoff
from attncheck.case import DTYPES, Case
from attncheck.definition import Expected

RMS_LIMIT = 1.15
"""Of pooled cases: of 512 rows with one independent error each the mean square scatters
by √(2/512) = 6 % and its root by 3 %, so this is five standard deviations."""

CASE_RMS_LIMIT = 1.3
"""Of one case, a warning: five standard deviations of 105 rows."""

DEVIATIONS = 5.0
"""Of the mean square of one case's rows, where there are fewer than 105."""

ROWS = 512
"""The fewest rows that pooled statistics are judged by."""

ERRORS = 6.0
"""Standard errors that a gain may be off."""


@dataclass(frozen=True)
class Sample:
    """One result of one random case, flat but for its rows: each `r x`."""

    error: np.ndarray
    """got − expected; 0 where the result is not judged."""
    expected: np.ndarray
    linear: np.ndarray
    variance: np.ndarray
    """Of random roundings, the last one included, at most; 0 where nothing is random:
    such elements are not counted."""
    rows: int
    """With errors of their own: a query's log-sum-exp and D are in all gradients."""
    gain: float | None
    """The relative error that all elements may have in common, γ_{j+4} of one head and
    the error of exp; None where the gain says nothing."""


@dataclass(frozen=True)
class Pooled:
    """Statistics of samples."""

    rows: int
    rms: float
    """(mean of error² / (variance + linear²))^½; at most 1 under the model."""
    gain: float
    """β of error = β · expected, by weighted least squares."""
    gain_error: float
    """Its standard error, from the scatter of the rows."""
    gain_limit: float

    @property
    def judged(self) -> bool:
        """Whether there are rows enough."""
        return self.rows >= ROWS

    @property
    def is_noisy(self) -> bool:
        """Whether errors of this size, of one case alone, are worth a warning."""
        scatter = DEVIATIONS * (2 / max(self.rows, 1)) ** 0.5
        return self.rms > max(CASE_RMS_LIMIT, (1 + scatter) ** 0.5)

    @property
    def passes(self) -> bool:
        """Whether neither is in excess; too few rows show nothing."""
        if not self.judged:
            return True
        return self.rms <= RMS_LIMIT and abs(self.gain) <= self.gain_limit


def sample(
    case: Case,
    expected: Expected,
    budget: Budget,
    profile: Profile,
    got: np.ndarray,
    *,
    name: str = "output",
) -> Sample:
    """What one result of a random case adds to the statistics.

    The gain is that of outputs whose rows have no rounding in common.  Gradients are
    differences: a common relative error of a term is none of the whole.  An error of
    exp is common to all rows at their maximum, where its argument is 0, and need not be
    in weight and row sum alike: rounding to storage takes it out of a weight.  The
    rounded factor of dropout on a weight of exactly 1, and a rounded operand, are in
    all rows; so are the errors of projected keys and values, which a last rounding to
    16 bits drowns.

    Raises:
        ValueError: the roundings of the case are not independent.
    """
    if budget.dependent is not None:
        raise ValueError(f"{case.id}: {budget.dependent}")
    want, deviation = getattr(expected, name), budget.deviation[name]
    shape = (-1, 1) if name == "lse" else (-1, want.shape[-1])
    last = half_ulp(want, output_dtype(case, name))
    random = deviation > 0
    queries = int(np.isfinite(expected.lse).sum())
    merges = case.op == "multi_head_attention"
    alike = "dropout_keep" in case.inputs or profile.operands > 0
    alike = alike or (merges and DTYPES[case.dtype] == case.accumulation)
    gain = gamma(_terms(case), unit_roundoff(case.accumulation))
    gain += units(case, profile).exp
    error = np.where(random, got, 0).astype(np.float64) - np.where(random, want, 0)
    return Sample(
        error=error.reshape(shape),
        expected=np.where(random, want, 0.0).reshape(shape),
        linear=budget.linear[name].reshape(shape),
        variance=np.where(random, (deviation**2 + last**2) / 3, 0.0).reshape(shape),
        rows=min(queries, int(random.reshape(shape).any(axis=-1).sum())),
        gain=None if alike or name != "output" else gain,
    )


def _terms(case: Case) -> int:
    """Roundings that all elements of an output may have in common, at most."""
    sizes = case.sizes
    if case.op == "attention":
        return sizes["j"] + 4
    return sizes["j"] + sizes["m"] + sizes["n"] * sizes["e"] + 6


def pool(samples: Sequence[Sample]) -> Pooled:
    """The statistics of all samples together."""
    squares = _joined([_squares(one) for one in samples])
    rms = float(np.sqrt(squares.mean())) if squares.size else 0.0
    gain, error, common = _slope(samples)
    limit = common + ERRORS * error
    return Pooled(sum(one.rows for one in samples), rms, gain, error, limit)


def _squares(one: Sample) -> np.ndarray:
    """error² / (variance + linear²) of all elements with random errors."""
    counted = one.variance > 0
    return (one.error[counted] ** 2) / _spread(one)[counted]


def _spread(one: Sample) -> np.ndarray:
    """variance + linear²; 1 where nothing is random.

    Errors that may have a bias count in full: a number that is flushed to zero has lost
    all of itself, which would pass for a gain of −1.
    """
    return np.where(one.variance > 0, one.variance + one.linear**2, 1.0)


def _slope(samples: Sequence[Sample]) -> tuple[float, float, float]:
    """β = Σ w e y / Σ w y², its standard error, and what it may be at most.

    Rows are the clusters.  β is the mean of those of the samples, weighted by Σ w y²,
    and so is what their common errors may make of it.
    """
    told = [one for one in samples if one.gain is not None]
    projections, norms = zip(*map(_projected, told), strict=True) if told else ((), ())
    projection, norm = _joined(projections), _joined(norms)
    total = norm.sum()
    if total == 0:
        return 0.0, 0.0, 0.0
    slope = projection.sum() / total
    error = np.sqrt(((projection - slope * norm) ** 2).sum()) / total
    common = sum(
        (one.gain or 0.0) * own.sum() for one, own in zip(told, norms, strict=True)
    )
    return float(slope), float(error), float(common / total)


def _projected(one: Sample) -> tuple[np.ndarray, np.ndarray]:
    """Σ w e y and Σ w y² of every row."""
    weighted = one.expected / _spread(one)
    return (weighted * one.error).sum(axis=-1), (weighted * one.expected).sum(axis=-1)


def _joined(arrays: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate(arrays) if arrays else np.zeros(0)

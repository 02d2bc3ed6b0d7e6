"""Which known mistake explains the failures: results against what variants predict.

A variant is a cause where its results are what came, on cases that fail and on cases
that pass alike.  A name is given only if causes explain every failing case; otherwise
nothing known explains them, and the report says so.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from attncheck.budget import half_ulp, output_dtype
from attncheck.case import DTYPES, Case
from attncheck.definition import Expected
from attncheck.variants import VARIANTS, Variant
from attncheck.verdict import Verdict, share

SLACK = 8.0
"""How many budgets a result may lie from the prediction: a fault can magnify errors."""

CLOSER = 4.0
"""How much nearer the prediction must be than what the spec says, where that fails."""

ALIKE = 4.0
"""By which factor errors may be larger or smaller than those of a coarser precision."""

FAILING, PASSING = 48, 48
"""So many cases of a storage type are looked at, the smallest first."""

CAUSES = 3
"""So many mistakes at once are looked for."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a subject made of a case, and what it should have made."""

    verdict: Verdict
    got: Mapping[str, np.ndarray]
    want: Expected
    bounds: Mapping[str, np.ndarray]
    predicted: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    """Variant → what it makes of the case, computed once."""

    @property
    def case(self) -> Case:
        """The case."""
        return self.verdict.case

    @cached_property
    def failing(self) -> frozenset[str]:
        """The results that are outside their budget."""
        return frozenset(f.name for f in self.verdict.findings if f.status == "fail")

    @cached_property
    def names(self) -> list[str]:
        """The results that can be compared."""
        return [
            f.name
            for f in self.verdict.findings
            if f.status != "not judged" and f.worst is not None
        ]

    def by(self, variant: Variant) -> dict[str, np.ndarray]:
        """The results of a variant."""
        if variant.name not in self.predicted:
            self.predicted[variant.name] = variant.results(self.case)
        return self.predicted[variant.name]


@dataclass(frozen=True)
class Cause:
    """A variant whose results are those that came."""

    variant: Variant
    cases: tuple[str, ...]
    """The failing cases that it explains, of those that were looked at."""
    alike: tuple[Variant, ...] = ()
    """Other variants that no case here tells from it."""


@dataclass(frozen=True)
class Diagnosis:
    """What is known about the failures of a subject in one storage type."""

    dtype: str
    failing: tuple[str, ...]
    """The failing cases that were looked at."""
    causes: tuple[Cause, ...]
    """Together they explain every failing case; none: nothing known does."""
    closest: Cause | None = None
    """Where nothing does, the variant that explains most, if one explains some."""


def explain(evidence: Iterable[Evidence]) -> list[Diagnosis]:
    """A diagnosis for each storage type that has failures.

    What is found in one type is tried first in the next.
    """
    by_dtype: dict[str, list[Evidence]] = {}
    for one in sorted(evidence, key=_cost):
        by_dtype.setdefault(one.case.dtype, []).append(one)
    found: list[Diagnosis] = []
    known: list[Variant] = []
    for dtype in sorted(by_dtype, key=list(DTYPES).index):
        failing = [one for one in by_dtype[dtype] if one.failing][:FAILING]
        passing = [one for one in by_dtype[dtype] if not one.failing][:PASSING]
        if failing:
            order = [*known, *(v for v in VARIANTS if v not in known)]
            found.append(_diagnose(dtype, failing, passing, order))
            known += [cause.variant for cause in found[-1].causes]
    return found


def _cost(one: Evidence) -> int:
    sizes = one.case.sizes
    return sizes["b"] * sizes["n"] * sizes["i"] * sizes["j"]


def _diagnose(
    dtype: str,
    failing: Sequence[Evidence],
    passing: Sequence[Evidence],
    variants: Sequence[Variant],
) -> Diagnosis:
    ids = tuple(one.case.id for one in failing)
    single = sorted(_single(failing, passing, variants), key=lambda pair: pair[0])
    if single:
        (best, variant), others = single[0], single[1:]
        alike = tuple(v for score, v in others if score <= 2 * best + 1e-9)
        return Diagnosis(dtype, ids, (Cause(variant, ids, alike),))
    causes = _several(failing, passing, variants)
    explained = {case for cause in causes for case in cause.cases}
    if explained == set(ids):
        return Diagnosis(dtype, ids, tuple(causes))
    return Diagnosis(dtype, ids, (), causes[0] if causes else None)


def _single(
    failing: Sequence[Evidence],
    passing: Sequence[Evidence],
    variants: Sequence[Variant],
) -> Iterator[tuple[float, Variant]]:
    """Variants that explain all failing cases and contradict none that passes."""
    for variant in variants:
        scores = []
        for one in failing:
            score = _misfit(one, variant)
            if score is None:
                break
            scores.append(score)
        else:
            if not any(_contradicts(one, variant) for one in passing):
                yield float(np.mean(scores)) + variant.rounds, variant


def _several(
    failing: Sequence[Evidence],
    passing: Sequence[Evidence],
    variants: Sequence[Variant],
) -> list[Cause]:
    """At most `CAUSES` variants, each of which explains most of what is left."""
    explains = {
        variant.name: {
            one.case.id for one in failing if _misfit(one, variant) is not None
        }
        for variant in variants
        if not any(_contradicts(one, variant) for one in passing)
    }
    left, causes = {one.case.id for one in failing}, []
    while left and explains and len(causes) < CAUSES:
        name = max(explains, key=lambda name: len(explains[name] & left))
        here = explains.pop(name) & left
        if not here:
            break
        variant = next(v for v in variants if v.name == name)
        causes.append(Cause(variant, tuple(sorted(here))))
        left -= here
    return causes


def _misfit(one: Evidence, variant: Variant) -> float | None:
    """How far the results are from those of a variant, as a share of how far they are
    from the spec's; None where it does not explain them."""
    predicted = one.by(variant)
    if variant.rounds and (found := _coarse(one, predicted)) is not None:
        return found
    worst = 0.0
    for name in one.names:
        near = _distance(one, name, one.got[name], predicted[name])
        far = _distance(one, name, one.got[name], getattr(one.want, name))
        if near > SLACK or (name in one.failing and near * CLOSER > far):
            return None
        if name in one.failing and near:
            worst = max(worst, near / far)
    return worst


def _contradicts(one: Evidence, variant: Variant) -> bool:
    """Whether a case passes that would fail under the variant."""
    predicted = one.by(variant)
    other = one.got if not variant.rounds else vars(one.want)
    return any(
        _distance(one, name, other[name], predicted[name]) > SLACK for name in one.names
    )


def _coarse(one: Evidence, predicted: Mapping[str, np.ndarray]) -> float | None:
    """The misfit of errors that are as large as those of a coarser precision.

    Roundings depend on the order of sums, so only their size is compared.
    """
    misfits = []
    for name in one.names:
        want = getattr(one.want, name)
        ours = _rms(one, name, one.got[name], want)
        theirs = _rms(one, name, predicted[name], want)
        if name in one.failing:
            if not theirs or not ours or not 1 / ALIKE <= ours / theirs <= ALIKE:
                return None
            misfits.append(abs(np.log(ours / theirs)))
        elif _distance(one, name, predicted[name], want) > SLACK:
            return None
    return float(np.mean(misfits))


def _distance(one: Evidence, name: str, x: np.ndarray, y: np.ndarray) -> float:
    """The largest distance of two results, in budgets of the case.

    The budget is that of the spec's result, and the same share of what `y` holds where
    that is larger.
    """
    dtype, bound = output_dtype(one.case, name), one.bounds[name]
    known = np.isfinite(bound)
    room = np.where(known, bound, 0.0)
    here, there = _largest(getattr(one.want, name)), _largest(y)
    if here:
        room = room + room.max(initial=0.0) * min(there / here, 1e3)
    with np.errstate(all="ignore"):
        wide, other = (z.astype(dtype).astype(np.float64) for z in (x, y))
        room = room + 2 * half_ulp(np.abs(other), dtype)
        return float(np.where(known, share(wide, other, room), 0.0).max(initial=0.0))


def _rms(one: Evidence, name: str, got: np.ndarray, other: np.ndarray) -> float:
    """The root mean square of what is finite in both."""
    wide = got.astype(np.float64)
    both = np.isfinite(wide) & np.isfinite(other) & np.isfinite(one.bounds[name])
    if not both.any():
        return 0.0
    return float(np.sqrt(np.mean((wide[both] - other[both]) ** 2)))


def _largest(array: np.ndarray) -> float:
    return float(np.abs(array[np.isfinite(array)]).max(initial=0.0))

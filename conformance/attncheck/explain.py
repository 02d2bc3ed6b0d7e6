"""Which known mistake explains the failures: results against what variants predict.

A variant is a cause where its results are what came, on cases that fail and on cases
that pass alike.  A name is given only if causes explain every failing case; otherwise
nothing known explains them, and the report says so.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile

import numpy as np

from attncheck.budget import half_ulp, output_dtype
from attncheck.case import FORWARD, Case
from attncheck.definition import Expected
from attncheck.variants import CANDIDATES, Variant, together
from attncheck.verdict import Verdict, share

SLACK = 8.0
"""How many budgets a result may lie from the prediction: a fault can magnify errors."""

CLOSER = 4.0
"""How much nearer the prediction must be than what the spec says, where that fails."""

ALIKE = 4.0
"""By which factor errors may be larger or smaller than those of a coarser precision."""

FEW, SEVERAL, PASSING = 8, 24, 48
"""So many failing cases are searched for one of several causes, first and then, and so
many that pass for a contradiction of one; the smallest first."""

MUCH_CLOSER = 1e4
"""How much nearer it must be where a fault magnifies errors beyond `SLACK`."""

COARSE = 0.01
"""Where rounding may change more than this share of a result, it tells nothing."""

CAUSES = 3
"""So many mistakes at once are looked for."""

ORDER = ("F32", "F64", "BF16", "F16")
"""Storage types by what they tell: float64 second, since some compute it in float32."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a subject made of a case, and what it should have made."""

    verdict: Verdict
    got: Mapping[str, np.ndarray]
    want: Expected
    bounds: Mapping[str, np.ndarray]
    predicted: dict[Variant, dict[str, np.ndarray]] = field(default_factory=dict)
    """What a variant makes of the case, computed once."""

    @property
    def case(self) -> Case:
        """The case."""
        return self.verdict.case

    @cached_property
    def failing(self) -> frozenset[str]:
        """The results that are outside their budget."""
        found = (f for f in self.verdict.findings if f.name in self.names)
        return frozenset(f.name for f in found if f.status == "fail")

    @cached_property
    def rounding(self) -> float:
        """What rounding may change of a result, as a share of its largest element: the
        error of an exponent grows with what can come to stand there."""
        scores, bias = self.want.scores, self.case.inputs.get("bias", np.zeros(1))
        size = _largest(scores) * abs(self.case.scale_value) + _largest(_wide(bias))
        terms = self.case.sizes["d"] + self.case.sizes["j"]
        return float(np.finfo(self.case.accumulation).eps) * (terms + size)

    @cached_property
    def is_telling(self) -> bool:
        """Whether its numbers are finite, and small enough to tell formulas apart.

        Where gradients alone are wrong, those that came too: a gradient of NaN under a
        right result comes from how it is taken.
        """
        arrays = [a for a in self.case.inputs.values() if a.dtype != bool]
        if not self.failing & set(FORWARD):
            arrays += [self.got[name] for name in self.failing]
        finite = (np.isfinite(_wide(a)).all() for a in [*arrays, self.want.output])
        return self.rounding < COARSE and all(finite)

    @cached_property
    def names(self) -> list[str]:
        """The results that can be compared."""
        return [
            f.name
            for f in self.verdict.findings
            if f.status != "not judged" and f.worst is not None
        ]

    @cached_property
    def telling_names(self) -> list[str]:
        """Those that say which mistake it is: where a forward result is wrong, what its
        gradient is depends on how the program takes it."""
        if not self.failing & set(FORWARD):
            return self.names
        return [name for name in self.names if name in FORWARD]

    def by(self, variant: Variant) -> dict[str, np.ndarray]:
        """The results of a variant."""
        if variant not in self.predicted:
            self.predicted[variant] = variant.results(self.case)
        return self.predicted[variant]


@dataclass(frozen=True)
class Cause:
    """A variant whose results are those that came."""

    variant: Variant
    cases: tuple[str, ...]
    """The failing cases that it explains, together with the causes before it."""
    alike: tuple[Variant, ...] = ()
    """Other variants that no case here tells from it."""


@dataclass(frozen=True)
class Diagnosis:
    """What is known about the failures of a subject in some storage types."""

    dtypes: tuple[str, ...]
    failing: tuple[str, ...]
    """The failing cases of which results can be compared."""
    causes: tuple[Cause, ...] = ()
    """Together they explain every failing case; none: nothing known does."""
    closest: Cause | None = None
    """Where nothing does, the variant that explains most, if one explains some."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its causes."""
        return tuple(cause.variant.name for cause in self.causes)


def explain(
    evidence: Iterable[Evidence], candidates: Sequence[Variant] = CANDIDATES
) -> list[Diagnosis]:
    """Diagnoses, one for all storage types that have the same causes.

    What is found in one type is tried first in the next.

    Args:
        candidates: what may be the cause.
    """
    by_dtype: dict[str, list[Evidence]] = {}
    evidence = list(evidence)
    here = {one.case.op for one in evidence if one.failing}
    candidates = [v for v in candidates if v.model.op in ("", *here)]
    for one in sorted(evidence, key=_size):
        if not one.case.law:  # its twin says the same
            by_dtype.setdefault(one.case.dtype, []).append(one)
    found: list[Diagnosis] = []
    for dtype in sorted(by_dtype, key=ORDER.index):
        failing = [one for one in by_dtype[dtype] if one.failing]
        # Where there is nothing to compute, many return early.
        passing = [one for one in by_dtype[dtype] if not one.failing and _size(one)]
        if not failing:
            continue
        known = [c.variant for diagnosis in found for c in diagnosis.causes]
        new = _search(failing, passing, known)
        if new is None or not new.causes:
            new = _search(failing, passing, candidates, many=not found or bool(known))
        found = _merged(found, new or Diagnosis((dtype,), _ids(failing)))
    return found


def _search(
    failing: Sequence[Evidence],
    passing: Sequence[Evidence],
    variants: Sequence[Variant],
    *,
    many: bool = True,
) -> Diagnosis | None:
    """What of the variants explains all failing cases, alone or else together.

    NaN and infinity take other ways in every implementation: cases that hold some need
    not be explained where others are.
    """
    telling = [one for one in failing if one.is_telling] or failing
    single = sorted(_single(telling, passing, variants), key=lambda pair: pair[0])
    causes: tuple[Cause, ...] = ()
    if single:
        (best, variant), others = single[0], single[1:]
        near = (v for score, v in others if score <= 2 * best + 1e-9)
        named = {v.name: v for v in near if v.name != variant.name}
        alike = tuple(named.values())
        causes = (Cause(variant, _explained(failing, [variant]), alike),)
    elif many:
        causes = _several(telling, passing, variants)
    if not causes:
        return None
    dtypes, ids = (failing[0].case.dtype,), _ids(failing)
    if set(_ids(telling)) <= _covered(causes):
        return Diagnosis(dtypes, ids, causes + _of_rest(failing, variants, causes))
    return Diagnosis(dtypes, ids, closest=causes[0])


def _merged(found: list[Diagnosis], new: Diagnosis) -> list[Diagnosis]:
    """With the new diagnosis, as part of one that has the same causes if there is."""
    for at, old in enumerate(found):
        if old.names == new.names:
            both = replace(
                old,
                dtypes=old.dtypes + new.dtypes,
                failing=old.failing + new.failing,
                causes=tuple(map(_joined, old.causes, new.causes)),
            )
            return [*found[:at], both, *found[at + 1 :]]
    return [*found, new]


def _joined(old: Cause, new: Cause) -> Cause:
    """One cause in two storage types; alike is what neither tells from it."""
    alike = tuple(variant for variant in old.alike if variant in new.alike)
    return Cause(old.variant, old.cases + new.cases, alike)


def _ids(evidence: Iterable[Evidence]) -> tuple[str, ...]:
    return tuple(one.case.id for one in evidence)


def _size(one: Evidence) -> int:
    sizes = one.case.sizes
    return sizes["b"] * sizes["n"] * sizes["i"] * sizes["j"]


def _single(
    failing: Sequence[Evidence],
    passing: Sequence[Evidence],
    variants: Sequence[Variant],
) -> Iterator[tuple[float, Variant]]:
    """Variants that explain all failing cases and contradict none that passes.

    With each its misfit: the less, the better; coarser precision after formulas.
    """
    for variant in variants:
        misfits = _until_none(_misfit(one, variant) for one in failing)
        if len(misfits) < len(failing):
            continue
        if not any(_contradicts(one, variant) for one in passing):
            yield float(np.mean(misfits)) + variant.rounds, variant


def _several(
    failing: Sequence[Evidence],
    passing: Sequence[Evidence],
    variants: Sequence[Variant],
) -> tuple[Cause, ...]:
    """At most `CAUSES` variants that act together, each explaining most of the rest.

    Errors that are merely as large as a rounding's say little of a few cases, so that
    coarser precision is no cause among several.
    """
    formulas = [variant for variant in variants if not variant.rounds]
    near = passing[:PASSING]
    candidates = [v for v in formulas if not any(_contradicts(o, v) for o in near)]
    causes: tuple[Cause, ...] = ()
    while len(causes) < CAUSES:
        before = [cause.variant for cause in causes]
        done = [one for one in failing if one.case.id in _covered(causes)]
        left = [one for one in failing if one.case.id not in _covered(causes)]
        new = [v for v in candidates if v.name not in {old.name for old in before}]
        some = [v for v in new if _explained(left[:FEW], [*before, v])]
        explained = {v: _explained(left[:SEVERAL], [*before, v]) for v in some}
        best = sorted(some, key=lambda v: len(explained[v]), reverse=True)
        # What was explained must still be.
        good = (v for v in best if _explained(done, [*before, v]) == _ids(done))
        variant = next(good, None)
        if variant is None:
            break
        causes += (Cause(variant, _explained(left, [*before, variant])),)
    return causes


def _of_rest(
    failing: Sequence[Evidence],
    variants: Sequence[Variant],
    causes: tuple[Cause, ...],
) -> tuple[Cause, ...]:
    """One more cause, if it explains all of several cases that are left.

    They hold NaN or infinity, of which a single case says too little for a name.
    """
    done = [one for one in failing if one.case.id in _covered(causes)]
    left = [one for one in failing if one.case.id not in _covered(causes)]
    before = [cause.variant for cause in causes]
    for variant in variants if len(left) > 1 else ():
        if variant.rounds or not _explained(left[:1], [*before, variant]):
            continue
        both = [*before, variant]
        if _explained([*left, *done], both) == _ids([*left, *done]):
            return (Cause(variant, _ids(left)),)
    return ()


def _covered(causes: Iterable[Cause]) -> set[str]:
    """The cases that some cause explains."""
    return {case for cause in causes for case in cause.cases}


def _explained(
    evidence: Iterable[Evidence], variants: Sequence[Variant]
) -> tuple[str, ...]:
    """The cases of which the results are those of all variants at once."""
    both = together(variants)
    try:
        return tuple(one.case.id for one in evidence if _misfit(one, both) is not None)
    except AttributeError:  # what one leaves out, the other goes on with
        return ()


def _until_none(values: Iterable[float | None]) -> list[float]:
    """The values before the first None."""
    return list(takewhile(lambda value: value is not None, values))  # type: ignore


def _misfit(one: Evidence, variant: Variant) -> float | None:
    """How far the results are from those of a variant, as a share of how far they are
    from the spec's; None where it does not explain them."""
    predicted = one.by(variant)
    if variant.rounds and (found := _coarse(one, predicted)) is not None:
        return found
    worst = 0.0
    for name in one.telling_names:
        near = _distance(one, name, one.got[name], predicted[name])
        far = _distance(one, name, one.got[name], getattr(one.want, name))
        if name not in one.failing:
            if near > SLACK:
                return None
        elif (
            near > max(SLACK, far / MUCH_CLOSER if np.isfinite(far) else 0.0)
            or near * CLOSER > far
        ):
            return None
        elif near:
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
    for name in one.telling_names:
        want = getattr(one.want, name)
        if not _same_kind(one.got[name], want):
            return None
        ours = _rms(one, name, one.got[name], want)
        theirs = _rms(one, name, predicted[name], want)
        if name in one.failing:
            if not theirs or not ours or not 1 / ALIKE <= ours / theirs <= ALIKE:
                return None
            misfits.append(abs(np.log(ours / theirs)))
        elif _distance(one, name, predicted[name], want) > SLACK:
            return None
    return float(np.mean(misfits))


def _same_kind(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether what is no number, or infinite, is so in both."""
    kinds = (np.isnan(z) * 2 + np.isinf(z) * np.sign(z) for z in (_wide(x), _wide(y)))
    return bool(np.array_equal(*kinds))


def _wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64)


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
        wide, other = (_wide(z.astype(dtype)) for z in (x, y))
        room = room + 2 * half_ulp(np.abs(other), dtype)
        room = room + min(one.rounding, COARSE) * there
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

"""The verdict: a pure comparison of what came with what is legal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from attncheck.budget import Pooled, half_ulp, interval, output_dtype
from attncheck.case import ALL_RESULTS, INTERMEDIATES, Case
from attncheck.definition import Expected
from attncheck.exchange import Result
from attncheck.laws import Holding
from attnref.spec import STEPS

if TYPE_CHECKING:
    from attncheck.explain import Diagnosis
    from attncheck.heat import Heat
    from attncheck.shrink import Minimal

LAST_STEP: Mapping[str, str] = {
    "scores": "scores",
    "logits": "bias",
    "masked": "mask",
    "weights": "softmax",
    "output": "merge",
    "lse": "softmax",
}
"""Forward result → the last step of the spec before it is seen."""

BEFORE: Mapping[str, str] = {
    "logits": "scores",
    "masked": "logits",
    "weights": "masked",
    "output": "weights",
    "lse": "masked",
}
"""The forward result that each is made from."""


JUDGED = ("pass", "fail")
"""The statuses of a case of which some result was compared."""


@dataclass(frozen=True)
class Worst:
    """The element that is furthest out, as a share of what is allowed there."""

    index: Mapping[str, int]
    """Axis letter → index."""
    got: float
    expected: float
    ulps: float
    """|got − expected| in units in the last place of the result's own type."""


@dataclass(frozen=True)
class Finding:
    """What is found about one result of a case."""

    name: str
    status: str
    """pass, fail or not judged."""
    used: float = 0.0
    """The share of the budget that the worst element uses; above 1 may still pass
    only by the final rounding, so `status` decides."""
    worst: Worst | None = None
    message: str = ""
    split: Mapping[str, float] = field(default_factory=dict)
    """Shares of what is allowed at the worst element, by source of error."""


@dataclass(frozen=True)
class Waived:
    """That a failure is expected."""

    reason: str
    passes: bool = False
    """What is expected to fail does not."""


@dataclass(frozen=True)
class Noisy:
    """That errors are larger than independent roundings make them, and yet allowed."""

    case: str
    """Its id."""
    result: str
    rms: float
    """How many times the expected size they have."""


@dataclass(frozen=True)
class Verdict:
    """What is found about one case."""

    case: Case
    status: str
    """pass, fail, refused, not applicable, not judged, error, crash or timeout."""
    message: str = ""
    findings: tuple[Finding, ...] = ()
    seconds: float = 0.0
    waived: Waived | None = None

    @property
    def outcome(self) -> str:
        """What the case counts as: its status, `waived`, or `waived but passes`."""
        if self.waived is None:
            return self.status
        return "waived but passes" if self.waived.passes else "waived"

    @cached_property
    def used(self) -> float:
        """The largest share of a budget among the results."""
        return max((finding.used for finding in self.findings), default=0.0)

    @cached_property
    def first_failure(self) -> Finding | None:
        """The failing result that is computed first: what follows it may be right."""
        return next((f for f in self.findings if f.status == "fail"), None)

    @cached_property
    def step(self) -> str | None:
        """The step of the spec that diverges first, for a subject that shows steps."""
        failure = self.first_failure
        shown = {f.name for f in self.findings if f.status != "not judged"}
        if not shown & set(INTERMEDIATES):
            return None
        if failure is None or failure.name not in LAST_STEP:
            return None
        before = BEFORE.get(failure.name)
        while before is not None and before not in shown:
            before = BEFORE.get(before)
        return " or ".join(_between(self.case, before, failure.name))


@dataclass(frozen=True)
class Run:
    """All verdicts about one subject."""

    subject: Mapping[str, object]
    """`name`, `framework`, `version`, `profile`, `conventions`."""
    verdicts: Sequence[Verdict]
    measured: Mapping[str, str | None] = field(default_factory=dict)
    """dtype → the strictest profile under which all that was done passes."""
    pooled: Mapping[tuple[str, str], Pooled] = field(default_factory=dict)
    """(dtype, result) → statistics of all random cases together."""
    warnings: Sequence[Noisy] = ()
    """What is suspect in random cases that pass; it fails nothing."""
    laws: Sequence[Holding] = ()
    """How far related results are related as they must be."""
    diagnoses: Sequence["Diagnosis"] = ()
    """What explains the failures, or that nothing known does."""
    minimal: "Minimal | None" = None
    """A small case that fails, where one was looked for."""
    heats: Mapping[str, "Heat"] = field(default_factory=dict)
    """Case → a picture of its errors, for the failures that tell most."""
    damage: Sequence[str] = ()
    """One sentence for each line of results that is of no case."""

    @cached_property
    def conforms(self) -> bool:
        """Whether a case was judged, and every case that applies passes, and all
        cases together show no excess and break no law.

        So a case that was refused, or has no result, or none that it wants, does not
        conform, and every clause that applies was judged; unless it is waived.
        """
        applicable = {v.outcome for v in self.verdicts} - {"not applicable", "waived"}
        broken = any(holding.broken for holding in self.laws)
        return applicable == {"pass"} and not self.excess and not broken

    @cached_property
    def waived(self) -> set[str]:
        """The cases that are expected to fail; what passes all the same, too."""
        return {v.case.id for v in self.verdicts if v.waived}

    @cached_property
    def excess(self) -> dict[tuple[str, str], Pooled]:
        """Statistics that the errors of a legal implementation do not have."""
        return {key: one for key, one in self.pooled.items() if not one.passes}

    @cached_property
    def failing(self) -> list[str]:
        """Clauses of which every case that was judged fails."""
        judged = [v for v in self.verdicts if v.status in JUDGED]
        passing = {c for v in judged if v.status == "pass" for c in v.case.clauses}
        return sorted({c for v in judged for c in v.case.clauses} - passing)

    @cached_property
    def unjudged(self) -> list[str]:
        """Clauses of which a case is applicable but none was judged."""
        applicable = [v for v in self.verdicts if v.status != "not applicable"]
        clauses = {clause for v in applicable for clause in v.case.clauses}
        judged = {c for v in applicable if v.status in JUDGED for c in v.case.clauses}
        return sorted(clauses - judged)


def judge(
    case: Case,
    expected: Expected,
    bounds: Mapping[str, np.ndarray],
    result: Result | None,
) -> Verdict:
    """Compares a result with what its case must give, within the bounds.

    Args:
        bounds: result name → how far an element may lie from the expected one before it
            is rounded to its own type.
        result: None where the subject left none.
    """
    if result is None:
        return Verdict(case, "not judged", "the subject left no result")
    if result.status != "done":
        return Verdict(case, result.status, result.message, seconds=result.seconds)
    findings = tuple(
        compare(
            case,
            name,
            result.arrays.get(name),
            getattr(expected, name),
            bounds[name],
            where=expected.visible if name in ("scores", "logits") else True,
        )
        for name in ALL_RESULTS
        if name in case.wants
    )
    statuses = {finding.status for finding in findings}
    status, message = "fail" if "fail" in statuses else "pass", result.message
    if statuses == {"not judged"}:
        status, message = "not judged", "the result holds nothing that the case wants"
    return Verdict(case, status, message, findings, result.seconds)


def compare(
    case: Case,
    name: str,
    got: np.ndarray | None,
    want: np.ndarray,
    bound: np.ndarray,
    *,
    where: np.ndarray | bool = True,
) -> Finding:
    """The finding about one result, or about its elements `where` it has some.

    An element passes where it lies in [RN(want − bound), RN(want + bound)], RN rounding
    to the result's type; NaN only where NaN is expected.
    """
    if got is None:
        return Finding(name, "not judged")
    dtype = output_dtype(case, name)
    if got.shape != want.shape or got.dtype != dtype:
        return Finding(
            name,
            "fail",
            np.inf,
            message=f"is {got.dtype} {got.shape}, must be {dtype} {want.shape}"
            + _moved(case.axes(name), got.shape, want.shape),
        )
    legal, shares = elements(got, want, bound, dtype, where)
    if not shares.size:
        return Finding(name, "pass")
    worst = np.unravel_index(np.argmax(shares), shares.shape)
    return Finding(
        name,
        "pass" if legal.all() else "fail",
        float(shares[worst]),
        _element(case, name, worst, got.astype(np.float64), want, dtype),
    )


def elements(
    got: np.ndarray,
    want: np.ndarray,
    bound: np.ndarray,
    dtype: np.dtype,
    where: np.ndarray | bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """Which elements are legal, and the share of its budget that each uses.

    One that is not legal uses more than 1.
    """
    low, high = interval(want, bound, dtype)
    wide = got.astype(np.float64)
    legal = ((low <= wide) & (wide <= high)) | (np.isnan(wide) & np.isnan(want))
    with np.errstate(all="ignore"):
        used = share(wide, want, bound + half_ulp(np.abs(want) + bound, dtype))
    legal, used = legal | np.logical_not(where), np.where(where, used, 0)
    return legal, np.where(legal, used, np.maximum(used, np.nextafter(1, 2)))


def _moved(axes: str, got: tuple[int, ...], want: tuple[int, ...]) -> str:
    """`: its axes are b i n e, must be b n i e`; nothing where no sizes say so."""
    if got == want or sorted(got) != sorted(want) or len({*want}) < len(want):
        return ""
    theirs = " ".join(axes[want.index(size)] for size in got)
    return f": its axes are {theirs}, must be {' '.join(axes)}"


def share(x: np.ndarray, y: np.ndarray, room: np.ndarray) -> np.ndarray:
    """|x − y| / room; 0 where they are the same, NaN included, and ∞ where only one is
    not a number."""
    with np.errstate(all="ignore"):
        found = np.abs(x - y) / room
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    return np.where(same, 0.0, np.where(np.isnan(found), np.inf, found))


def _element(
    case: Case,
    name: str,
    place: tuple[np.intp, ...],
    got: np.ndarray,
    want: np.ndarray,
    dtype: np.dtype,
) -> Worst:
    axes = case.axes(name)
    with np.errstate(all="ignore"):
        ulp = 2 * half_ulp(np.abs(want[place]), dtype)
        ulps = float(np.abs(got[place] - want[place]) / ulp)
    index = {axis: int(where) for axis, where in zip(axes, place, strict=True)}
    return Worst(index, float(got[place]), float(want[place]), ulps)


def _between(case: Case, before: str | None, name: str) -> list[str]:
    """The steps from a forward result to another that do something in this case."""
    steps = [step.name for step in STEPS]
    first = 0 if before is None else steps.index(LAST_STEP[before]) + 1
    is_single = case.op == "attention"
    idle = {
        "project": is_single,
        "softcap": case.softcap is None,
        "bias": "bias" not in case.inputs,
        "dropout": "dropout_keep" not in case.inputs,
        "merge": is_single,
    }
    between = steps[first : steps.index(LAST_STEP[name]) + 1]
    return [step for step in between if not idle.get(step)]

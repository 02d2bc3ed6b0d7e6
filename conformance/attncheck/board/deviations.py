"""What an implementation does otherwise than the spec says, with a case that shows it.

Failures in one storage type of what passes in float32 are one deviation; of the others,
those of one clause are.
"""

from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np

from attncheck.board.issues import issues
from attncheck.case import Case
from attncheck.clauses import CLAUSES
from attncheck.report.snippet import built_in_snippet
from attncheck.report.summary import finding_record
from attncheck.report.words import element
from attncheck.verdict import Run, Verdict

SENTENCES: Mapping[str, str] = {clause.name: clause.sentence for clause in CLAUSES}

EMPTY_ROW, EMPTY_ROW_BIAS = "empty-row-output", "bias-minus-inf-row"
"""The clauses of a query without a key."""

PRECISION = "precision-"
"""What a deviation is called that float32 does not have, before the storage type."""


def deviations(run: Run) -> list[dict[str, Any]]:
    """The deviations, those of most cases first."""
    failing = [v for v in run.verdicts if v.status == "fail" and not v.case.law]
    in_float32 = {_recipe(v) for v in failing if v.case.dtype == "F32"}
    groups: dict[str, list[Verdict]] = {}
    for verdict in failing:
        groups.setdefault(_name(verdict, in_float32), []).append(verdict)
    found = [_deviation(name, group, run) for name, group in groups.items()]
    return sorted(found, key=lambda one: -one["cases"])


def _name(verdict: Verdict, in_float32: Set[str]) -> str:
    """The clause that is broken; or the storage type, where float32 passes.

    What is wrong in a query without a key is that, whatever else the case is about.
    """
    case, first = verdict.case, verdict.first_failure
    if first is not None and first.worst is not None:
        empty = _without_keys(case)
        at = tuple(first.worst.index.get(axis, 0) for axis in "bni")
        if empty.any() and (empty[at] or np.isnan(first.worst.got)):
            return EMPTY_ROW_BIAS if "mask" not in case.inputs else EMPTY_ROW
    has_no_number = first is None or first.worst is None  # it is of another type
    is_alone = has_no_number or _recipe(verdict) not in in_float32
    return f"{PRECISION}{case.dtype}" if is_alone else case.clauses[0]


def _without_keys(case: Case) -> np.ndarray:
    """Which queries have no key that they may see: `b n i`."""
    sizes = tuple(case.sizes[axis] for axis in "bnij")
    seen = np.broadcast_to(case.inputs.get("mask", np.array(True)), sizes)
    bias = case.inputs.get("bias", np.zeros(1)).astype(np.float64)
    return ~(seen & (bias != -np.inf)).any(axis=-1)


def _recipe(verdict: Verdict) -> str:
    """What the case is built from: the same in every storage type."""
    return verdict.case.id.partition("/")[0].partition("@")[0]


def _deviation(name: str, group: Sequence[Verdict], run: Run) -> dict[str, Any]:
    shown = min(group, key=_cost)
    clauses = dict.fromkeys(clause for v in group for clause in v.case.clauses)
    first = shown.first_failure
    assert first is not None
    subject, framework = (str(run.subject[key]) for key in ("name", "framework"))
    return {
        "name": name,
        "spec": SENTENCES.get(name, SENTENCES[shown.case.clauses[0]]),
        "clauses": list(clauses),
        "cases": len(group),
        "dtypes": sorted({v.case.dtype for v in group}),
        "case": shown.case.id,
        "why": shown.case.why,
        "does": element(finding_record(first)) if first.worst else first.message,
        "snippet": built_in_snippet(shown.case, subject, framework, first.name),
        "issues": issues(subject, shown.case.id),
    }


def _cost(verdict: Verdict) -> tuple:
    """What a reader has to look through: float32 first, then few numbers."""
    first = verdict.first_failure
    is_number = first is not None and first.worst is not None
    size = sum(np.size(array) for array in verdict.case.inputs.values())
    name = first.name if first else ""
    return not is_number, name != "output", verdict.case.dtype != "F32", size

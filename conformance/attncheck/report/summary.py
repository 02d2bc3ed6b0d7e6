"""The report as one JSON document."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from attncheck.agreement import Agreement, ModelCheck
from attncheck.budget import Pooled
from attncheck.clauses import CLAUSES, OPERATION_CLAUSES
from attncheck.explain import Cause, Diagnosis
from attncheck.heat import Heat
from attncheck.kinds import kinds
from attncheck.lines import plain
from attncheck.report.snippet import snippet
from attncheck.shrink import Minimal
from attncheck.target import BUILT_IN
from attncheck.variants import Variant
from attncheck.verdict import Finding, Run, Verdict

SCHEMA = "attncheck-report/1"


def summary(
    runs: Sequence[Run],
    agreements: Sequence[Agreement] = (),
    model: Sequence[ModelCheck] = (),
    *,
    model_missing: str | None = None,
) -> dict[str, Any]:
    """Everything a report says, in types of JSON; infinity is the string "inf".

    Args:
        model: the checks of the real model.
        model_missing: why the real model was not run, where it was not.
    """
    passes = all(run.conforms for run in runs) and all(
        [*(a.worst <= 1 for a in agreements), *(check.passes for check in model)]
    )
    return plain(
        {
            "schema": SCHEMA,
            "conforms": passes,
            "clauses": _clauses(runs),
            "subjects": [_subject(run) for run in runs],
            "agreement": [asdict(agreement) for agreement in agreements],
            "model": [asdict(check) | {"passes": check.passes} for check in model],
            "model_missing": model_missing,
        }
    )


def _subject(run: Run) -> dict[str, Any]:
    return {
        **run.subject,
        "conforms": run.conforms,
        "counts": _counts(run.verdicts),
        "dtypes": {
            dtype: _cell([v for v in run.verdicts if v.case.dtype == dtype])
            for dtype in dict.fromkeys(v.case.dtype for v in run.verdicts)
        },
        "clauses": _matrix(run.verdicts),
        "measured": run.measured,
        "pooled": [pooled_record(key, one) for key, one in run.pooled.items()],
        "warnings": [asdict(noisy) for noisy in run.warnings],
        "laws": [asdict(holding) for holding in run.laws],
        "not_applicable": _reasons(run.verdicts),
        "results_not_judged": _results_not_judged(run.verdicts),
        "diagnoses": [diagnosis_record(one, run.verdicts) for one in run.diagnoses],
        "minimal": _minimal(run.minimal, run.subject) if run.minimal else None,
        "clauses_failing": run.failing,
        "clauses_not_judged": run.unjudged,
        "failures": _failures(run),
        "damage": run.damage,
        "seconds": sum(verdict.seconds for verdict in run.verdicts),
    }


def _clauses(runs: Sequence[Run]) -> dict[str, str]:
    """The clauses of all cases and what they say, in the order of the spec."""
    found = {c for run in runs for v in run.verdicts for c in v.case.clauses}
    known = (*CLAUSES, *OPERATION_CLAUSES)
    said = {clause.name: clause.sentence for clause in known if clause.name in found}
    return said | dict.fromkeys(sorted(found - said.keys()), "")


def _matrix(verdicts: Iterable[Verdict]) -> dict[str, dict[str, Any]]:
    """Clause → dtype → its cell."""
    cells: dict[str, dict[str, list[Verdict]]] = {}
    for verdict in verdicts:
        for clause in verdict.case.clauses:
            row = cells.setdefault(clause, {})
            row.setdefault(verdict.case.dtype, []).append(verdict)
    return {
        clause: {dtype: _cell(found) for dtype, found in row.items()}
        for clause, row in cells.items()
    }


def _failures(run: Run) -> list[dict[str, Any]]:
    """Everything that does not pass, by kind."""
    failures = [v for v in run.verdicts if v.outcome not in ("pass", "not applicable")]
    known = (cause for diagnosis in run.diagnoses for cause in diagnosis.causes)
    causes = {id: cause.variant.name for cause in known for id in cause.cases}
    return [
        failure_record(verdict)
        | {
            "kind": kind,
            "cause": causes.get(verdict.case.id),
            "heat": _heat(run.heats.get(verdict.case.id)),
        }
        for kind, alike in enumerate(kinds(failures))
        for verdict in alike
    ]


def _heat(heat: Heat | None) -> dict[str, Any] | None:
    return asdict(heat) if heat else None


def _counts(verdicts: Iterable[Verdict]) -> dict[str, int]:
    """Outcome → number of cases."""
    return dict(Counter(verdict.outcome for verdict in verdicts))


def _reasons(verdicts: Iterable[Verdict]) -> dict[str, int]:
    """Why cases do not apply → how many, the most first."""
    left_out = (v for v in verdicts if v.outcome == "not applicable")
    counted = Counter(v.message or "no reason is given" for v in left_out)
    return dict(counted.most_common())


def _cell(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """One dtype of one subject: its counts and its worst element that is not waived."""
    counted = [v for v in verdicts if v.outcome != "waived"] or verdicts
    worst = max(counted, key=lambda verdict: verdict.used)
    finding = max(worst.findings, key=lambda f: f.used, default=None)
    return {
        "counts": _counts(verdicts),
        "used": worst.used,
        "used_by": f"{worst.case.id} {finding.name}" if finding else None,
    }


def _results_not_judged(verdicts: Iterable[Verdict]) -> list[str]:
    """Results that the subject never gives: gradients without a `grad`, say."""
    given: dict[str, bool] = {}
    for finding in (f for verdict in verdicts for f in verdict.findings):
        judged = finding.status != "not judged"
        given[finding.name] = given.get(finding.name, False) or judged
    return [name for name, judged in given.items() if not judged]


def diagnosis_record(
    diagnosis: Diagnosis, verdicts: Iterable[Verdict] = ()
) -> dict[str, Any]:
    """A diagnosis as part of a document; `verdicts` are all of the subject's."""
    others = (
        "of laws" if verdict.case.law else "of another shape or type"
        for verdict in verdicts
        if verdict.status == "fail"
        and verdict.case.dtype in diagnosis.dtypes
        and verdict.case.id not in diagnosis.failing
    )
    return {
        "dtypes": diagnosis.dtypes,
        "failing": len(diagnosis.failing),
        "not_counted": dict(Counter(others)),
        "causes": [_cause(cause) for cause in diagnosis.causes],
        "closest": _cause(diagnosis.closest) if diagnosis.closest else None,
    }


def _minimal(minimal: Minimal, subject: Mapping[str, Any]) -> dict[str, Any]:
    plain = subject["name"] == minimal.target and minimal.target not in BUILT_IN
    return {
        "origin": minimal.origin,
        "scores": minimal.scores,
        "first": finding_record(minimal.finding),
        "snippet": snippet(
            minimal,
            subject["framework"],
            plain=plain,
            words=subject.get("accepts", {}),
        ),
    }


def _cause(cause: Cause) -> dict[str, Any]:
    return {
        **_variant(cause.variant),
        "explains": len(cause.cases),
        "alike": [_variant(variant) for variant in cause.alike],
    }


def _variant(variant: Variant) -> dict[str, Any]:
    return {
        "name": variant.name,
        "sentence": variant.sentence,
        "reference": variant.reference,
        "convention": variant.convention,
    }


def failure_record(verdict: Verdict) -> dict[str, Any]:
    """A verdict that is no pass, as part of a document."""
    finding = verdict.first_failure
    return {
        "case": verdict.case.id,
        "dtype": verdict.case.dtype,
        "clauses": verdict.case.clauses,
        "why": verdict.case.why,
        "status": verdict.outcome,
        "waived": verdict.waived.reason if verdict.waived else None,
        "message": verdict.message,
        "step": verdict.step,
        "results": [f.name for f in verdict.findings if f.status == "fail"],
        "first": finding_record(finding) if finding else None,
    }


def pooled_record(key: tuple[str, str], pooled: Pooled) -> dict[str, Any]:
    """Statistics of a dtype and a result, as part of a document."""
    dtype, name = key
    said = {"dtype": dtype, "result": name, "passes": pooled.passes}
    return said | asdict(pooled)


def finding_record(finding: Finding) -> dict[str, Any]:
    """A finding as part of a document."""
    return {
        "name": finding.name,
        "used": finding.used,
        "message": finding.message,
        "split": finding.split,
        "worst": asdict(finding.worst) if finding.worst else None,
    }

"""How far every room is from the definition, step by step, on the ten tokens."""

from collections.abc import Sequence
from importlib import import_module

import numpy as np
import sentence

from attncheck import frameworks, minilm
from attncheck.budget import PROFILES, budget, half_ulp
from attncheck.budget.problem import Problem
from attncheck.budget.profile import units
from attncheck.case import DTYPES, Case
from attncheck.definition import Expected, expected, operands
from attncheck.subject import Subject
from attncheck.subjects.attnref import room_subject
from attncheck.verdict import judge
from attncheck.worker import embed_with, run_case

STRICT = PROFILES["strict"]


def measure(
    room: str, dtypes: Sequence[str] = tuple(DTYPES)
) -> dict[str, dict[str, dict[str, float]]]:
    """Result → type → the greatest error, and the greatest share of a budget.

    `project` is judged for the queries, `merge` is the whole layer.

    Raises:
        AssertionError: the room is not within its budget.
    """
    subject = room_subject(room)
    found: dict[str, dict[str, dict[str, float]]] = {}
    for dtype in dtypes:
        case = sentence.attention_case(dtype)
        cells = judged(subject, case)
        whole = sentence.multi_head_case(dtype)
        cells["merge"] = judged(subject, whole)["output"]
        if dtype != "F64":  # in which the definition itself is no more exact
            cells["project"] = _projected(subject, whole)
        for name, cell in cells.items():
            found.setdefault(name, {})[dtype] = cell
    return found


def judged(subject: Subject, case: Case) -> dict[str, dict[str, float]]:
    """Result → the error and the share of the budget, of one case.

    Raises:
        AssertionError: the case is not within its budget.
    """
    want = expected(case)
    result = run_case(subject, case, {})
    assert result.status == "done", result.message
    verdict = judge(case, want, budget(case, want, STRICT), result)
    return {
        finding.name: _cell(
            result.arrays[finding.name],
            getattr(want, finding.name),
            finding.used,
            _where(want, finding.name),
        )
        for finding in verdict.findings
    }


def embeddings(room: str) -> float:
    """How far the model's sentence embeddings are from those by exact attention."""
    got = embed_with(room_subject(room))
    return float(np.abs(got - minilm.exact().embedding).max())


def versions(room: str) -> str:
    """The room's framework, in words."""
    return frameworks.adapter(room).describe()


def _where(want: Expected, name: str) -> np.ndarray | bool:
    """Which elements are comparable."""
    return want.visible if name in ("scores", "logits") else True


def _cell(
    got: np.ndarray, want: np.ndarray, used: float, where: np.ndarray | bool
) -> dict[str, float]:
    assert used <= 1, used
    got = got.astype(np.float64)
    counts = where & np.isfinite(want)
    assert np.array_equal(got[where & ~counts], want[where & ~counts])
    return {"error": float(np.abs(got[counts] - want[counts]).max()), "used": used}


def _projected(subject: Subject, case: Case) -> dict[str, float]:
    """The room's queries, against float64."""
    framework = frameworks.adapter(subject.framework)
    arguments = [framework.to_native(case.inputs[n]) for n in ("x", "w_q", "b_q")]
    with framework.precision(case.dtype):
        project = import_module(subject.name).project
        got = framework.to_numpy(project(*arguments))
    want = operands(case)[0]
    problem = Problem(case, expected(case), units(case, STRICT))
    bound = problem.operand_errors[0]
    room = bound + half_ulp(np.abs(want) + bound, got.dtype)
    used = float((np.abs(got.astype(np.float64) - want) / room).max())
    return _cell(got, want, used, True)

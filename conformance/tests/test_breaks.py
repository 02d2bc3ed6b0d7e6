"""A mistake in any clause, made on purpose, turns cases of that clause red.

Each test breaks a copy of the NumPy room in one place and judges it.
"""

import shutil
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import attnref
from attncheck.clauses import CLAUSES
from attncheck.judging import Judge
from attncheck.subject import Subject
from attncheck.subjects.attnref import subject_of
from attncheck.suite import by_clause, cases
from attncheck.verdict import Verdict, judge
from attncheck.worker import run_case

from .breaks import BREAKS, Break

SOURCE = Path(attnref.__file__).parent / "numpy"
SMOKE = cases("smoke")
CASES = by_clause(SMOKE)
JUDGE = Judge()
"""Computes what a case must give once, for every test."""


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """A copy of the room's source, and what makes a subject of it."""
    folder = tmp_path / "copied_room"
    shutil.copytree(SOURCE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == folder.name]:
        del sys.modules[name]


def subject(folder: Path) -> Subject:
    return subject_of(import_module(folder.name), "numpy")


def judged(subject: Subject, case) -> Verdict:
    with np.errstate(all="ignore"):  # NaN and infinity are what some cases are about
        result = run_case(subject, case, {})
    bounds = JUDGE.budget(case, subject.profile).bounds
    return judge(case, JUDGE.expected(case), bounds, result)


def apply(change: Break, folder: Path) -> None:
    file = folder / f"{change.module}.py"
    source = file.read_text("utf-8")
    assert source.count(change.old) == 1, f"stale: {file.name} has no {change.old!r}"
    file.write_text(source.replace(change.old, change.new), "utf-8")


@pytest.mark.parametrize("change", BREAKS, ids=lambda c: f"{c.clause}[{c.mistake}]")
def test_a_broken_clause_fails_one_of_its_cases_in_every_dtype(copy, change):
    apply(change, copy)
    broken = subject(copy)
    for dtype in change.dtypes:
        found = [case for case in CASES[change.clause] if case.dtype == dtype]
        assert change.status in {judged(broken, case).status for case in found}, dtype


def test_the_unbroken_copy_passes_every_case(copy):
    whole = subject(copy)
    own = [case for case in SMOKE if not case.compiled]  # NumPy has no compiler
    assert [
        v.case.id for v in (judged(whole, c) for c in own) if v.status != "pass"
    ] == []


def test_every_clause_is_broken():
    assert {change.clause for change in BREAKS} == {clause.name for clause in CLAUSES}


def test_no_break_is_listed_twice():
    names = [(change.clause, change.mistake) for change in BREAKS]
    assert len(set(names)) == len(names)

"""The kill table's measurements: the yardstick in PyTorch, and one case of it."""

import sys
from pathlib import Path

import numpy as np
import pytest

from attncheck.judging import Judge
from attncheck.suite import cases
from attncheck.verdict import compare

FOLDER = Path(__file__).parents[3] / "faults"
SMOKE = {case.id: case for case in cases("smoke", ["F64", "F32"])}
JUDGE = Judge()


@pytest.fixture
def module(monkeypatch):
    """A module of the folder, which is no package."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(FOLDER))
    yield __import__
    for name in set(sys.modules) - before:
        path = getattr(sys.modules[name], "__file__", None) or ""
        if path.startswith(str(FOLDER.parent / "faults")):
            del sys.modules[name]


def is_finite(case):
    """Whether every input is; a bias of −∞ is a bias that blocks."""
    return all(
        np.isfinite(array.astype(np.float64)).all() | (name == "bias")
        for name, array in case.inputs.items()
        if array.dtype != bool
    )


def test_the_yardstick_is_right_wherever_its_inputs_are_finite(module):
    naive = module("naive")
    finite = [case for case in SMOKE.values() if is_finite(case)]
    assert len(finite) > 250
    for case in finite:
        want, bounds = JUDGE.expected(case), JUDGE.budget(case, "strict").bounds
        for name, got in naive.results(case).items():
            found = compare(case, name, got, getattr(want, name), bounds[name])
            assert found.status == "pass", (case.id, name)


def test_a_case_shows_what_is_wrong_and_passes_what_is_right(module):
    measure, rules = module("measure"), module("rules")
    found = measure.measure(SMOKE["causal-lower-right/F32"])
    by = {name: set(one.flagged) for name, one in found.shown.items()}
    used = {rule.name for rule in rules.RULES if "F32" in rule.dtypes}
    assert by["causal-upper-left"] == used
    assert by["lse-base-two"] == {rules.ELEMENTS}
    assert "causal-lower-right" not in by  # here it changes nothing
    assert found.shown["causal-upper-left"].changes == measure.BEYOND
    assert found.checks[rules.ELEMENTS] == 50
    assert found.alarms[rules.ELEMENTS] == 0


def test_all_cases_together_show_an_output_that_is_cut_off(module):
    measure = module("measure")
    some = [case for case in cases("smoke", ["BF16"]) if not case.law]
    right = measure.look_again("the model", some)
    assert right.judged > 0 == right.alarms
    wrong = measure.look_again("output-cut-off", some, ["output"])
    assert set(wrong.pools) == {"output"}

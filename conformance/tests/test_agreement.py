"""How far two subjects agree, on the cases and in the real model."""

from dataclasses import replace

import numpy as np
import pytest

from attncheck import minilm
from attncheck.agreement import agreements, check_model
from attncheck.budget import half_ulp
from attncheck.case import DTYPES
from attncheck.definition import expected
from attncheck.exchange import Result
from attncheck.judging import Folder, Judge
from attncheck.suite import cases

CASES = {case.id: case for case in cases(dtypes=("F32", "BF16"))}
PLAIN, HALF = CASES["plain/F32"], CASES["plain/BF16"]
MASKED = CASES["mask-random/F32"]
NAN = CASES["nan-value/F32"]
JUDGE = Judge()


def done(case, **arrays) -> Result:
    """A result whose output is the definition's, rounded, unless others are given."""
    if not arrays:
        arrays = {"output": output(case)}
    return Result(case.id, "done", arrays=arrays)


def folder(chosen, *results, name="a") -> Folder:
    found = {result.id: result for result in results}
    return Folder(chosen, found, {"name": name, "profile": "strict"})


def agreement(case, first, second):
    """Of two subjects whose outputs are the given arrays."""
    a = folder([case], done(case, output=first), name="a")
    b = folder([case], done(case, output=second), name="b")
    (found,) = agreements(JUDGE, [a, b])
    return found


def output(case):
    return expected(case).output.astype(DTYPES[case.dtype])


@pytest.mark.parametrize("case", [PLAIN, HALF, NAN], ids=lambda case: case.id)
def test_identical_results_agree_bit_for_bit(case):
    found = agreement(case, output(case), output(case))
    assert (found.a, found.b, found.dtype) == ("a", "b", case.dtype)
    assert (found.cases, found.bitwise, found.worst) == (1, 1.0, 0.0)


def test_a_difference_is_a_share_of_both_budgets():
    shape, place = (
        PLAIN.inputs["q"].shape[:3] + PLAIN.inputs["v"].shape[3:],
        (0, 0, 0, 0),
    )
    first, second = np.ones(shape, np.float32), np.ones(shape, np.float32)
    second[place] += 2.0**-20
    found = agreement(PLAIN, first, second)
    bound = JUDGE.budget(PLAIN, "strict").bounds["output"][place]
    rounding = half_ulp(second[place].astype(np.float64), np.dtype(np.float32))
    assert found.worst == 2.0**-20 / (2 * bound + 2 * rounding)
    assert found.bitwise == 0
    assert found.where == f"{PLAIN.id} output"


def test_nan_on_one_side_only_is_no_agreement():
    broken = output(PLAIN)
    broken[0, 0, 0, 0] = np.nan
    assert agreement(PLAIN, output(PLAIN), broken).worst == np.inf
    assert agreement(PLAIN, broken, broken).worst == 0


@pytest.mark.parametrize("both", [True, False])
def test_a_wrong_shape_is_no_agreement(both):
    wrong = output(PLAIN)[:, :1]
    found = agreement(PLAIN, wrong if both else output(PLAIN), wrong)
    assert found.worst == np.inf


def test_a_blocked_keys_score_is_no_disagreement():
    visible = expected(MASKED).visible
    assert not visible.all()
    first = np.zeros(visible.shape, np.float32)
    second = np.where(visible, first, np.float32(7))
    a, b = (
        folder([MASKED], done(MASKED, scores=scores), name=name)
        for name, scores in (("a", first), ("b", second))
    )
    (found,) = agreements(JUDGE, [a, b])
    assert (found.bitwise, found.worst) == (1, 0)


def test_only_what_both_have_done_is_compared():
    chosen = [PLAIN, MASKED, HALF]
    refused = Result(MASKED.id, "refused")
    a = folder(chosen, done(PLAIN), done(MASKED), done(HALF), name="a")
    b = folder(chosen, done(PLAIN), refused, name="b")
    found = {row.dtype: row for row in agreements(JUDGE, [a, b])}
    assert found["F32"].cases == 1
    assert (found["BF16"].cases, found["BF16"].bitwise) == (0, 0)


def test_what_a_case_does_not_want_is_not_compared():
    a, b = (
        folder(
            [PLAIN], done(PLAIN, output=output(PLAIN), notes=np.full(3, n)), name=name
        )
        for n, name in enumerate("ab")
    )
    (found,) = agreements(JUDGE, [a, b])
    assert found.bitwise == 1


def test_cases_of_one_name_that_are_not_the_same_are_not_compared():
    other = replace(PLAIN, scale=3.0)
    a = folder([PLAIN], done(PLAIN), name="a")
    assert agreements(JUDGE, [a, folder([other], done(other), name="b")]) == []


def test_every_pair_is_compared():
    folders = [folder([PLAIN], done(PLAIN), name=name) for name in "abc"]
    found = [(row.a, row.b) for row in agreements(JUDGE, folders)]
    assert found == [("a", "b"), ("a", "c"), ("b", "c")]


def embedded(name, embedding):
    return Folder([], {}, {"name": name}, embedding)


LIMIT = 2.0**-20
"""Exact beside 1, and less than 1e-5."""


@pytest.fixture
def model(monkeypatch):
    """The real model's own embedding and limit, made up."""
    monkeypatch.setattr(minilm, "available", lambda: None)
    exact = minilm.Exact([], np.ones((2, 3)))
    monkeypatch.setattr(minilm, "exact", lambda: exact)
    monkeypatch.setattr(minilm, "rounding", lambda count: LIMIT)


@pytest.mark.usefixtures("model")
def test_embeddings_are_compared_with_exact_attention_and_in_pairs():
    here, there = np.ones((2, 3)), np.ones((2, 3))
    here[1, 1], there[1, 1] = 1 + LIMIT, 1 + 2.5 * LIMIT
    found = check_model([embedded("a", here), embedded("b", there)])
    exact = "float64 attention"
    passes = {(check.a, check.b): check.passes for check in found}
    assert passes == {("a", "b"): False, ("a", exact): True, ("b", exact): False}
    assert found[1].difference == LIMIT


@pytest.mark.usefixtures("model")
def test_no_more_than_a_hundred_thousandth_of_the_largest_entry_is_rounding(
    monkeypatch,
):
    monkeypatch.setattr(minilm, "rounding", lambda count: 1.0)
    limits = {check.limit for check in check_model([embedded("a", np.ones((2, 3)))])}
    assert limits == {1e-5}


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("other", [np.zeros((1, 3)), np.full((2, 3), np.nan)])
def test_embeddings_of_another_shape_or_of_nan_do_not_pass(other):
    (check,) = check_model([embedded("a", other)])
    assert not check.passes


def test_without_the_model_embeddings_are_not_compared(monkeypatch):
    monkeypatch.setattr(minilm, "available", lambda: "not here")
    assert check_model([embedded("a", np.zeros((2, 3)))]) == []


def test_a_subject_that_was_not_run_in_the_model_is_not_compared():
    assert check_model([folder([PLAIN], done(PLAIN))]) == []

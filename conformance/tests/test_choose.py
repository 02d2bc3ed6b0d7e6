"""Which cases a run has: of what is asked for, and of all types."""

import pytest

from attncheck import minilm
from attncheck.case import DTYPES
from attncheck.choose import ASKED_OF_CONVENTIONS, choose
from attncheck.clauses import CLAUSES, NUMERIC
from attncheck.suite import cases, operation_cases

SMOKE = choose("smoke")


def of(dtype, chosen):
    """The ids of a type's cases, but for the real ones."""
    return {c.id for c in chosen if c.dtype == dtype and not c.id.startswith("real/")}


def whole(set_name, dtype):
    """The ids of all cases that a set has in a type."""
    made = [*cases(set_name, [dtype]), *operation_cases(set_name, [dtype])]
    return {case.id for case in made}


@pytest.mark.parametrize("dtype", ASKED_OF_CONVENTIONS)
def test_a_smoke_run_asks_everything_in_two_types(dtype):
    assert of(dtype, SMOKE) == whole("smoke", dtype)


OTHERS = [dtype for dtype in DTYPES if dtype not in ASKED_OF_CONVENTIONS]


@pytest.mark.parametrize("dtype", OTHERS)
def test_of_the_others_it_asks_what_their_numbers_decide(dtype):
    found = [case for case in SMOKE if case.dtype == dtype]
    assert 0 < len(found) < len(whole("smoke", dtype))
    assert all(NUMERIC & set(case.clauses) for case in found)
    told = {clause.name for clause in CLAUSES if dtype in clause.dtypes} & NUMERIC
    assert told == {clause for case in found for clause in case.clauses} & NUMERIC


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_type_that_is_asked_for_is_asked_everything(dtype):
    assert of(dtype, choose("smoke", [dtype])) == whole("smoke", dtype)
    assert of(dtype, choose("smoke", list(DTYPES))) == whole("smoke", dtype)


def test_cases_that_are_asked_for_come_in_every_type():
    found = {case.dtype for case in choose("smoke", pattern="mask-single")}
    assert found == set(DTYPES)


def test_the_full_set_is_asked_in_every_type():
    chosen = choose("full")
    for dtype in DTYPES:
        assert of(dtype, chosen) == whole("full", dtype)


def test_what_is_called_numeric_is_a_clause():
    assert {clause.name for clause in CLAUSES} >= NUMERIC


@pytest.mark.skipif(minilm.available() is not None, reason=str(minilm.available()))
def test_a_smoke_run_has_the_first_and_the_last_layer_of_the_model():
    layers = [c.id for c in choose("full") if c.id.startswith("real/layer-")]
    found = [c.id for c in SMOKE if c.id.startswith("real/layer-")]
    assert found == [layers[0], layers[-1]]

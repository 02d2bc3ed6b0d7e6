"""The formulas, in pairs of float64, are what float64 cases are judged by."""

from dataclasses import replace

import numpy as np
import pytest

from attncheck import definition, formulas, pairs
from attncheck.budget import PROFILES, budget
from attncheck.case import DTYPES, Case
from attncheck.certify import LIMIT
from attncheck.suite import cases


@pytest.mark.parametrize("case", cases("smoke", ("F32",)), ids=lambda case: case.id)
def test_formulas_and_definition_mean_the_same(case):
    """They share no code; in float32 cases the definition has no part in the pairs."""
    want = definition.expected(case)
    bounds = budget(case, want, PROFILES["strict"])
    with np.errstate(all="ignore"):
        found = formulas.results(case, pairs)
    for name in case.wants:
        by_rows, by_formulas = getattr(want, name), pairs.nearest(found[name])
        finite = np.isfinite(by_rows)
        np.testing.assert_array_equal(
            np.where(finite, 0, by_rows), np.where(finite, 0, by_formulas), name
        )
        error = np.abs(by_formulas[finite] - by_rows[finite])
        assert (error <= LIMIT * bounds[name][finite]).all(), name


def float64_case(**inputs):
    rng = np.random.default_rng(0)
    arrays = {
        "q": np.abs(rng.standard_normal((1, 1, 3, 2))),
        "k": rng.standard_normal((1, 1, 4, 2)),
        "v": rng.standard_normal((1, 1, 4, 5)),
        "d_out": rng.standard_normal((1, 1, 3, 5)),
    }
    return Case("made", (), "", "F64", arrays | inputs)


def test_where_formulas_do_not_reach_the_definition_counts():
    """A score of −∞ has a weight of 0, as if its key were blocked."""
    case = float64_case()
    blocked = np.ones((1, 1, 1, 4), bool)
    blocked[..., 2] = False
    want = definition.expected(
        replace(case, inputs=dict(case.inputs) | {"mask": blocked})
    )
    key = case.inputs["k"].copy()
    key[0, 0, 2, 1] = -np.inf
    got = definition.expected(replace(case, inputs=dict(case.inputs) | {"k": key}))
    assert (got.scores[..., 2] == -np.inf).all()
    # Here in float64 alone: four keys, and weights of at most 1.
    room = 16 * np.finfo(np.float64).eps * np.abs(case.inputs["v"]).max()
    np.testing.assert_allclose(got.output, want.output, rtol=0, atol=room)


@pytest.mark.parametrize("factor", [2.0**1000, 2.0**-1000])
def test_values_of_any_size_are_computed_with(factor):
    """Powers of two multiply results exactly."""
    case = float64_case()
    scaled = float64_case(v=case.inputs["v"] * factor)
    got, want = (definition.expected(one).output for one in (scaled, case))
    np.testing.assert_array_equal(got, want * factor)


def test_float64_cases_are_rounded_once():
    """Two keys whose weights are 1/2 but for less than float64 can show in a sum.

    Their values cancel, so that the output is the difference of the weights: tanh of
    half the difference of the logits.
    """
    small = 2.0**-60
    case = Case(
        "made",
        (),
        "",
        "F64",
        {
            "q": np.ones((1, 1, 1, 1)),
            "k": np.array([[[[small], [0.0]]]]),
            "v": np.array([[[[1.0], [-1.0]]]]),
        },
        scale=1.0,
    )
    assert definition.expected(case).output.item() == small / 2
    rough = replace(case, dtype="F32", inputs=as_float32(case))
    assert definition.expected(rough).output.item() == 0


def as_float32(case):
    return {name: array.astype(DTYPES["F32"]) for name, array in case.inputs.items()}

"""The cases are what they say they are, and reach every clause of the spec."""

import os
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from attncheck.budget import PROFILES, budget, is_void
from attncheck.case import AXES, DTYPES, FORWARD
from attncheck.clauses import CLAUSES
from attncheck.definition import expected
from attncheck.suite import RECIPES, SETS, by_clause, cases, operation_cases
from attncheck.suite.shapes import COINCIDENCE, LENGTHS, PRIMES, UNGROUPED
from attncheck.suite.values import normal, source

SMOKE = cases("smoke")
FULL = cases("full")
BY_ID = {case.id: case for case in SMOKE}

MOST_SHAPES = 10
"""JAX compiles once a shape; three of these have an empty axis."""

MOST_SHAPES_OF_LAWS = 2
"""Beside those: a batch of one, and half of the keys."""

MOST_ROWS = 100
MOST_SCORES = 10_000
"""The definition loops over rows in Python."""

SATURATED = {"bias-lowest": ("bias",)}
"""Recipe → arrays that hold the largest number of a type instead of infinity."""

SHOWN = {
    "bias-minus-inf-nan",
    "bias-not-finite",
    "nan-query",
    "nan-key",
    "nan-value",
}
"""The clauses by which a result may be NaN or infinite."""


def test_ids_are_unique_and_name_the_dtype():
    ids = [case.id for case in FULL]
    assert len(set(ids)) == len(ids)
    assert all(case.id.endswith(f"/{case.dtype}") for case in FULL)


def test_the_full_set_holds_the_smoke_set():
    full = {case.id: case.sha256 for case in FULL}
    assert {case.id: case.sha256 for case in SMOKE}.items() <= full.items()


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.name)
def test_every_clause_has_a_case_in_every_dtype_in_which_it_says_something(clause):
    found = by_clause(SMOKE).get(clause.name, [])
    assert {case.dtype for case in found} == set(clause.dtypes)


def test_every_clause_of_a_case_is_known():
    known = {clause.name for clause in CLAUSES}
    assert {name for recipe in RECIPES for name in recipe.clauses} <= known


def test_clauses_are_named_once_and_say_one_sentence():
    names = [clause.name for clause in CLAUSES]
    assert len(set(names)) == len(names)
    assert all(clause.sentence.endswith(".") for clause in CLAUSES)


def test_every_recipe_says_its_own_mistake_in_a_sentence():
    whys = [recipe.why for recipe in RECIPES]
    assert len(set(whys)) == len(whys)
    assert all(why[0].isupper() and why.endswith(".") for why in whys)


def test_by_clause_lists_exactly_the_cases_that_name_the_clause():
    table = by_clause(SMOKE)
    pairs = {(clause, case.id) for clause, found in table.items() for case in found}
    assert pairs == {(clause, case.id) for case in SMOKE for clause in case.clauses}


def test_the_smoke_set_is_small():
    own = {_shape(case) for case in SMOKE if not case.law}
    assert len(own) <= MOST_SHAPES
    assert len({_shape(case) for case in SMOKE} - own) <= MOST_SHAPES_OF_LAWS
    for case in SMOKE:
        rows = case.sizes["b"] * case.sizes["n"] * case.sizes["i"]
        assert rows <= MOST_ROWS
        assert rows * case.sizes["j"] <= MOST_SCORES


@pytest.mark.parametrize("name", ["q", "k", "v", "d_out"])
def test_no_two_axes_of_an_array_of_different_primes_are_the_same(name):
    sizes = [PRIMES.sizes[axis] for axis in AXES[name]]
    assert len(set(sizes)) == len(sizes)


def test_different_primes_are_prime():
    assert all(size > 1 and _is_prime(size) for size in PRIMES if size)


def test_coincident_axes_are_all_the_same():
    assert len({COINCIDENCE.sizes[axis] for axis in "bnijde"}) == 1


@pytest.mark.parametrize("shape", [PRIMES, UNGROUPED])
def test_the_default_scale_is_no_power_of_two(shape):
    mantissa, _ = np.frexp(shape.d**-0.5)
    assert mantissa != 0.5


def test_cases_are_the_same_in_another_process():
    program = "import attncheck.suite as s; print(*(c.sha256 for c in s.cases()))"
    other = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert other.stdout.split() == [case.sha256 for case in SMOKE]


def test_dtypes_hold_the_same_numbers_rounded():
    for case in SMOKE:
        name, _, _ = case.id.rpartition("/")
        exact = BY_ID[f"{name}/F64"].inputs
        assert case.inputs.keys() == exact.keys()
        for name, array in case.inputs.items():
            storage = case.accumulation if name == "d_lse" else DTYPES[case.dtype]
            storage = exact[name].dtype if exact[name].dtype == bool else storage
            assert array.dtype == storage
            with np.errstate(over="ignore"):
                rounded = exact[name].astype(storage)
            if name in SATURATED.get(case.id.partition("/")[0], ()):
                assert np.isinf(rounded).any() == (case.dtype in ("BF16", "F16"))
                largest = ml_dtypes.finfo(storage).max
                rounded = np.clip(rounded, -largest, largest)
            np.testing.assert_array_equal(
                array.astype(np.float64), rounded.astype(np.float64), case.id
            )


def test_another_seed_draws_other_numbers():
    by_id = {case.id: case for case in FULL}
    for case in FULL:
        name, _, tag = case.id.partition("@")
        if tag.startswith("seed") and "q" in case.inputs and case.inputs["q"].any():
            base = by_id[f"{name}/{case.dtype}"]
            assert not np.array_equal(case.inputs["q"], base.inputs["q"]), case.id


def test_normal_numbers_are_twelve_uniform_ones_summed_exactly():
    raw = source("a", "test").random_raw(12)
    total = sum(int(bits) >> 11 for bits in raw) - 6 * 2**53
    assert normal(source("a", "test"), ()) == total / 2**53


def test_masks_have_four_axes_each_full_or_one():
    for case in FULL:
        for name in ("mask", "dropout_keep", "bias"):
            if name in case.inputs:
                shape = case.inputs[name].shape
                assert len(shape) == 4
                for size, axis in zip(shape, "bnij", strict=True):
                    assert size in (1, case.sizes[axis]), case.id


VISIBLE = {
    "causal-square": lambda b, i, j: j <= i,
    "causal-upper-left": lambda b, i, j: j <= i,
    "causal-lower-right": lambda b, i, j: j <= i + 2,
    "causal-more-queries": lambda b, i, j: j <= i,
    "causal-more-queries-lower-right": lambda b, i, j: j <= i - 3,
    "causal-negative-offset": lambda b, i, j: j <= i - 2,
    "causal-decode": lambda b, i, j: j == 0,
    "causal-decode-lower-right": lambda b, i, j: True,
    "causal-offset-by-batch": lambda b, i, j: j <= i + [1, 2, 3, 4][b],
    "causal-long": lambda b, i, j: j <= i + 62,
    "window": lambda b, i, j: i - 2 <= j <= i + 1,
    "window-wide": lambda b, i, j: i - 1 <= j <= i + 4,
    "window-self": lambda b, i, j: i == j,
    "window-left-open": lambda b, i, j: j <= i + 1,
    "window-right-open": lambda b, i, j: i - 1 <= j,
    "window-causal": lambda b, i, j: i - 3 <= j <= i,
    "window-lower-right": lambda b, i, j: i + 1 <= j <= i + 2,
    "window-long": lambda b, i, j: i + 45 <= j <= i + 62,
    "window-not": lambda b, i, j: j < i - 2,
    "prefix": lambda b, i, j: j <= i or j < 4,
    "prefix-by-batch": lambda b, i, j: j <= i or j < [1, 1, 2, 3][b],
    "padding": lambda b, i, j: j < [2, 4][b],
    "padding-coincidence": lambda b, i, j: j < [1, 1, 2, 3][b],
    "padding-empty": lambda b, i, j: j < [0, 4][b],
    "padding-long": lambda b, i, j: j < [22, 44][b],
    "padding-causal": lambda b, i, j: j <= i and j < [1, 1, 2, 3][b],
    "segments": lambda b, i, j: 2 * i // 5 == 3 * j // 67,
    "segments-scattered": lambda b, i, j: (i + b) % 3 == (2 * j - b) % 3,
    "segments-causal": lambda b, i, j: 2 * i // 5 == 3 * j // 7 and j <= i,
}
"""Recipe → whether query i sees key j, in numbers."""


@pytest.mark.parametrize("name", VISIBLE)
def test_a_mask_is_what_a_loop_over_queries_and_keys_says(name):
    case = BY_ID[f"{name}/F32"]
    full = tuple(case.sizes[axis] for axis in "bnij")
    mask = np.broadcast_to(case.inputs["mask"], full)
    for b, n, i, j in np.ndindex(full):
        assert mask[b, n, i, j] == VISIBLE[name](b, i, j), (b, n, i, j)


def test_the_words_of_a_predicate_say_the_whole_mask():
    described = [case for case in FULL if case.predicate]
    assert described
    for case in described:
        offset = case.predicate.get("causal_offset", case.sizes["j"])
        left, right = case.predicate.get("window", (None, None))
        i, j = np.ogrid[: case.sizes["i"], : case.sizes["j"]]
        says = j <= i + offset
        says &= (left is None) | (j >= i - (left or 0))
        says &= (right is None) | (j <= i + (right or 0))
        shape = tuple(case.sizes[axis] for axis in "bnij")
        mask = np.broadcast_to(case.inputs["mask"], shape)
        np.testing.assert_array_equal(mask, np.broadcast_to(says, shape), case.id)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_case_can_say_something(dtype):
    for case in (case for case in SMOKE if case.dtype == dtype):
        assert _void(case) is None, case.id


def test_every_case_of_the_full_set_can_say_something_in_float32():
    for case in (case for case in FULL if case.dtype == "F32"):
        assert _void(case) is None, case.id


def test_only_cases_about_nan_and_infinity_expect_any():
    for case in (case for case in SMOKE if not case.law):
        want = expected(case)
        numbers = [n for n in case.wants if n in ("output", "weights") or n[0] == "d"]
        finite = all(np.isfinite(getattr(want, name)).all() for name in numbers)
        assert finite == (not SHOWN & set(case.clauses)), case.id


def test_a_case_wants_all_that_applies_unless_its_gradients_are_left_open():
    for case in SMOKE:
        if case.op == "multi_head_attention":
            assert case.wants == ("output",)
        elif case.law:
            twin = BY_ID[case.twin].wants
            assert case.wants == (FORWARD[4:] if case.law == "split-keys" else twin)
        elif case.sizes["i"] == 1 or case.sizes["b"] == 0:
            assert case.wants == FORWARD  # no one trains on it, but it must not fail
        elif case.wants != FORWARD:
            dbias = ("dbias",) if "bias" in case.inputs else ()
            assert case.wants == (*FORWARD, "dq", "dk", "dv", *dbias)
        else:
            assert SHOWN & set(case.clauses), case.id


@pytest.mark.parametrize(
    "arguments", [{"set_name": "some"}, {"dtypes": ("F8",)}], ids=["set", "dtype"]
)
def test_an_unknown_set_or_dtype_is_an_error_that_names_the_known_ones(arguments):
    known = SETS if "set_name" in arguments else DTYPES
    with pytest.raises(ValueError, match=", ".join(known)):
        cases(**arguments)


def test_every_length_around_a_tile_is_one_of_queries_and_one_of_keys():
    around = {tile + step for tile in (16, 64, 128) for step in (-1, 0, 1)}
    tiles = [c for c in FULL if c.id.startswith("tile") and not c.law]
    for axis in "ij":
        assert {case.sizes[axis] for case in tiles} == around


@pytest.mark.parametrize("case", [c for c in SMOKE if c.strides], ids=lambda c: c.id)
def test_an_array_with_a_layout_is_not_contiguous_and_holds_its_values(case):
    for name in case.strides:
        array = case.laid_out(name)
        assert not array.flags.c_contiguous
        assert array.tobytes() == case.inputs[name].tobytes()


def test_layouts_are_permuted_sliced_and_expanded():
    orders = [
        (order.split(), set(AXES[name]))
        for case in SMOKE
        for name, order in case.strides.items()
    ]
    assert any(set(words) == axes for words, axes in orders)
    assert any(word.isdigit() for words, _ in orders for word in words)
    assert any(set(words) < axes for words, axes in orders)


def _void(case) -> str | None:
    want = expected(case)
    return is_void(case, want, budget(case, want, PROFILES["strict"]))


def _shape(case) -> tuple[int, ...]:
    return tuple(case.sizes[axis] for axis in "bhgijde")


def _is_prime(number: int) -> bool:
    return all(number % divisor for divisor in range(2, number))


@pytest.mark.parametrize("made", [cases, operation_cases])
def test_the_full_set_has_every_length_around_a_tile(made):
    names = [case.id.partition("/")[0] for case in made("full", ["F32"])]
    for length in LENGTHS:
        recipes = [name for name in names if name.endswith(f"@j{length}")]
        assert len(recipes) > 3, length

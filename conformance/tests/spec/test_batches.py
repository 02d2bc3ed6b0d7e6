"""Plans hold every sequence once, within their limits, and waste what they say."""

import re
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnref.spec import (
    by_bucket,
    by_length,
    first_fit_decreasing,
    in_order,
    layout,
    waste_of_batches,
    waste_of_rows,
)

repeatable = settings(max_examples=150, deadline=None, derandomize=True, database=None)

LENGTHS = st.lists(st.integers(0, 12), min_size=1, max_size=20)
BOUNDS = (3, 7, 12)


def in_plan(plan):
    return sorted(index for row in plan for index in row)


@repeatable
@given(LENGTHS, st.integers(1, 5))
def test_every_sequence_is_in_one_batch(lengths, size):
    everything = list(range(len(lengths)))
    plans = [in_order(lengths, size), by_length(lengths, size)]
    plans.append(by_bucket(lengths, BOUNDS, size))
    for plan in plans:
        assert in_plan(plan) == everything
        assert all(1 <= len(batch) <= size for batch in plan)
    assert [index for batch in plans[0] for index in batch] == everything
    sorted_lengths = [lengths[index] for batch in plans[1] for index in batch]
    assert sorted_lengths == sorted(lengths, reverse=True)


@repeatable
@given(LENGTHS, st.integers(1, 5))
def test_a_batch_is_of_one_bucket_and_full_but_for_the_last_of_each(lengths, size):
    buckets = [
        {next(x for x in BOUNDS if lengths[index] <= x) for index in batch}
        for batch in by_bucket(lengths, BOUNDS, size)
    ]
    assert all(len(bucket) == 1 for bucket in buckets)
    plan = by_bucket(lengths, BOUNDS, size)
    partial = [bucket for bucket, x in zip(buckets, plan, strict=True) if len(x) < size]
    assert len({min(bucket) for bucket in partial}) == len(partial)
    assert all(batch == sorted(batch) for batch in plan)


@repeatable
@given(LENGTHS, st.integers(1, 5))
def test_no_batches_of_that_size_have_less_padding_than_those_by_length(lengths, size):
    """Σ of maxima is least when the k-th largest batches hold the k·size longest."""
    found = waste_padded(by_length(lengths, size), lengths, size)
    rng = np.random.default_rng(len(lengths))
    for _ in range(20):
        order = rng.permutation(len(lengths))
        other = [order[x : x + size].tolist() for x in range(0, len(order), size)]
        assert found <= waste_padded(other, lengths, size)


def waste_padded(plan, lengths, size):
    """Places of all batches, were each of `size` rows."""
    return sum(size * max(lengths[index] for index in batch) for batch in plan)


@cache
def least_rows(lengths, budget):
    """The fewest rows that hold the lengths, by trying every first row."""
    if not lengths:
        return 0
    first, *rest = lengths
    best = len(lengths)
    for choice in range(2 ** len(rest)):
        taken = [x for n, x in enumerate(rest) if choice >> n & 1]
        if first + sum(taken) <= budget:
            left = tuple(x for n, x in enumerate(rest) if not choice >> n & 1)
            best = min(best, 1 + least_rows(left, budget))
    return best


@repeatable
@given(st.lists(st.integers(1, 10), min_size=1, max_size=7))
def test_first_fit_decreasing_packs_as_well_as_is_proved(lengths):
    plan = first_fit_decreasing(lengths, 10)
    assert in_plan(plan) == list(range(len(lengths)))
    assert all(sum(lengths[index] for index in row) <= 10 for row in plan)
    least = least_rows(tuple(sorted(lengths, reverse=True)), 10)
    assert len(plan) <= Fraction(11, 9) * least + Fraction(6, 9)


def test_first_fit_decreasing_by_hand():
    """7 and 5 come first; 4 fits beside 5, not beside 7; 3 fits beside 7."""
    assert first_fit_decreasing([3, 4, 7, 1, 5], 10) == [[2, 0], [4, 1, 3]]


def test_waste_by_hand():
    lengths = [1, 4, 2, 3]
    assert waste_of_batches(in_order(lengths, 2), lengths) == (14 / 10, 50 / 30, 2)
    assert waste_of_batches(by_length(lengths, 2), lengths) == (12 / 10, 40 / 30, 2)
    plan = by_bucket(lengths, (2, 4), 2)
    assert plan == [[0, 2], [1, 3]]
    assert waste_of_batches(plan, lengths, (2, 4)) == (12 / 10, 40 / 30, 2)
    rows = first_fit_decreasing(lengths, 5)
    assert rows == [[1, 0], [3, 2]]
    assert waste_of_rows(rows, lengths, 5) == (1, 50 / 30, 1)


@repeatable
@given(LENGTHS.filter(any), st.integers(12, 20))
def test_a_layout_leads_every_token_to_its_row_and_back(lengths, budget):
    plan = first_fit_decreasing(lengths, budget)
    found = layout(plan, lengths, budget)
    shape = (len(plan), budget)
    assert {np.shape(part) for part in found[:3]} == {shape}
    owner = np.repeat(np.arange(len(lengths)), lengths)
    place = np.concatenate([np.arange(length) for length in lengths])
    flat = [np.ravel(part)[found.places] for part in found[:3]]
    np.testing.assert_array_equal(flat[0], np.arange(sum(lengths)))
    np.testing.assert_array_equal(flat[1], owner)
    np.testing.assert_array_equal(flat[2], place)
    ids = np.array(found.ids)
    assert (ids >= 0).sum() == sum(lengths)
    seen = found.mask().bind(np.asarray)(*np.ogrid[: shape[0], :1, :budget, :budget])
    same = (ids[:, :, None] == ids[:, None]) & (ids[:, None] >= 0)
    np.testing.assert_array_equal(seen[:, 0], same)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: in_order([1, -1], 2), "`lengths` must be ints of at least 0"),
        (lambda: by_length([1.5], 2), "`lengths` must be ints of at least 0"),
        (lambda: by_length([1], 0), "`size` must be an int of at least 1, but is 0"),
        (lambda: by_bucket([1], [3, 3], 1), "`bounds` must rise, but are [3, 3]"),
        (lambda: by_bucket([1, 9], [3, 5], 1), "sequence 1 has length 9, above all of"),
        (lambda: first_fit_decreasing([9], 5), "length 9, above the budget of 5"),
        (lambda: first_fit_decreasing([1], True), "`budget` must be an int of at le"),
        (lambda: layout([[0], [0]], [1, 2], 4), "must hold each of 2 sequences once"),
        (lambda: layout([[0, 1]], [2, 3], 4), "row 0 has 5 tokens, above 4"),
    ],
)
def test_what_cannot_be_planned_is_said(make, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        make()

"""Mask predicates against loops over every query and key."""

import operator
from dataclasses import FrozenInstanceError
from itertools import product
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnref.spec import causal, padding, prefix, segments, window
from attnref.spec.masks import window_of

SIZES = {"b": 2, "n": 1, "i": 4, "j": 5}
SHAPE = tuple(SIZES.values())
repeatable = settings(max_examples=100, deadline=None, derandomize=True, database=None)


def array(mask, sizes=SIZES):
    """The predicate answered for every index, `b n i j`."""
    shape = tuple(sizes.values())
    grids = np.ogrid[tuple(map(slice, shape))]
    return np.broadcast_to(mask.bind(np.asarray)(*grids), shape)


class Spoken(NamedTuple):
    """A predicate beside the same in plain words: a function of four ints."""

    mask: object
    truth: object


def entries(length, low=-7, high=7):
    return st.lists(st.integers(low, high), min_size=length, max_size=length)


def carried(values):
    """The same numbers as a list, a tuple and an integer array."""
    return st.sampled_from([values, tuple(values), np.array(values, np.int32)])


@st.composite
def per_batch(draw):
    """An offset or a count, with its value at every batch element."""
    if draw(st.booleans()):
        value = draw(st.integers(-7, 7))
        return value, [value] * SIZES["b"]
    values = draw(entries(SIZES["b"]))
    return draw(carried(values)), values


@st.composite
def causals(draw):
    offset, at = draw(per_batch())
    return Spoken(causal(offset), lambda b, n, i, j: j <= i + at[b])


@st.composite
def windows(draw):
    left, right = (draw(st.none() | st.integers(0, 4)) for _ in range(2))
    offset, at = draw(per_batch())
    return Spoken(
        window(left, right, offset),
        lambda b, n, i, j: (
            (left is None or j >= i + at[b] - left)
            and (right is None or j <= i + at[b] + right)
        ),
    )


@st.composite
def prefixes(draw):
    count, at = draw(per_batch())
    return Spoken(prefix(count), lambda b, n, i, j: j < at[b])


@st.composite
def paddings(draw):
    at = draw(entries(SIZES["b"], 0, SIZES["j"]))
    return Spoken(padding(draw(carried(at))), lambda b, n, i, j: j < at[b])


@st.composite
def segmentations(draw):
    q, k = (
        [draw(entries(SIZES[axis], 0, 2)) for _ in range(SIZES["b"])] for axis in "ij"
    )
    return Spoken(
        segments(draw(carried(q)), draw(carried(k))),
        lambda b, n, i, j: q[b][i] == k[b][j],
    )


def combined(parts):
    def pair(operator_, word):
        return st.builds(
            lambda x, y: Spoken(
                operator_(x.mask, y.mask),
                lambda *at: word((x.truth(*at), y.truth(*at))),
            ),
            parts,
            parts,
        )

    negated = st.builds(lambda x: Spoken(~x.mask, lambda *at: not x.truth(*at)), parts)
    return pair(operator.and_, all) | pair(operator.or_, any) | negated


SIMPLE = causals() | windows() | prefixes() | paddings()
spoken = st.recursive(SIMPLE | segmentations(), combined, max_leaves=5)


@repeatable
@given(spoken)
def test_a_predicate_says_what_its_words_say(case):
    want = [case.truth(*at) for at in product(*map(range, SHAPE))]
    assert array(case.mask).ravel().tolist() == want
    case.mask.check(SIZES)


def stretches(length):
    """A non-empty stretch `start, stop` of an axis."""
    ends = st.lists(st.integers(0, length), min_size=2, max_size=2, unique=True)
    return ends.map(sorted)


def visible(mask, i0, i1, j0, j1):
    """The block of the materialised mask."""
    grids = np.ogrid[: SIZES["b"], :1, i0:i1, j0:j1]
    return np.broadcast_to(
        mask.bind(np.asarray)(*grids), (SIZES["b"], 1, i1 - i0, j1 - j0)
    )


@repeatable
@given(spoken, stretches(SIZES["i"]), stretches(SIZES["j"]))
def test_what_a_block_claims_is_true(case, rows, columns):
    extent = case.mask.block(*rows, *columns)
    block = visible(case.mask, *rows, *columns)
    assert extent in ("empty", "full", "partial")
    assert extent != "empty" or not block.any()
    assert extent != "full" or block.all()


@st.composite
def one_offset(draw):
    """A simple predicate whose bounds are the same for the whole batch."""
    offset, left = draw(st.integers(-7, 7)), draw(st.none() | st.integers(0, 4))
    right = draw(st.none() | st.integers(0, 4))
    return draw(
        st.sampled_from(
            [
                causal(offset),
                causal([offset, offset + 2]),
                window(left, right, offset),
                prefix(offset),
                padding([abs(offset), left or 0]),
            ]
        )
    )


@repeatable
@given(one_offset(), stretches(9), stretches(9))
def test_a_simple_predicate_claims_all_that_is_true(mask, rows, columns):
    block = visible(mask, *rows, *columns)
    want = "full" if block.all() else "partial" if block.any() else "empty"
    assert mask.block(*rows, *columns) == want


def test_segments_claim_what_their_ids_say_where_these_are_sorted():
    q_ids = [[0, 0, 1, 1, 2], [4, 4, 5, 5, 5]]
    k_ids = [[0, 0, 0, 1, 1], [4, 4, 4, 5, 5]]
    mask = segments(q_ids, np.array(k_ids))
    claims = {
        (rows, keys): mask.block(*rows, *keys)
        for rows in ((0, 2), (2, 4), (1, 3))
        for keys in ((0, 3), (3, 5), (2, 4))
    }
    assert [at for at, claim in claims.items() if claim == "full"] == [
        ((0, 2), (0, 3)),
        ((2, 4), (3, 5)),
    ]
    assert [at for at, claim in claims.items() if claim == "empty"] == [
        ((0, 2), (3, 5)),
        ((2, 4), (0, 3)),
    ]
    for (rows, keys), claim in claims.items():
        block = visible(mask, *rows, *keys)
        want = "full" if block.all() else "partial" if block.any() else "empty"
        assert claim == want


def test_offsets_align_the_corners():
    upper_left = [[1, 0, 0], [1, 1, 0]]
    lower_right = [[1, 1, 0], [1, 1, 1]]
    sizes = {"b": 1, "n": 1, "i": 2, "j": 3}
    assert array(causal(), sizes)[0, 0].tolist() == upper_left
    assert array(causal(3 - 2), sizes)[0, 0].tolist() == lower_right


def test_both_ends_of_a_window_are_inside():
    sizes = {"b": 1, "n": 1, "i": 3, "j": 5}
    got = array(window(1, 2), sizes)[0, 0]
    assert got.tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [0, 1, 1, 1, 1]]


@pytest.mark.parametrize(
    "use", [bool, operator.not_, lambda m: m and m, lambda m: m or m]
)
def test_a_predicate_has_no_truth_value(use):
    with pytest.raises(TypeError, match=r"combine predicates with `&`, `\|` and `~`"):
        use(causal())


@pytest.mark.parametrize("other", [True, None, np.ones((1, 1, 1, 1), bool), len])
@pytest.mark.parametrize("combine", [operator.and_, operator.or_])
def test_predicates_combine_with_predicates_only(combine, other):
    with pytest.raises(TypeError, match="unsupported operand"):
        combine(causal(), other)
    with pytest.raises(TypeError, match="unsupported operand"):
        combine(other, causal())


MASKS = {
    "causal": causal([1, 2]),
    "window": window(1, None, [0, 1]),
    "prefix": prefix([1, 2]),
    "padding": padding([3, 4]),
    "segments": segments([[0] * 4] * 2, [[0] * 5] * 2),
    "and": causal() & padding([3, 4]),
    "or": causal() | padding([3, 4]),
    "not": ~padding([3, 4]),
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_a_predicate_is_frozen_and_hashable(mask):
    for name in vars(mask):
        with pytest.raises(FrozenInstanceError):
            setattr(mask, name, 0)
    assert hash(mask) == hash(mask.bind(lambda value: value))


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_binding_reaches_every_array_and_changes_no_answer(mask):
    given_first, given_again = [], []
    bound = mask.bind(lambda values: given_first.append(values) or np.asarray(values))
    bound.bind(lambda values: given_again.append(values) or values)
    assert {type(values) for values in given_first} == {tuple}
    assert {type(values) for values in given_again} == {np.ndarray}
    assert len(given_first) == len(given_again)
    assert (array(bound) == array(mask)).all()


def test_plain_ints_are_not_bound():
    mask = causal(2) & window(1, 0, 3) | prefix(2)
    assert mask.bind(lambda values: pytest.fail("no array here")) == mask


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (
            padding([1, 2, 3]),
            "`lengths` of the mask must have axes b = 2, but has shape (3,)",
        ),
        (causal([1]), "`offset` of the mask must have axes b = 2, but has shape (1,)"),
        (
            segments(np.zeros((2, 5), int), np.zeros((2, 5), int)),
            "`q_ids` of the mask must have axes b i = 2 4, but has shape (2, 5)",
        ),
        (
            ~(causal() | segments([[0] * 4] * 2, [[0] * 4] * 2)),
            "`k_ids` of the mask must have axes b j = 2 5, but has shape (2, 4)",
        ),
    ],
)
def test_what_does_not_fit_the_sizes_is_said(mask, words):
    with pytest.raises(ValueError, match="of the mask must have") as error:
        mask.check(SIZES)
    assert str(error.value) == words


RAGGED = [[1, 2], [3]]
MIXED = [[1, 2], 3]


@pytest.mark.parametrize(
    ("make", "exception", "words"),
    [
        (
            lambda: causal(1.0),
            TypeError,
            "offset as an int or integers of axes b, but got 1.0",
        ),
        (lambda: causal(True), TypeError, "but got True"),
        (lambda: causal(None), TypeError, "but got None"),
        (lambda: causal("12"), TypeError, "are integers, not '1'"),
        (lambda: causal(np.array(1)), TypeError, "integers of axes b"),
        (lambda: causal(np.array([1.0])), TypeError, "integers of axes b"),
        (lambda: prefix([[1]]), TypeError, "takes n as an int or integers of axes b"),
        (lambda: padding(3), TypeError, "lengths as integers of axes b, but got 3"),
        (lambda: padding([1.0, 2.0]), TypeError, "are integers, not 1.0"),
        (lambda: padding([True]), TypeError, "are integers, not True"),
        (lambda: padding(np.array([True])), TypeError, "`padding` takes lengths"),
        (lambda: padding({1, 2}), TypeError, "`padding` takes lengths"),
        (lambda: segments([0, 1], [0, 1]), TypeError, "q_ids as integers of axes b i"),
        (lambda: segments([[0]], [0]), TypeError, "k_ids as integers of axes b j"),
        (lambda: segments(RAGGED, RAGGED), ValueError, "rows of different lengths"),
        (lambda: segments(MIXED, MIXED), ValueError, "rows of different lengths"),
        (
            lambda: window(-1, 0),
            ValueError,
            "takes left ≥ 0 or None (no bound), but got -1",
        ),
        (
            lambda: window(0, -2),
            ValueError,
            "takes right ≥ 0 or None (no bound), but got -2",
        ),
        (lambda: window(1.0, 0), ValueError, "but got 1.0"),
        (lambda: window(True, 0), ValueError, "but got True"),
        (
            lambda: window(0, 0, 0.5),
            TypeError,
            "offset as an int or integers of axes b",
        ),
    ],
)
def test_bad_arguments_are_refused(make, exception, words):
    with pytest.raises(exception) as error:
        make()
    assert words in str(error.value)


def test_numpys_integers_are_ints():
    assert causal(np.int64(2)) == causal(2)
    mask = window(np.int8(1), np.int64(2))
    assert mask == window(1, 2)
    assert {type(mask.left), type(mask.right)} == {int}


def test_an_empty_batch_has_empty_lengths():
    sizes = {"b": 0, "n": 1, "i": 2, "j": 3}
    mask = padding([]) & causal(np.zeros(0, int))
    mask.check(sizes)
    assert array(mask, sizes).shape == (0, 1, 2, 3)


@pytest.mark.parametrize(
    ("mask", "window_"),
    [
        (causal(), (None, 0, 0)),
        (causal([1, 2]), (None, 0, (1, 2))),
        (window(3, None, -1), (3, None, -1)),
        (causal() & causal(), None),
        (padding([3]), None),
        (np.ones((1, 1, 1, 1), bool), None),
    ],
)
def test_what_is_a_window_is_known_as_one(mask, window_):
    assert window_of(mask) == window_

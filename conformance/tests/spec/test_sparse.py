"""Sparse patterns against loops over every query and key."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnref.spec import (
    block_local,
    causal,
    dilated_window,
    fixed,
    global_positions,
    listed_blocks,
    strided,
    window,
)

BATCH, ROWS, KEYS = 2, 9, 11
SIZES = {"b": BATCH, "n": 1, "i": ROWS, "j": KEYS}
repeatable = settings(max_examples=150, deadline=None, derandomize=True, database=None)


def array(mask, i=(0, ROWS), j=(0, KEYS)):
    """The predicate answered for a block of queries and keys, `b i j`."""
    grids = np.ogrid[:BATCH, :1, slice(*i), slice(*j)]
    shape = (BATCH, 1, i[1] - i[0], j[1] - j[0])
    return np.broadcast_to(mask.bind(np.asarray)(*grids), shape)[:, 0]


def visible(sets):
    """`b i j`, from the set of keys of each batch element and query."""
    return np.array(
        [[[j in keys for j in range(KEYS)] for keys in row] for row in sets]
    )


@st.composite
def offsets(draw):
    """An offset, one or one a batch element, and its value at each element."""
    if draw(st.booleans()):
        value = draw(st.integers(-6, 6))
        return value, [value] * BATCH
    values = draw(st.lists(st.integers(-6, 6), min_size=BATCH, max_size=BATCH))
    return draw(st.sampled_from([values, np.array(values, np.int32)])), values


def by_positions(keys_of, at):
    """What `keys_of` says of the position of every query."""
    return visible([[keys_of(i + offset) for i in range(ROWS)] for offset in at])


@st.composite
def fixeds(draw):
    length = draw(st.integers(1, 5))
    summary = draw(st.integers(1, length))
    offset, at = draw(offsets())

    def keys_of(p):
        """The summaries of all blocks up to p, and p's own block, as they come."""
        found, block = set(), []
        for j in range(p + 1):
            block = [*block, j] if j % length else [j]
            found |= {j} if j % length in range(length - summary, length) else set()
        return found | set(block)

    return fixed(length, summary, offset), by_positions(keys_of, at)


@st.composite
def block_locals(draw):
    size = draw(st.integers(1, 5))
    left, right = (draw(st.none() | st.integers(0, 2)) for _ in range(2))
    offset, at = draw(offsets())
    blocks = {y: range(y * size, y * size + size) for y in range(-20, 20)}

    def keys_of(p):
        (own,) = (y for y, block in blocks.items() if p in block)
        return {
            j
            for y, block in blocks.items()
            if (left is None or own - y <= left) and (right is None or y - own <= right)
            for j in block
        }

    return block_local(size, left, right, offset), by_positions(keys_of, at)


@st.composite
def dilated_windows(draw):
    left, right = (draw(st.none() | st.integers(0, 3)) for _ in range(2))
    dilation = draw(st.integers(1, 4))
    offset, at = draw(offsets())
    ends = (-40 if left is None else -left, 40 if right is None else right)

    def keys_of(p):
        return {p + r * dilation for r in range(ends[0], ends[1] + 1)}

    return dilated_window(left, right, dilation, offset), by_positions(keys_of, at)


@st.composite
def globals_(draw):
    positions = draw(st.lists(st.integers(-2, KEYS + 2), min_size=1, max_size=4))
    offset, at = draw(offsets())

    def keys_of(p):
        return set(range(KEYS)) if p in positions else set(positions)

    given_as = draw(st.sampled_from([positions, np.array(positions)]))
    return global_positions(given_as, offset), by_positions(keys_of, at)


@st.composite
def lists(draw):
    size = draw(st.integers(1, 5))
    rows, width = -(-ROWS // size), draw(st.integers(1, 3))
    entry = st.integers(-1, -(-KEYS // size))
    row = st.lists(entry, min_size=width, max_size=width)
    blocks = draw(st.lists(row, min_size=rows, max_size=rows))

    def keys_of(i):
        return {y * size + x for y in blocks[i // size] if y >= 0 for x in range(size)}

    given_as = draw(st.sampled_from([blocks, np.array(blocks)]))
    return listed_blocks(given_as, size), by_positions(keys_of, [0] * BATCH)


PATTERNS = fixeds() | block_locals() | dilated_windows() | globals_() | lists()


def stretches(length):
    """A non-empty stretch `start, stop` of an axis."""
    ends = st.lists(st.integers(0, length), min_size=2, max_size=2, unique=True)
    return ends.map(sorted)


@repeatable
@given(PATTERNS)
def test_a_pattern_is_what_its_loops_say(case):
    mask, want = case
    mask.check(SIZES)
    np.testing.assert_array_equal(array(mask), want)


@repeatable
@given(PATTERNS, stretches(ROWS), stretches(KEYS))
def test_what_a_block_claims_is_all_that_is_true(case, rows, keys):
    mask, _ = case
    block = array(mask, rows, keys)
    want = "full" if block.all() else "partial" if block.any() else "empty"
    assert mask.block(*rows, *keys) == want
    assert mask.bind(np.asarray).block(*rows, *keys) == want


@repeatable
@given(st.integers(1, 5), offsets(), stretches(ROWS), stretches(KEYS))
def test_strided_is_the_two_sets_of_the_paper(stride, offset, rows, keys):
    """Child et al.: {t, …, i} with t = max(0, i − l), and {j : (i − j) mod l = 0}."""
    offset, at = offset

    def keys_of(p):
        near = set(range(max(0, p - stride), p + 1))
        return near | {j for j in range(p + 1) if (p - j) % stride == 0}

    mask = strided(stride, offset)
    np.testing.assert_array_equal(array(mask), by_positions(keys_of, at))
    claim, block = mask.block(*rows, *keys), array(mask, rows, keys)
    assert (claim == "empty") == (not block.any())
    assert claim != "full" or block.all()


@repeatable
@given(PATTERNS, PATTERNS, stretches(ROWS), stretches(KEYS))
def test_blocks_that_two_joined_patterns_empty_are_known(one, other, rows, keys):
    joined = one[0] | other[0]
    np.testing.assert_array_equal(array(joined), one[1] | other[1])
    is_empty = not array(joined, rows, keys).any()
    assert (joined.block(*rows, *keys) == "empty") == is_empty


def test_the_patterns_of_big_bird_and_of_longformer():
    """Neighbouring blocks, one listed block for each, and global positions 0 and 1."""
    blocks = [[2], [0], [-1], [1]]
    big_bird = block_local(3, 1, 1) | listed_blocks(blocks, 3) | global_positions([0])
    longformer = dilated_window(1, 1, 2) | global_positions([0])
    for i, j in product(range(ROWS), range(KEYS)):
        beside = abs(i // 3 - j // 3) <= 1
        listed = [j // 3] == blocks[i // 3]
        is_global = 0 in (i, j)
        assert array(big_bird)[0, i, j] == (beside or listed or is_global)
        assert array(longformer)[0, i, j] == (i - j in (-2, 0, 2) or is_global)


def test_a_dilation_of_1_is_a_window():
    for ends in product((None, 0, 2), (None, 0, 1)):
        got, want = dilated_window(*ends, 1, 3), window(*ends, 3)
        np.testing.assert_array_equal(array(got), array(want))


def test_how_many_blocks_of_a_long_sequence_are_skipped():
    """Counted by hand: of 32 × 32 blocks of 32, on and below the diagonal are 528."""
    starts = range(0, 1024, 32)

    def left(mask):
        claims = [mask.block(i, i + 32, j, j + 32) for i, j in product(starts, starts)]
        return len(claims) - claims.count("empty")

    assert left(causal()) == 528
    assert left(block_local(32)) == 32
    assert left(block_local(32, 1, 1)) == 32 * 3 - 2
    assert left(block_local(64)) == 16 * 4
    # Summaries lie in the last of every four blocks: with own ones, 8 · 10 + 4 · 28.
    assert left(fixed(128, 8)) == 8 * 10 + 4 * 28
    # The last 128 keys, and the diagonals 4 blocks apart before them.
    assert left(strided(128)) == 32 + 31 + 30 + 29 + 28 + (24 + 20 + 16 + 12 + 8 + 4)
    assert left(window(31, 0) | global_positions([0])) == 32 + 31 + 31 + 30


MASKS = {
    "strided": strided(3, [0, 1]),
    "fixed": fixed(3, 1, [0, 1]),
    "block-local": block_local(3, 1, None, [0, 1]),
    "dilated": dilated_window(None, 2, 3, [0, 1]),
    "global": global_positions([0, 4], [0, 1]),
    "listed": listed_blocks([[0], [1], [2]], 3),
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_binding_changes_no_answer(mask):
    bound = mask.bind(np.asarray)
    assert hash(mask) == hash(mask.bind(lambda values: values))
    np.testing.assert_array_equal(array(bound), array(mask))


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (
            fixed(2, 1, [0, 1, 2]),
            "`offset` of the mask must have axes b = 2, but has shape (3,)",
        ),
        (global_positions([0], [1]), "`offset` of the mask must have axes b = 2"),
        (
            listed_blocks([[0], [1]], 3),
            "must have x = 3 rows, for i = 9 query positions in blocks of 3, but has 2",
        ),
        (causal() & listed_blocks([[0]] * 8), "must have x = 9 rows"),
    ],
)
def test_what_does_not_fit_the_sizes_is_said(mask, words):
    with pytest.raises(ValueError, match="of the mask must have") as error:
        mask.check(SIZES)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("make", "exception", "words"),
    [
        (lambda: strided(0), ValueError, "`strided` takes stride ≥ 1, but got 0"),
        (lambda: strided(2.0), ValueError, "takes stride ≥ 1, but got 2.0"),
        (lambda: strided(2, 0.5), TypeError, "offset as an int or integers of axes b"),
        (lambda: fixed(2, 3), ValueError, "takes summary ≤ length = 2, but got 3"),
        (lambda: fixed(True, 1), ValueError, "takes length ≥ 1, but got True"),
        (lambda: fixed(4, 0), ValueError, "takes summary ≥ 1, but got 0"),
        (lambda: block_local(0), ValueError, "takes size ≥ 1, but got 0"),
        (lambda: block_local(2, -1), ValueError, "takes left ≥ 0, but got -1"),
        (lambda: dilated_window(1, 1, 0), ValueError, "takes dilation ≥ 1, but got 0"),
        (lambda: dilated_window(1, 1.5, 1), ValueError, "takes right ≥ 0, but got 1.5"),
        (lambda: global_positions([]), ValueError, "takes at least one position"),
        (lambda: global_positions(3), TypeError, "positions as integers of axes x"),
        (lambda: listed_blocks([0, 1]), TypeError, "blocks as integers of axes x y"),
        (lambda: listed_blocks([[], []]), ValueError, "rows of at least one block"),
        (lambda: listed_blocks([[0.0]]), TypeError, "are integers, not 0.0"),
    ],
)
def test_bad_arguments_are_refused(make, exception, words):
    with pytest.raises(exception) as error:
        make()
    assert words in str(error.value)

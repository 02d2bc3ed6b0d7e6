"""Caches and packed batches are attention over what they hold, and nothing else."""

import numpy as np
import pytest

from attncheck import assert_attention
from attnref.spec import causal, gather_pages, pack, padding, segments, unpack

from .calls import draw

SIZES = {"b": 3, "h": 2, "g": 2, "i": 6, "j": 6, "d": 4, "e": 3}
LENGTHS = [4, 6, 1]
PAGE = 2

both = pytest.mark.parametrize("blocked", [False, True], ids=["whole", "blocked"])


@pytest.fixture
def case():
    return draw("F32", sizes=SIZES).inputs


def attend(room, blocked, q, k, v, mask):
    q, k, v = (x if room.framework.is_native(x) else room.array(x) for x in (q, k, v))
    if not blocked:
        return room.attention(q, k, v, mask=mask)
    return room.attention_blocked(q, k, v, mask=mask, block_q=4, block_k=4)[0]


def flat(array):
    """`b h j x` → `t h x`, without einops: sequence by sequence."""
    parts = (x[:, :length] for x, length in zip(array, LENGTHS, strict=True))
    return np.concatenate([part.swapaxes(0, 1) for part in parts])


@both
def test_every_step_of_decoding_gives_its_row_of_the_whole(room, case, blocked):
    q, k, v = (case[name] for name in "qkv")
    steps = []
    for at in range(6):
        cache = [x.copy() for x in (k, v)]
        for x in cache:  # what has not been written yet
            x[:, :, at + 1 :] = np.nan
        row = attend(room, blocked, q[:, :, at : at + 1], *cache, causal([at] * 3))
        steps.append(room.numpy(row))
    output = np.concatenate(steps, axis=2)
    assert_attention(output, q, k, v, mask=causal(), profile="strict")


@both
def test_queries_at_the_end_of_caches_of_different_lengths(room, case, blocked):
    q, k, v = case["q"][:, :, :1], case["k"], case["v"]
    for b, length in enumerate(LENGTHS):
        k[b, :, length:] = v[b, :, length:] = np.nan
    mask = causal([length - 1 for length in LENGTHS])
    output = attend(room, blocked, q, k, v, mask)
    assert_attention(output, q, k, v, mask=padding(LENGTHS), profile="strict")


@both
def test_a_packed_batch_unpacks_and_packs_again(room, case, blocked):
    q, k, v = (case[name] for name in "qkv")
    packed = [room.array(flat(x)) for x in (q, k, v)]
    rows = [unpack(x, LENGTHS, lambda x: room.array(np.array(x))) for x in packed]
    output = attend(room, blocked, *rows, causal() & padding(LENGTHS))
    again = pack(output, LENGTHS, lambda x: room.array(np.array(x)))
    want = np.zeros_like(case["d_out"])
    for b, part in enumerate(np.split(room.numpy(again), np.cumsum(LENGTHS)[:-1])):
        want[b, :, : LENGTHS[b]] = part.swapaxes(0, 1)
    seen = np.tri(6, dtype=bool) & (np.arange(6) < np.array(LENGTHS)[:, None, None])
    seen = seen & (np.arange(6)[:, None] < np.array(LENGTHS)[:, None, None])
    assert_attention(want, q, k, v, mask=seen[:, None], profile="strict")


@both
def test_a_packed_batch_is_one_sequence_of_segments(room, case, blocked):
    q, k, v = (case[name] for name in "qkv")
    one = [flat(x).swapaxes(0, 1)[None] for x in (q, k, v)]
    ids = [np.repeat(np.arange(3), LENGTHS).tolist()]
    output = room.numpy(attend(room, blocked, *one, causal() & segments(ids, ids)))
    start = 0
    for b, length in enumerate(LENGTHS):
        alone = (x[b : b + 1, :, :length] for x in (q, k, v))
        part = output[:, :, start : start + length]
        assert_attention(part, *alone, mask=causal(), profile="strict")
        start += length


@both
def test_pages_are_read_by_their_table_and_the_others_never(room, case, blocked):
    q, k, v = (case[name] for name in "qkv")
    table = np.array([[5, 2, 0], [7, 1, 4], [3, 0, 0]])
    cache = {}
    for name, x in (("k", k), ("v", v)):
        pages = np.full((9, PAGE, 2, x.shape[3]), np.nan, np.float32)
        for b, length in enumerate(LENGTHS):
            for j in range(length):
                pages[table[b, j // PAGE], j % PAGE] = x[b, :, j]
        cache[name] = gather_pages(room.array(pages), room.array(table))
    output = attend(room, blocked, q, cache["k"], cache["v"], padding(LENGTHS))
    assert_attention(output, q, k, v, mask=padding(LENGTHS), profile="strict")


@pytest.mark.parametrize("lengths", [[1, 2], [4, -1, 1], []])
def test_lengths_must_be_those_of_the_packed_rows(lengths):
    with pytest.raises(ValueError, match="add up to t = 4 ≥ 1, but is"):
        unpack(np.ones((4, 1, 1)), lengths, np.array)


@pytest.mark.parametrize("lengths", [[1], [1, 4], [0, -1]])
def test_lengths_must_be_those_of_the_padded_rows(lengths):
    with pytest.raises(ValueError, match="must be b = 2 ints from 0 to j = 3, but is"):
        pack(np.ones((2, 1, 3, 1)), lengths, np.array)

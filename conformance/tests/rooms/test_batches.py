"""Attention on packed segments is attention on each sequence alone."""

import numpy as np
import pytest

from attncheck import assert_attention
from attnref.spec import causal, first_fit_decreasing, layout

from .calls import draw

LENGTHS = [3, 1, 6, 0, 4, 2]
BUDGET = 7
SIZES = {"b": 1, "h": 2, "g": 2, "i": 16, "j": 16, "d": 4, "e": 3}

masked = pytest.mark.parametrize("mask", [None, causal()], ids=["whole", "causal"])


@pytest.fixture
def packed():
    """All sequences one after the other, `t h x`, by the name of the array."""
    inputs = draw("F32", sizes=SIZES).inputs
    return {name: inputs[name][0].swapaxes(0, 1) for name in ("q", "k", "v", "d_out")}


def alone(packed, place):
    """The arrays of one sequence, `1 h t x`."""
    start = sum(LENGTHS[:place])
    return {
        name: x[start : start + LENGTHS[place]].swapaxes(0, 1)[None]
        for name, x in packed.items()
    }


def attend(room, blocked, plan, packed, mask):
    """Output and gradients, `t h x`, of the packed rows."""
    found = layout(plan, LENGTHS, BUDGET)
    seen = found.mask() if mask is None else found.mask() & mask

    def asarray(values):
        return room.array(np.array(values))

    rows = {k: found.rows(room.array(x), asarray) for k, x in packed.items()}
    q, k, v, d_out = (rows[name] for name in ("q", "k", "v", "d_out"))
    if blocked:
        blocks = {"mask": seen, "block_q": 4, "block_k": 4}
        output, _ = room.attention_blocked(q, k, v, **blocks)
        gradients = room.attention_blocked_vjp(d_out, q, k, v, **blocks)
    else:
        output = room.attention(q, k, v, mask=seen)
        gradients = room.attention_vjp(d_out, q, k, v, mask=seen)
    results = (found.tokens(x, asarray) for x in (output, *gradients[:3]))
    is_padding = np.array(found.ids) < 0
    assert is_padding.any()
    padding = room.numpy(output).swapaxes(1, 2)[is_padding]
    assert (padding == 0).all()
    return {
        name: room.numpy(x)
        for name, x in zip(("q", "dq", "dk", "dv"), results, strict=True)
    }


@masked
@pytest.mark.parametrize("blocked", [False, True], ids=["whole", "blocked"])
def test_packed_segments_are_each_sequence_alone(room, packed, blocked, mask):
    plan = first_fit_decreasing(LENGTHS, BUDGET)
    assert len(plan) == 3
    results = attend(room, blocked, plan, packed, mask)
    for place, length in enumerate(LENGTHS):
        if length:
            own, got = alone(packed, place), alone(results, place)
            assert_attention(
                got["q"],
                own["q"],
                own["k"],
                own["v"],
                mask=mask,
                d_out=own["d_out"],
                grads=tuple(got[name] for name in ("dq", "dk", "dv")),
                profile="strict",
            )


def test_segments_that_see_each_other_fail(room, packed):
    """The same rows under a mask of padding only."""
    plan = first_fit_decreasing(LENGTHS, BUDGET)
    found = layout(plan, LENGTHS, BUDGET)
    q, k, v = (
        found.rows(room.array(packed[x]), lambda x: room.array(np.array(x)))
        for x in "qkv"
    )
    is_token = room.array((np.array(found.ids) >= 0)[:, None, None])
    output = room.attention(q, k, v, mask=is_token)
    got = found.tokens(output, lambda x: room.array(np.array(x)))
    own, part = alone(packed, 2), alone({"q": room.numpy(got)}, 2)
    with pytest.raises(AssertionError):
        assert_attention(part["q"], own["q"], own["k"], own["v"], profile="strict")

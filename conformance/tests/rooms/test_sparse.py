"""Sparse patterns, run by `attention` and, without their empty blocks, in blocks."""

import numpy as np
import pytest

from attncheck.judging import Judge
from attncheck.subjects.attnref import blocked_subject, room_subject
from attncheck.suite import RECIPES
from attncheck.suite.build import build
from attncheck.verdict import judge
from attncheck.worker import run_case
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

from .calls import answered, assert_defined, change, draw, options

SIZES = {"b": 2, "h": 1, "g": 2, "i": 9, "j": 11, "d": 3, "e": 5}
FULL = (2, 2, 9, 11)
JUDGE = Judge()

MASKS = {
    "strided": strided(4),
    "strided, offset of each batch element": strided(3, [2, -1]),
    "fixed": fixed(4, 1, 2),
    "block-local": block_local(4),
    "block-local with neighbours": block_local(3, 1, None, [0, 2]),
    "dilated": dilated_window(2, 1, 3),
    "longformer": window(1, 1) | global_positions([0, 7]),
    "big bird": block_local(4) | listed_blocks([[2], [-1], [0]], 4),
    "causal big bird": causal(2) & (global_positions([0]) | block_local(4, 1)),
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_the_whole_and_its_blocks_are_the_definitions(room, mask):
    case = draw("F32", sizes=SIZES)
    want = change(case, mask=answered(mask, FULL))
    with room.framework.precision("F32"):
        q, k, v = (room.array(case.inputs[name]) for name in "qkv")
        keywords = options(room, case, mask=mask)
        steps = room.attention_steps(q, k, v, **keywords)
        blocks = {"block_q": 4, "block_k": 4}
        output, lse = room.attention_blocked(q, k, v, **keywords, **blocks)
        d_out, d_lse = (room.array(case.inputs[x]) for x in ("d_out", "d_lse"))
        gradients = room.attention_blocked_vjp(
            d_out, q, k, v, **keywords, **blocks, d_lse=d_lse
        )
    assert_defined(want, {"output": room.numpy(steps.output)})
    found = dict(zip(("dq", "dk", "dv"), gradients[:3], strict=True))
    found |= {"output": output, "lse": lse}
    assert_defined(want, {name: room.numpy(x) for name, x in found.items()})


SPARSE = {x.name: x for x in RECIPES if x.name.startswith("sparse-")}


def verdict_on(subject, case, answered=None):
    """What the judge says of a case, of which the subject is shown another."""
    result = run_case(subject, answered or case, {})
    bounds = JUDGE.budget(case, subject.profile).bounds
    return judge(case, JUDGE.expected(case), bounds, result)


@pytest.mark.parametrize("recipe", SPARSE.values(), ids=SPARSE)
@pytest.mark.parametrize("make", [room_subject, blocked_subject])
def test_the_judge_passes_its_cases(room, recipe, make):
    (case,) = build(recipe, ["F32"])
    verdict = verdict_on(make(room.name), case)
    assert verdict.status == "pass", verdict


@pytest.mark.parametrize(
    ("mask", "key", "seeing"),
    [(block_local(4), 5, (4, 8)), (fixed(4, 1), 5, (4, 8)), (window(1, 1), 0, (0, 4))],
)
def test_a_block_that_no_one_of_it_sees_is_not_read(room, mask, key, seeing):
    """A NaN that some may see is outside the spec; here it shows what was read."""
    case = draw("F32", sizes=SIZES | {"i": 12, "j": 12})
    case.inputs["v"][:, :, key] = np.nan
    q, k, v = (room.array(case.inputs[name]) for name in "qkv")
    output, _ = room.attention_blocked(q, k, v, mask=mask, block_q=4, block_k=4)
    is_finite = np.isfinite(room.numpy(output)).all(axis=(0, 1, 3))
    reading = range(*seeing)
    assert is_finite[[i for i in range(12) if i not in reading]].all()
    assert not is_finite[reading].all()


def _from_the_first_key(offset):
    near = window(4, 0, offset)
    return lambda b, n, i, j: near(b, n, i, j) | (j % 5 == 0) & (j <= i + offset)


WRONG = {
    ("strided", "the stride one longer"): lambda at: strided(6, at),
    ("strided", "the offset one less"): lambda at: strided(5, at - 1),
    ("strided", "counted from the first key"): _from_the_first_key,
    ("strided", "its own key hidden"): lambda at: strided(5, at) & ~window(0, 0, at),
    ("fixed", "one key of summary"): lambda at: fixed(8, 1, at),
    ("fixed", "blocks one longer"): lambda at: fixed(9, 2, at),
    ("fixed", "without an offset"): lambda at: fixed(8, 2),
    ("block-local", "no neighbour"): lambda at: block_local(3, 0, 0, at),
    ("block-local", "the neighbour behind"): lambda at: block_local(3, 0, 1, at),
    ("block-local", "blocks one longer"): lambda at: block_local(4, 1, 0, at),
    ("dilated", "ends in keys"): lambda at: dilated_window(2, 0, 3, at - 8),
    ("dilated", "ends exclusive"): lambda at: dilated_window(5, 1, 3, at - 8),
    ("dilated", "not dilated"): lambda at: window(18, 6, at - 8),
    ("listed", "local only"): lambda at: block_local(4, 1, 0),
    ("listed", "no global position"): lambda at: (
        block_local(4, 1, 0) | listed_blocks([[2], [7]], 4)
    ),
}
"""A recipe, what is wrong, and the mask, at the offset of the lower-right corner."""


@pytest.mark.parametrize("name", WRONG, ids=": ".join)
def test_a_pattern_that_is_off_by_one_fails(room, name):
    (case,) = build(SPARSE[f"sparse-{name[0]}"], ["F32"])
    shape = case.inputs["mask"].shape
    wrong = WRONG[name](case.sizes["j"] - case.sizes["i"])
    grids = np.ogrid[tuple(map(slice, shape))]
    seen = np.broadcast_to(
        getattr(wrong, "bind", lambda _: wrong)(np.asarray)(*grids), shape
    )
    verdict = verdict_on(room_subject(room.name), case, change(case, mask=seen.copy()))
    assert verdict.status == "fail", verdict

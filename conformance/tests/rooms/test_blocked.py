"""Attention in blocks is attention, wherever the blocks end and whatever is skipped."""

from dataclasses import replace
from functools import partial
from inspect import signature

import numpy as np
import pytest

from attncheck.case import GRADIENTS
from attncheck.judging import Judge
from attncheck.subject import KEYWORDS, Subject
from attncheck.subjects.attnref import blocked_subject
from attncheck.suite import cases
from attncheck.verdict import judge
from attncheck.worker import run_case
from attnref.spec import causal, padding, prefix, segments, window

from .calls import answered, assert_defined, change, draw, options

SIZES = {"b": 2, "h": 2, "g": 2, "i": 9, "j": 11, "d": 3, "e": 5}
FULL = (2, 4, 9, 11)
BLOCKS = {"block_q": 4, "block_k": 4}
JUDGE = Judge()

RECIPES = (
    "no-keys", "no-queries", "softcap-causal", "bias-minus-inf-row", "dropout",
    "empty-rows", "blocked-value-nan", "memory-packed",
)  # fmt: skip
"""Cases for what blocks make hard; the full set judges all of them."""

CASES = {case.id: case for case in cases(dtypes=("F32", "BF16", "F64"))}


def judged(subject, case):
    with np.errstate(all="ignore"):  # NaN and infinity are what some cases are about
        result = run_case(subject, case, {})
    bounds = JUDGE.budget(case, subject.profile).bounds
    return judge(case, JUDGE.expected(case), bounds, result)


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_judge_passes_blocks_of_four(room, recipe):
    verdict = judged(blocked_subject(room.name), CASES[f"{recipe}/F32"])
    assert verdict.status == "pass", verdict


@pytest.mark.parametrize("dtype", ["BF16", "F64"])
def test_the_judge_passes_blocks_in_other_types(room, dtype):
    verdict = judged(blocked_subject(room.name), CASES[f"softcap-causal/{dtype}"])
    assert verdict.status == "pass", verdict


@pytest.mark.parametrize("recipe", ["softcap-causal", "empty-rows"])
def test_the_judge_passes_parts_that_are_merged(room, recipe):
    case = replace(CASES[f"{recipe}/F32"], wants=("output", "lse"))

    def in_parts(q, k, v, **options):
        outputs, lses = [], []
        for part in (slice(0, 3), slice(3, None)):
            given = {
                name: x[..., part] if hasattr(x, "shape") and x.shape[3] > 1 else x
                for name, x in options.items()
            }
            found = room.attention_blocked(q, k[:, :, part], v[:, :, part], **given)
            outputs.append(found[0])
            lses.append(found[1])
        return room.merge_parts(outputs, lses)

    subject = Subject(
        call=in_parts, framework=room.name, name="parts", profile="strict",
        accepts=frozenset(KEYWORDS), returns=("output", "lse"),
    )  # fmt: skip
    verdict = judged(subject, case)
    assert verdict.status == "pass", verdict


def run(room, case, **others):
    """Output, log-sum-exp and gradients of a case, as NumPy arrays."""
    with room.framework.precision(case.dtype):
        q, k, v = (room.array(case.inputs[name]) for name in "qkv")
        keywords = BLOCKS | options(room, case, **others)
        output, lse = room.attention_blocked(q, k, v, **keywords)
        d_out, d_lse = (room.array(case.inputs[x]) for x in ("d_out", "d_lse"))
        gradients = room.attention_blocked_vjp(d_out, q, k, v, **keywords, d_lse=d_lse)
        found = {"output": output, "lse": lse}
        found |= dict(zip(GRADIENTS, gradients, strict=True))
        return {name: room.numpy(array) for name, array in found.items()}


Q_IDS = [[0, 0, 0, 0, 1, 1, 1, 1, 2], [7] * 9]
K_IDS = [[0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2], [7] * 10 + [8]]

MASKS = {
    "none": None,
    "offset of each batch element": causal([-3, 5]),
    "all blocked": causal(-9),
    "window": window(2, 1),
    "prefix": causal() | prefix(5),
    "no keys in one element": padding([0, 11]),
    "segments": segments(Q_IDS, K_IDS),
    "not": ~window(3, 3) & padding([11, 8]),
    "callable": lambda b, n, i, j: (j <= i) | (n == 1),
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_a_mask_is_answered_tile_by_tile(room, mask):
    case = draw("F32", sizes=SIZES, bias="nj")
    want = case
    if mask is not None:
        ask = (lambda m: m) if not hasattr(mask, "bind") else None
        grid = mask(*np.ogrid[tuple(map(slice, FULL))]) if ask else answered(mask, FULL)
        want = change(case, mask=np.broadcast_to(grid, FULL).copy())
    assert_defined(want, run(room, case, mask=mask))


@pytest.mark.parametrize(("block_q", "block_k"), [(1, 11), (99, 5)])
def test_blocks_of_any_size(room, block_q, block_k):
    case = draw("F32", sizes=SIZES | {"b": 1, "h": 1})
    mask = causal(1)
    want = change(case, mask=answered(mask, (1, 2, 9, 11)))
    blocks = {"block_q": block_q, "block_k": block_k}
    assert_defined(want, run(room, case, mask=mask, **blocks))


def test_lengths_beside_those_of_the_default_blocks(room):
    parameters = signature(room.attention_blocked).parameters
    block_q, block_k = (parameters[x].default for x in ("block_q", "block_k"))
    i, j = block_q + 1, block_k + 1
    case = draw("F32", sizes={"b": 1, "h": 1, "g": 1, "i": i, "j": j, "d": 4, "e": 2})
    seen = np.arange(j) <= np.arange(i)[:, None] + j - i
    want = change(case, mask=seen[None, None])
    blocks = {"block_q": block_q, "block_k": block_k}
    assert_defined(want, run(room, case, mask=causal(j - i), **blocks))


def test_a_value_in_a_tile_that_no_one_of_it_sees_is_not_read(room):
    case = draw("F32", sizes=SIZES | {"i": 12, "j": 12})
    case.inputs["v"][:, :, 8:] = np.nan
    output = run(room, case, mask=causal())["output"]
    assert np.isfinite(output[:, :, :8]).all()
    assert np.isnan(output[:, :, 8:]).all()


@pytest.mark.parametrize("size", [0, -1, 2.0, True, None])
def test_a_block_has_a_size(room, size):
    call = partial(room.attention_blocked, *(room.array(np.ones((1, 1, 2, 2))),) * 3)
    with pytest.raises(ValueError, match="`block_k` must be an int of at least 1, but"):
        call(block_k=size)


@pytest.mark.parametrize(
    ("outputs", "lses", "words"),
    [
        ([], [], "at least one, but got 0 and 0"),
        ([(1, 1, 2, 3)], [], "at least one, but got 1 and 0"),
        ([(1, 1, 2, 3)] * 2, [(1, 1, 2), (1, 1, 5)], "query positions i = 2"),
        ([(1, 1, 2, 3), (1, 1, 2, 4)], [(1, 1, 2)] * 2, "value width e = 3"),
    ],
)
def test_parts_fit_each_other(room, outputs, lses, words):
    arrays = [
        [room.array(np.ones(shape, np.float32)) for shape in shapes]
        for shapes in (outputs, lses)
    ]
    with pytest.raises(ValueError, match=words):
        room.merge_parts(*arrays)

"""`assert_attention` judges arrays of every framework: here, those of the rooms."""

import re

import numpy as np
import pytest

from attncheck import assert_attention, testing, tolerance
from attncheck.case import DTYPES, GRADIENTS
from attncheck.definition import expected
from attnref.spec import causal, padding

from .calls import PRIMES, draw, options, run

SIZES = PRIMES | {"j": 19}
N = PRIMES["h"] * PRIMES["g"]
FULL = (PRIMES["b"], N, PRIMES["i"], SIZES["j"])
MASK = np.random.default_rng(3).random(FULL) < 0.7
KEEP = np.random.default_rng(4).random(FULL) < 0.7

CALLS = {
    "plain": {},
    "mask": {"mask": MASK},
    "bias and softcap": {"bias": "nj", "softcap": 1.5, "scale": -0.4},
    "dropout": {"dropout_rate": 0.3, "dropout_keep": KEEP},
    "everything": {
        "mask": MASK,
        "bias": "nij",
        "scale": 0.3,
        "softcap": 2.0,
        "dropout_rate": 0.3,
        "dropout_keep": KEEP,
    },
}


def judge(room, case, results, **others):
    """Judges a room's results, in its own arrays, of a call in its own arrays."""
    native = {name: room.array(array) for name, array in results.items()}
    assert_attention(
        native["output"],
        *(room.array(case.inputs[name]) for name in "qkv"),
        lse=native.get("lse"),
        grads=[native.get(name) for name in GRADIENTS],
        d_out=room.array(case.inputs["d_out"]),
        d_lse=room.array(case.inputs["d_lse"]),
        **options(room, case, **others),
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_rooms_results_pass_by_the_strictest_profile(room, call, dtype):
    case = draw(dtype, sizes=SIZES, **call)
    with room.framework.precision(dtype):
        judge(room, case, run(room, case), profile="strict")


@pytest.fixture
def unsearched(monkeypatch):
    """No mistake is looked for, which takes a while for each failure."""
    monkeypatch.setattr(testing, "SEARCHED", 0)


@pytest.mark.usefixtures("unsearched")
@pytest.mark.parametrize("dtype", ["F32", "BF16"])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_wrong_element_of_any_result_is_named(room, call, dtype):
    case = draw(dtype, sizes=SIZES, **call)
    with room.framework.precision(dtype):
        right = run(room, case)
        judged = {name: right[name] for name in ("output", "lse", *GRADIENTS)}
        for name, array in judged.items():
            if array is None:
                continue
            wrong = np.array(array)
            wrong[(-1,) * wrong.ndim] += 100
            with pytest.raises(AssertionError) as caught:
                judge(room, case, judged | {name: wrong})
            (line,) = re.findall("fail: (.*)", str(caught.value))
            last = array.shape[0] - 1
            assert line.startswith(f"{name}[b={last}" if last else f"{name}[b=0")
            assert "ulps" in line
            assert "the budget there: " in str(caught.value)


@pytest.mark.parametrize(
    ("mask", "array"),
    [
        (causal(), np.tril(np.ones(FULL[2:], bool))[None, None]),
        (
            padding((5, 11)) & causal(4),
            np.tril(np.ones(FULL[2:], bool), 4)
            & (np.arange(FULL[3]) < np.array([5, 11])[:, None])[:, None, None],
        ),
    ],
    ids=["causal", "padding and causal"],
)
def test_a_predicate_is_a_mask(room, mask, array):
    case = draw("F32", sizes=SIZES, mask=array)
    results = run(room, case, mask=mask)
    judge(room, case, results, mask=mask)
    judge(room, case, results)
    with pytest.raises(AssertionError, match="fail: output"):
        judge(room, case, results, mask=None)


def test_a_predicate_may_carry_the_frameworks_arrays(room):
    lengths = np.array([5, 11], np.int32)
    array = (np.arange(FULL[3]) < lengths[:, None])[:, None, None]
    case = draw("F32", sizes=SIZES, mask=array)
    judge(room, case, run(room, case), mask=padding(room.array(lengths)))


def test_gradients_that_autodiff_has_written_down_are_judged(room):
    """By the framework's own autodiff, of its own forward pass."""
    if room.framework.vjp is None:
        pytest.skip(f"{room.name} has no autodiff")
    case = draw("F32", sizes=SIZES, bias="nj")
    names = ("q", "k", "v", "bias")
    arguments = [room.array(case.inputs[name]) for name in names]

    def call(q, k, v, bias):
        steps = room.attention_steps(q, k, v, bias=bias)
        return steps.output, steps.lse

    incoming = [room.array(case.inputs[name]) for name in ("d_out", "d_lse")]
    output, lse = call(*arguments)
    grads = room.framework.vjp(call, arguments, incoming)
    given = dict(zip(("d_out", "d_lse"), incoming, strict=True)) | {
        "bias": arguments[3],
        "lse": lse,
        "profile": "strict",
    }
    assert_attention(output, *arguments[:3], grads=grads, **given)
    with pytest.raises(AssertionError, match="fail: dbias"):
        assert_attention(
            output, *arguments[:3], grads=[*grads[:3], grads[3] * 2], **given
        )


def test_the_tolerance_is_that_of_the_same_arrays_in_numpy(room):
    case = draw("BF16", sizes=SIZES)
    here = tolerance(*(room.array(case.inputs[name]) for name in "qkv"))
    there = tolerance(*(case.inputs[name] for name in "qkv"))
    assert here.keys() == there.keys() == {"output", "lse"}
    for name, array in here.items():
        assert array.dtype == np.float64
        np.testing.assert_array_equal(array, there[name])


def test_the_result_may_be_another_rooms(room):
    """What is judged and what it is judged by need not be of one framework."""
    case = draw("F32", sizes=SIZES)
    got = expected(case).output.astype(np.float32)
    assert_attention(got, *(room.array(case.inputs[name]) for name in "qkv"))

"""Every result of `attention_steps` and `attention_vjp` is the definition's."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from attncheck.case import DTYPES
from attnref.spec import causal, padding, prefix, segments, window

from .calls import PRIMES, answered, assert_defined, change, draw, options, run

RNG = np.random.default_rng(7)
N = PRIMES["h"] * PRIMES["g"]
FULL = (PRIMES["b"], N, PRIMES["i"], PRIMES["j"])


def coin(*shape):
    """A mask that blocks about a third."""
    return RNG.random(shape) < 0.7


def sizes(**changed):
    return PRIMES | changed


CALLS = {
    "cross, grouped heads": {},
    "self": {"sizes": sizes(i=11)},
    "one key/value head": {"sizes": sizes(h=1)},
    "one query head a key/value head": {"sizes": sizes(g=1)},
    "values as wide as keys": {"sizes": sizes(e=13)},
    "b = n = i = j": {"sizes": sizes(b=4, h=2, g=2, i=4, j=4, d=4, e=4), "bias": "nj"},
    "all sizes 1": {"sizes": dict.fromkeys(PRIMES, 1), "bias": "bnij"},
    "mask": {"mask": coin(*FULL)},
    "mask of padding": {"mask": coin(FULL[0], 1, 1, FULL[3])},
    "mask of queries": {"mask": coin(FULL[0], 1, FULL[2], 1)},
    "mask of heads": {"mask": coin(1, N, 1, FULL[3])},
    "mask that blocks all": {"mask": np.zeros((1, 1, 1, 1), bool)},
    "softcap": {"softcap": 0.7},
    "softcap of NumPy": {"softcap": np.float64(2.5)},
    "scale 0": {"scale": 0},
    "scale below 0": {"scale": -0.5},
    "scale of NumPy": {"scale": np.float64(0.3)},
    "dropout": {"dropout_rate": 0.4, "dropout_keep": coin(*FULL)},
    "dropout of heads": {"dropout_rate": 0.25, "dropout_keep": coin(1, N, 1, 1)},
    "everything": {
        "mask": coin(*FULL),
        "bias": "nij",
        "scale": -0.3,
        "softcap": 1.5,
        "dropout_rate": 0.1,
        "dropout_keep": coin(*FULL),
    },
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_every_result_is_the_definitions(room, call):
    case = draw(**call)
    assert_defined(case, run(room, case))


SUBSETS = ["".join(axes) for axes in product(*zip("bnij", [""] * 4, strict=True))]


@pytest.mark.parametrize("axes", SUBSETS)
def test_a_bias_broadcasts_over_any_axes(room, axes):
    case = draw(bias=axes)
    results = run(room, case)
    assert results["dbias"].shape == case.inputs["bias"].shape
    assert_defined(case, results)


@pytest.mark.parametrize("axes", ["b", "i", "j", "bij"])
@pytest.mark.parametrize("masked", [False, True])
def test_no_batch_no_queries_or_no_keys(room, axes, masked):
    size = sizes(**dict.fromkeys(axes, 0))
    mask = np.ones([size["b"], N, size["i"], size["j"]], bool) if masked else None
    case = draw(sizes=size, bias="nj" if masked else None, mask=mask)
    results = run(room, case)
    assert_defined(case, results)
    if axes == "j":
        assert (results["output"] == 0).all()
        assert (results["lse"] == -np.inf).all()


def test_scores_and_logits_are_those_before_the_mask(room):
    mask = coin(*FULL)
    assert mask.any(axis=3).all()
    assert mask.any(axis=2).all()
    case = draw(bias="nij", mask=mask)
    masked, free = run(room, case), run(room, change(case, mask=None))
    for name in ("scores", "logits"):
        assert (masked[name] == free[name]).all()
    assert (masked["masked"] == np.where(mask, free["logits"], -np.inf)).all()


def test_no_gradient_of_the_log_sum_exp_counts_as_zero(room):
    case = change(draw(bias="nij"), d_lse=None)
    assert_defined(case, run(room, case))


@pytest.mark.parametrize("dtype", DTYPES)
def test_types_and_shapes(room, dtype):
    case = draw(dtype, bias="nj")
    results = run(room, case)
    rounded = {"output", "dq", "dk", "dv", "dbias"}
    for name, array in results.items():
        assert array.dtype == (DTYPES[dtype] if name in rounded else case.accumulation)
    assert_defined(case, results)


@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_16_bit_results_are_rounded_once(room, dtype):
    mask, keep = coin(*FULL), coin(*FULL)
    case = draw(
        dtype, bias="ij", mask=mask, softcap=2.0, dropout_rate=0.5, dropout_keep=keep
    )
    wide = {k: x.astype(np.float32) for k, x in case.inputs.items() if x.dtype != bool}
    exact = run(
        room, change(draw("F32", softcap=2.0, dropout_rate=0.5), **case.inputs | wide)
    )
    for name, array in run(room, case).items():
        assert (array == exact[name].astype(array.dtype)).all(), name


def test_attention_is_the_output_of_its_steps(room):
    case = draw("F32", mask=coin(*FULL), bias="nij")
    q, k, v = (room.array(case.inputs[name]) for name in "qkv")
    output = room.attention(q, k, v, **options(room, case))
    assert (room.numpy(output) == run(room, case)["output"]).all()


def test_the_default_scale_is_one_over_the_root_of_the_width(room):
    case = draw(sizes=sizes(d=16))
    explicit = run(room, case, scale=0.25)
    for name, array in run(room, case).items():
        if array is not None:
            assert (array == explicit[name]).all()


def test_numbers_may_be_fractions(room):
    case = draw(scale=1 / 3, softcap=2.5)
    assert_defined(case, run(room, case, scale=Fraction(1, 3), softcap=Fraction(5, 2)))


PREDICATES = {
    "causal": causal(),
    "lower-right": causal(FULL[3] - FULL[2]),
    "causal of each batch element": causal([1, -2]),
    "causal, NumPy": causal(np.array([1, -2])),
    "window": window(2, 1),
    "unbounded window": window(None, None),
    "prefix": causal() | prefix([2, 4]),
    "padding": padding([3, 11]),
    "segments": segments(
        RNG.integers(0, 2, (2, 7)), RNG.integers(0, 2, (2, 11)).tolist()
    ),
    "all together": (causal(2) & padding((5, 9)) | ~window(3, 3, [0, 1])) & ~prefix(1),
}


@pytest.mark.parametrize("mask", PREDICATES.values(), ids=PREDICATES)
def test_a_predicate_is_the_mask_that_it_describes(room, mask):
    case = draw("F32", mask=answered(mask, FULL))
    as_array, as_predicate = run(room, case), run(room, case, mask=mask)
    for name, array in as_array.items():
        if array is not None:
            assert (array == as_predicate[name]).all()
    assert_defined(case, as_array)


def test_a_plain_callable_is_a_mask(room):
    case = draw(
        "F32", mask=np.fromfunction(lambda b, n, i, j: (n % 2 == 1) | (j < 4), FULL)
    )
    by_call = run(room, case, mask=lambda b, n, i, j: (n % 2 == 1) | (j < 4))
    for name, array in run(room, case).items():
        if array is not None:
            assert (array == by_call[name]).all()
    assert_defined(case, by_call)


def test_no_argument_is_changed(room):
    case = draw(
        "F32", bias="nj", mask=coin(*FULL), dropout_rate=0.5, dropout_keep=coin(*FULL)
    )
    arrays = {name: room.array(array) for name, array in case.inputs.items()}
    q, k, v, d_out = (arrays[name] for name in ("q", "k", "v", "d_out"))
    keywords = {name: arrays[name] for name in ("mask", "bias", "dropout_keep")}
    keywords["dropout_rate"] = 0.5
    room.attention(q, k, v, **keywords)
    room.attention_steps(q, k, v, **keywords)
    room.attention_vjp(d_out, q, k, v, **keywords, d_lse=arrays["d_lse"])
    for name, array in case.inputs.items():
        assert (room.numpy(arrays[name]) == array).all(), name

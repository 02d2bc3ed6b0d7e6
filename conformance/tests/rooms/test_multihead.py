"""Multi-head attention is project, attend and merge, rounded once."""

import numpy as np
import pytest

from attncheck.case import DTYPES, Case
from attncheck.definition import expected

from .calls import UNIT

SIZES = {"b": 2, "i": 5, "j": 7, "c": 11, "m": 13, "n": 6, "h": 2, "d": 3, "e": 17}
WEIGHTS = {"w_q": "cnd", "w_k": "mhd", "w_v": "mhe", "w_o": "nec"}
BIASES = {"b_q": "nd", "b_k": "hd", "b_v": "he", "b_o": "c"}


def draw(dtype="F64", *, cross=True, biases=True, sizes=SIZES, **options):
    """A multi-head case of numbers of size 1 in every step."""
    rng = np.random.default_rng(5)
    if not cross:
        sizes = sizes | {"j": sizes["i"], "m": sizes["c"]}
    axes = {"x": "bic"} | ({"context": "bjm"} if cross else {})
    axes |= WEIGHTS | (BIASES if biases else {})
    inputs = {}
    for name, letters in axes.items():
        shape = [sizes[axis] for axis in letters]
        spread = (shape[0] if name != "w_o" else shape[0] * shape[1]) ** -0.5
        values = rng.normal(size=shape) * (spread if name in WEIGHTS else 1)
        inputs[name] = values.astype(DTYPES[dtype])
    arrays = options.pop("arrays", {})
    return Case("drawn", (), "", dtype, inputs | arrays, **options)


def run(room, case):
    with room.framework.precision(case.dtype):
        arrays = {name: room.array(array) for name, array in case.inputs.items()}
        params = {k: arrays.pop(k) for k in room.MultiHeadParams._fields if k in arrays}
        numbers = {"scale": case.scale, "softcap": case.softcap}
        output = room.multi_head_attention(
            room.MultiHeadParams(**params),
            **arrays,
            **numbers,
            dropout_rate=case.dropout_rate,
        )
        return room.numpy(output)


def tolerance(case):
    """The most by which two computations in the accumulation type differ.

    As in `calls.tolerance`: twice the roundings on the longest way to an output, times
    its magnitude.  A logit passes c + m + d + 8 of them.
    """
    size, a = case.sizes, {k: abs(x.astype(np.float64)) for k, x in case.inputs.items()}
    deep = size["c"] + size["m"] + size["d"] + 8
    roundings = deep + 2 * size["j"] + size["n"] * size["e"] + 32
    q, k, v = magnitudes(a, size["g"])
    logits = abs(case.scale_value) * np.einsum("bnid,bnjd->bnij", q, k) + a.get(
        "bias", 0
    )
    most = logits.max(axis=-1, keepdims=True, initial=0)
    p = expected(case).weights * (1 + 4 * deep / roundings * most)
    keep = case.inputs.get("dropout_keep", np.True_) / (1 - case.dropout_rate)
    heads = np.einsum("bnij,bnje->bnie", p * keep, v)
    merged = np.einsum("bnie,nec->bic", heads, a["w_o"]) + a.get("b_o", 0)
    return 2 * roundings * UNIT[case.dtype] * merged


def magnitudes(a, g):
    """The projections of absolute values, one k and v for each query head."""
    context = a.get("context", a["x"])
    for letter, source, repeats in (
        ("q", a["x"], 1),
        ("k", context, g),
        ("v", context, g),
    ):
        heads = np.einsum("bjm,mhd->bhjd", source, a[f"w_{letter}"])
        heads = heads + a.get(f"b_{letter}", np.zeros((1, 1)))[:, None]
        yield heads.repeat(repeats, axis=1)


RNG = np.random.default_rng(9)
CALLS = {
    "cross": {},
    "self": {"cross": False},
    "self, no biases": {"cross": False, "biases": False},
    "no biases": {"biases": False},
    "one head for each": {"sizes": SIZES | {"h": 6}},
    "one key/value head": {"sizes": SIZES | {"h": 1}},
    "scale and softcap": {"scale": -0.3, "softcap": 1.5},
    "mask, bias and dropout": {
        "arrays": {
            "mask": RNG.random((2, 6, 5, 7)) < 0.7,
            "bias": RNG.normal(size=(1, 6, 5, 7)),
            "dropout_keep": RNG.random((2, 6, 5, 7)) < 0.5,
        },
        "dropout_rate": 0.5,
    },
    "all keys blocked": {"arrays": {"mask": np.zeros((1, 1, 1, 1), bool)}},
    "no keys": {"sizes": SIZES | {"j": 0}, "scale": 1.0},
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_the_output_is_the_definitions(room, call):
    case = draw(**call)
    got, want = run(room, case), expected(case).output
    assert got.shape == want.shape
    assert got.dtype == np.float64
    assert (abs(got - want) <= tolerance(case)).all()


def test_with_every_key_blocked_the_output_is_its_bias(room):
    case = draw(arrays={"mask": np.zeros((1, 1, 1, 1), bool)})
    assert (run(room, case) == case.inputs["b_o"]).all()


def test_float32_stays_float32(room):
    case = draw("F32")
    output = run(room, case)
    assert output.dtype == np.float32
    assert (abs(output - expected(case).output) <= tolerance(case)).all()


@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_16_bit_results_are_rounded_once_at_the_end(room, dtype):
    arrays = {"bias": RNG.normal(size=(1, 6, 5, 7)).astype(DTYPES[dtype])}
    case = draw(dtype, arrays=arrays)
    wide = {name: array.astype(np.float32) for name, array in case.inputs.items()}
    exact = run(room, Case("wide", (), "", "F32", wide))
    output = run(room, case)
    assert output.dtype == DTYPES[dtype]
    assert (output == exact.astype(output.dtype)).all()


def test_no_argument_is_changed(room):
    case = draw("F32")
    arrays = {name: room.array(array) for name, array in case.inputs.items()}
    params = {k: arrays[k] for k in room.MultiHeadParams._fields}
    room.multi_head_attention(
        room.MultiHeadParams(**params), arrays["x"], arrays["context"]
    )
    for name, array in case.inputs.items():
        assert (room.numpy(arrays[name]) == array).all(), name


def test_biases_are_none_by_default(room):
    assert room.MultiHeadParams._fields == (*WEIGHTS, *BIASES)
    assert room.MultiHeadParams._field_defaults == dict.fromkeys(BIASES)

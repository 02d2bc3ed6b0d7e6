"""Latent attention: compressed keys and values, in both of its forms."""

import re

import numpy as np
import pytest

from attncheck.case import DTYPES
from attnref.spec import causal

from .test_variants_rotary import turned
from .variant_calls import (
    UNITS,
    as_complex,
    assert_derivatives,
    assert_near,
    defined,
    module,
    native,
)

SIZES = {"b": 2, "i": 4, "c": 9, "n": 3, "d": 2, "p": 4, "r": 5, "e": 3, "j": 6}
AXES = {
    "w_q": "cnd",
    "w_qr": "cnp",
    "w_kr": "cp",
    "w_c": "cr",
    "w_k": "rnd",
    "w_v": "rne",
    "w_o": "nec",
}
FORMS = pytest.mark.parametrize("absorbed", [False, True], ids=["plain", "absorbed"])


def inputs_of(*, cross=False, sizes=SIZES, dtype="F64", seed=0):
    """Weights, x, and a context if wanted; by name."""
    rng = np.random.default_rng(seed)
    axes = AXES | {"x": "bic"} | ({"context": "bjc"} if cross else {})
    drawn = {k: rng.normal(size=[sizes[a] for a in shape]) for k, shape in axes.items()}
    # As weights are drawn, so that logits are of the size of 1.
    scale = {"w_q": 1 / 3, "w_qr": 1 / 3, "w_kr": 1 / 3, "w_c": 1 / 3, "w_k": 0.5}
    return {k: (x * scale.get(k, 1)).astype(DTYPES[dtype]) for k, x in drawn.items()}


def product(x, w):
    """x·w over the last axis and the first one, in whatever numbers."""
    return np.tensordot(x, w, axes=1)


def latent(x, *, offset=0, mask=None, base=10000, pairing="halves"):
    """The definition: every key and value of every head is formed."""
    source = x.get("context", x["x"])
    compressed = product(source, x["w_c"])
    q = product(x["x"], x["w_q"]).transpose(0, 2, 1, 3)
    q_r = product(x["x"], x["w_qr"]).transpose(0, 2, 1, 3)
    k, v = (product(compressed, x[w]).transpose(0, 2, 1, 3) for w in ("w_k", "w_v"))
    k_r = product(source, x["w_kr"])
    offsets = np.broadcast_to(offset, q.shape[0])
    rotation = {"base": base, "pairing": pairing}
    for b, n, i in np.ndindex(q_r.shape[:3]):
        q_r[b, n, i] = turned(q_r[b, n, i], i + int(offsets[b]), **rotation)
    for b, j in np.ndindex(k_r.shape[:2]):
        k_r[b, j] = turned(k_r[b, j], j, **rotation)
    k_r = np.repeat(k_r[:, None], k.shape[1], axis=1)
    whole = {
        "q": np.concatenate([q, q_r], axis=-1),
        "k": np.concatenate([k, k_r], axis=-1),
        "v": v,
    }
    output, _ = defined(whole, mask=mask)
    return np.tensordot(output.transpose(0, 2, 1, 3), x["w_o"], axes=2)


def split(room, inputs):
    """Params, and what follows them."""
    arrays = {k: room.array(x) for k, x in inputs.items()}
    params = module(room).LatentParams(**{k: arrays.pop(k) for k in AXES})
    return params, list(arrays.values())


def run(room, inputs, dtype="F64", **options):
    with room.framework.precision(dtype):
        params, rest = split(room, inputs)
        latent_attention = module(room).latent_attention
        return room.numpy(latent_attention(params, *rest, **native(room, options)))


def gradients(room, inputs, d_out, dtype="F64", **options):
    with room.framework.precision(dtype):
        options = native(room, options)
        if room.name == "numpy":
            params, rest = split(room, inputs)
            return module(room).latent_attention_vjp(d_out, params, *rest, **options)

        def call(*arrays):
            named = dict(zip(inputs, arrays, strict=True))
            params = module(room).LatentParams(**{k: named.pop(k) for k in AXES})
            return (module(room).latent_attention(params, *named.values(), **options),)

        arrays = tuple(map(room.array, inputs.values()))
        found = room.framework.vjp(call, arrays, (room.array(d_out),))
        return dict(zip(inputs, map(room.numpy, found), strict=True))


MASK = np.random.default_rng(3).random((2, 3, 4, 6)) < 0.7
MASK[0, 1, 2] = False

CALLS = {
    "self": (False, {}),
    "self, causal": (False, {"mask": MASK[..., :4] & np.tri(4, dtype=bool)}),
    "cross": (True, {"offset": 2}),
    "cross, masked": (True, {"offset": (2, -1), "mask": MASK}),
    "other rotation": (False, {"base": 50, "pairing": "interleaved"}),
}


@FORMS
@pytest.mark.parametrize(("cross", "options"), CALLS.values(), ids=CALLS)
def test_it_is_its_definition(room, cross, options, absorbed):
    inputs = inputs_of(cross=cross)
    want = latent(as_complex(inputs), **options).real
    got = run(room, inputs, absorbed=absorbed, **options)
    assert_near(got, want, max(1, abs(want).max()))

    d_out = np.random.default_rng(8).normal(size=got.shape)
    found = gradients(room, inputs, d_out, absorbed=absorbed, **options)
    assert found.keys() == inputs.keys()
    assert_derivatives(found, inputs, lambda x: (d_out * latent(x, **options)).sum())


@pytest.mark.parametrize("dtype", ["F64", "F32"])
def test_absorbed_weights_give_the_same(room, dtype):
    """Within twice what each may be off its definition."""
    inputs = inputs_of(cross=True, dtype=dtype)
    plain, absorbed = (run(room, inputs, dtype, absorbed=x) for x in (False, True))
    unit = {"F64": 2.0**-53, "F32": 2.0**-24}[dtype]
    assert plain.dtype == absorbed.dtype == DTYPES[dtype]
    assert abs(plain - absorbed).max() <= 2 * UNITS * unit * abs(plain).max()


@FORMS
@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_16_bit_results_are_rounded_once(room, dtype, absorbed):
    half = inputs_of(dtype=dtype)
    wide = {k: x.astype(np.float32) for k, x in half.items()}
    got = run(room, half, dtype, absorbed=absorbed)
    assert (got == run(room, wide, "F32", absorbed=absorbed).astype(got.dtype)).all()
    d_out = np.random.default_rng(8).normal(size=got.shape).astype(got.dtype)
    found = gradients(room, half, d_out, dtype, absorbed=absorbed)
    want = gradients(room, wide, d_out.astype(np.float32), "F32", absorbed=absorbed)
    for key, array in found.items():
        assert array.dtype == got.dtype
        assert (array == want[key].astype(got.dtype)).all(), key


@FORMS
def test_a_step_of_decoding_is_the_wholes_last_row(room, absorbed):
    inputs = inputs_of()
    whole = run(room, inputs, mask=causal())
    step = inputs | {"x": inputs["x"][:, 3:], "context": inputs["x"]}
    last = run(room, step, mask=causal(3), offset=3, absorbed=absorbed)
    np.testing.assert_allclose(last, whole[:, 3:], rtol=0, atol=1e-13)


@FORMS
def test_what_no_one_sees_reaches_nothing(room, absorbed):
    """A padded position of a context, and a query without keys; weights too."""
    inputs = inputs_of(cross=True)
    mask = np.ones((2, 1, 4, 6), bool)
    mask[..., 4:] = False
    mask[1, :, 2] = False
    options = {"mask": mask, "absorbed": absorbed}
    want = run(room, inputs, **options)
    d_out = np.random.default_rng(8).normal(size=want.shape)
    clean = gradients(room, inputs, d_out, **options)
    inputs["context"][:, 4:] = np.nan
    inputs["x"][1, 2] = np.nan
    assert (run(room, inputs, **options) == want).all()
    assert (want[1, 2] == 0).all()
    found = gradients(room, inputs, d_out, **options)
    assert all((found[name] == clean[name]).all() for name in found)


@FORMS
@pytest.mark.parametrize("axes", ["b", "i", "j"])
def test_no_batch_no_queries_or_no_keys(room, axes, absorbed):
    inputs = inputs_of(cross=True, sizes=SIZES | {axes: 0})
    got = run(room, inputs, absorbed=absorbed)
    assert got.shape == inputs["x"].shape
    assert (got == 0).all()


WRONG = {
    "an odd rotary width": (
        {"w_qr": np.ones((9, 3, 3)), "w_kr": np.ones((9, 3))},
        "`w_qr` must have an even rotary width p: components turn in pairs, but has 3",
    ),
    "another compression": (
        {"w_k": np.ones((4, 3, 2))},
        "`w_k` must have rows or rank r = 5 like `w_c`, but has 4 "
        "(w_c: c r = 9 5, w_k: r n d = 4 3 2)",
    ),
    "rotary keys of heads": (
        {"w_kr": np.ones((9, 3, 4))},
        "`w_kr` must have 2 axes c p, but has shape (9, 3, 4)",
    ),
    "a context of another width": (
        {"context": np.ones((2, 6, 8))},
        "`context` must have model width c = 9 like `x`, but has 8 "
        "(x: b i c = 2 4 9, context: b j c = 2 6 8)",
    ),
}


@pytest.mark.parametrize(("changes", "message"), WRONG.values(), ids=WRONG)
def test_wrong_input_is_refused(room, changes, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        run(room, inputs_of(cross=True) | changes)


def test_a_wrong_mask_is_refused(room):
    match = r"^`mask` must have 4 axes b n i j = 2 3 4 4, each full or 1, but has shape"
    with pytest.raises(ValueError, match=match):
        run(room, inputs_of(), mask=np.ones((4, 4), bool))
    with pytest.raises(TypeError, match=r"^`mask` is the function causal: call it"):
        run(room, inputs_of(), mask=causal)

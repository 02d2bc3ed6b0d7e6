"""Attention by features is its definition in float64: whole, causal, step by step."""

import math
from importlib import import_module

import numpy as np
import pytest

from attncheck import approximations
from attncheck.case import DTYPES
from attnref.spec import causal, padding

from .approximate import (
    SIZES,
    assert_far,
    assert_near,
    called,
    draw,
    normal,
    unit,
)

I, J, D = SIZES["i"], SIZES["j"], SIZES["d"]  # noqa: E741

every_type = pytest.mark.parametrize("dtype", list(DTYPES))
wide_and_narrow = pytest.mark.parametrize("dtype", ["F32", "BF16"])


@pytest.fixture
def kernel(room):
    return import_module(f"attnref.{room.name}.variants.kernel")


def lower_left(offset=0, i=I, j=J):
    """`1 1 i j`: key j is seen by query i where j ≤ i + offset."""
    return (np.arange(j) <= np.arange(i)[:, None] + offset)[None, None]


@every_type
@pytest.mark.parametrize("feature", ["elu+1", "relu"])
def test_linear_attention_is_its_definition(room, kernel, dtype, feature):
    arrays = draw(dtype)
    found = called(room, kernel.linear_attention, dtype, arrays, feature=feature)
    want = unit(approximations.linear, dtype)(*arrays, feature=feature)
    assert_near(found, want, dtype)


CAUSAL = [(dtype, 4) for dtype in DTYPES] + [("F32", x) for x in (0, -2, 20, -20)]


@pytest.mark.parametrize(("dtype", "offset"), CAUSAL)
def test_causal_linear_attention_is_its_definition(room, kernel, dtype, offset):
    arrays = draw(dtype)
    options = {"causal": True, "offset": offset}
    found = called(room, kernel.linear_attention, dtype, arrays, **options)
    seen = lower_left(offset)
    want = unit(approximations.linear, dtype)(*arrays, seen=seen)
    assert_near(found, want, dtype)
    is_empty = ~seen.any(axis=-1)
    assert (found[1][np.broadcast_to(is_empty, found[1].shape)] == -np.inf).all()


@pytest.mark.parametrize(("dtype", "offset"), CAUSAL + [(x, None) for x in DTYPES])
def test_performer_attention_is_its_definition(room, kernel, dtype, offset):
    arrays, draws = draw(dtype), normal(dtype, 16, D)
    options = {} if offset is None else {"causal": True, "offset": offset}
    call = kernel.performer_attention
    found = called(room, call, dtype, arrays, draws=draws, **options)
    seen = None if offset is None else lower_left(offset)
    want = unit(approximations.performer, dtype)(*arrays, draws=draws, seen=seen)
    assert_near(found, want, dtype)


@pytest.mark.parametrize("scale", [0.1, 1.5])
def test_performers_scale_is_that_of_the_exponent(room, kernel, scale):
    arrays, draws = draw("F32"), normal("F32", 16, D)
    options = {"draws": draws, "scale": scale}
    found = called(room, kernel.performer_attention, "F32", arrays, **options)
    want = unit(approximations.performer, "F32")(*arrays, **options)
    assert_near(found, want, "F32")


def test_large_queries_and_keys_overflow_nothing(room, kernel):
    """Features of e^±500, relative to the largest."""
    arrays, draws = draw("F32"), normal("F32", 16, D)
    arrays[0] *= np.float32(20)
    found = called(room, kernel.performer_attention, "F32", arrays, draws=draws)
    want = unit(approximations.performer, "F32")(*arrays, draws=draws)
    assert abs(found[1]).max() > 100
    assert_near(found, want, "F32")


LENGTHS = [3, 0]
KEYS = np.arange(J) < np.array(LENGTHS)[:, None, None, None]


@pytest.mark.parametrize("name", ["linear", "performer"])
@pytest.mark.parametrize("is_causal", [False, True])
def test_keys_that_are_blocked_do_not_exist(room, kernel, name, is_causal):
    mask = padding(LENGTHS) if name == "linear" else room.array(KEYS)
    arrays, draws = draw("F32"), normal("F32", 16, D)
    options = {"draws": draws} if name == "performer" else {}
    define = unit(getattr(approximations, name), "F32")
    seen = KEYS & lower_left(1) if is_causal else KEYS
    want = define(*arrays, **options, seen=seen)
    for x in arrays[1:]:
        for b, length in enumerate(LENGTHS):
            x[b, :, length:] = np.nan
    arrays[0][1] = np.nan  # the element that is left no key
    options |= {"causal": True, "offset": 1} if is_causal else {}
    call = getattr(kernel, f"{name}_attention")
    found = called(room, call, "F32", arrays, **options, mask=mask)
    assert_near(found, want, "F32")
    assert (found[0][1] == 0).all()
    assert (found[1][1] == -np.inf).all()


@pytest.mark.parametrize("name", ["linear", "performer"])
def test_keys_after_the_last_query_are_not_read(room, kernel, name):
    arrays, draws = draw("F32"), normal("F32", 16, D)
    options = {"draws": draws} if name == "performer" else {}
    define = unit(getattr(approximations, name), "F32")
    want = define(*arrays, **options, seen=lower_left(1))
    for x in arrays[1:]:
        x[:, :, I + 1 :] = np.nan
    call = getattr(kernel, f"{name}_attention")
    found = called(room, call, "F32", arrays, **options, causal=True, offset=1)
    assert_near(found, want, "F32")


@pytest.mark.parametrize(
    ("name", "is_causal"), [("linear", True), ("performer", False)]
)
@pytest.mark.parametrize("empty", ["b", "i", "j"])
def test_empty_axes(room, kernel, name, is_causal, empty):
    arrays = draw("F32", **{empty: 0})
    options = {"draws": normal("F32", 16, D)} if name == "performer" else {}
    call = getattr(kernel, f"{name}_attention")
    found = called(room, call, "F32", arrays, causal=is_causal, **options)
    b, n, i, _ = arrays[0].shape
    assert [x.shape for x in found] == [(b, n, i, SIZES["e"]), (b, n, i)]
    assert (found[0] == 0).all()
    assert (found[1] == -np.inf).all()


@pytest.mark.parametrize("feature", ["elu+1", "relu"])
@wide_and_narrow
def test_the_recurrent_form_is_the_parallel_one(room, kernel, dtype, feature):
    """Both lie within the bound of the same definition, whose sums have any order."""
    arrays = draw(dtype, j=I)
    want = unit(approximations.linear, dtype)(
        *arrays, feature=feature, seen=lower_left(j=I)
    )
    with room.framework.precision(dtype):
        q, k, v = (room.array(x) for x in arrays)
        state, outputs, lses = None, [], []
        for t in range(I):
            state, output, lse = kernel.linear_attention_step(
                state, *(x[:, :, t : t + 1] for x in (q, k, v)), feature=feature
            )
            outputs.append(room.numpy(output))
            lses.append(room.numpy(lse))
    assert tuple(state.shape) == (SIZES["b"], SIZES["h"], D, SIZES["e"] + 1)
    recurrent = [np.concatenate(x, axis=2) for x in (outputs, lses)]
    assert_near(recurrent, want, dtype)
    options = {"feature": feature, "causal": True}
    parallel = called(room, kernel.linear_attention, dtype, arrays, **options)
    assert_near(parallel, want, dtype)


def squares(x):
    """All products of two components: φ(q)·φ(k) = (q·k)²."""
    return (x[..., :, None] * x[..., None, :]).reshape(*x.shape[:-1], D * D)


def test_a_feature_map_of_ones_own(room, kernel):
    """The closed form of its weights, and the definition."""
    arrays = draw("F64")
    found = called(room, kernel.linear_attention, "F64", arrays, feature=squares)
    assert_near(
        found, unit(approximations.linear, "F64")(*arrays, feature=squares), "F64"
    )
    q, k, v = arrays[0], *(x.repeat(2, axis=1) for x in arrays[1:])
    weights = (q @ k.swapaxes(2, 3)) ** 2
    want = weights @ v / weights.sum(-1, keepdims=True)
    np.testing.assert_allclose(found[0], want, rtol=0, atol=1e-13 * abs(v).max())


def test_relu_features_that_are_all_0_are_an_empty_row(room, kernel):
    arrays = draw("F32")
    arrays[0][:, :, 2] = -1
    found = called(room, kernel.linear_attention, "F32", arrays, feature="relu")
    assert (found[0][:, :, 2] == 0).all()
    assert (found[1][:, :, 2] == -np.inf).all()
    assert np.isfinite(found[1][:, :, 3]).any()


def test_performers_error_falls_as_one_over_the_root_of_its_features(room, kernel):
    """In float64, mean over draws; the slope over 16 to 1024 features is −1/2."""
    arrays = draw("F64", b=1, h=1, g=1, i=16, j=16)
    q, k, v = (x / 2 for x in arrays)
    logits = q @ k.swapaxes(2, 3) * D**-0.5
    weights = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    exact = weights @ v
    counts, errors = (16, 64, 256, 1024), []
    for count in counts:
        found = [
            called(
                room,
                kernel.performer_attention,
                "F64",
                (q, k, v),
                draws=normal("F64", count, D, seed=seed),
            )[0]
            for seed in range(12)
        ]
        errors.append(np.sqrt(np.mean([(x - exact) ** 2 for x in found])))
    slope = np.polyfit(np.log(counts), np.log(errors), 1)[0]
    print(f"{room.name}: slope {slope:.3f}, errors {np.round(errors, 5)}")
    assert -0.6 < slope < -0.4


FAULTS = {
    "prefix sum one short": {"causal": True, "offset": -1},
    "prefix sum one long": {"causal": True, "offset": 1},
    "not causal": {},
}


@wide_and_narrow
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("name", ["linear", "performer"])
def test_prefix_sums_that_are_off_by_one_are_found(room, kernel, dtype, name, fault):
    arrays = draw(dtype)
    options = {"draws": normal(dtype, 16, D)} if name == "performer" else {}
    define = unit(getattr(approximations, name), dtype)
    want = define(*arrays, **options, seen=lower_left())
    call = getattr(kernel, f"{name}_attention")
    assert_far(called(room, call, dtype, arrays, **options, **fault), want, dtype)


def _no_norm(kernel, make):
    def logs(x, draws, scale):
        return make(x, draws, scale) + scale * (x * x).sum(-1)[..., None] / 2

    return logs


WRONG = {
    "without the norm of the key": _no_norm,
    "the scale for its root": lambda kernel, make: (
        lambda x, draws, scale: make(x, draws, scale**2)
    ),
    "a draw twice": lambda kernel, make: (
        lambda x, draws, scale: make(
            x, draws[np.array([0, *range(len(draws) - 1)])], scale
        )
    ),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_wrong_random_features_are_found(room, kernel, monkeypatch, wrong):
    arrays, draws = draw("BF16"), normal("BF16", 16, D)
    want = unit(approximations.performer, "BF16")(*arrays, draws=draws)
    make = kernel.random_features
    monkeypatch.setattr(kernel, "random_features", wrong(kernel, make))
    with room.framework.precision("BF16"):
        found = called(room, kernel.performer_attention, "BF16", arrays, draws=draws)
    assert_far(found, want, "BF16")


def test_gradients_by_autodiff_are_those_of_the_definition(room, kernel):
    """Along one direction, by a complex step, which is exact but for rounding."""
    if room.name == "numpy":
        pytest.skip("NumPy has no automatic differentiation")
    arrays, directions = draw("F64"), draw("F64", seed=5)
    d_out = normal("F64", *arrays[0].shape[:3], SIZES["e"])
    step = 1e-30
    q, k, v = (x + 1j * step * y for x, y in zip(arrays, directions, strict=True))
    k, v = (x.repeat(2, axis=1) for x in (k, v))
    features = [np.where(x.real > 0, x + 1, np.exp(x)) for x in (q, k)]
    weights = features[0] @ features[1].swapaxes(2, 3) * lower_left(2)
    output = weights @ v / weights.sum(-1, keepdims=True)
    want = (output.imag / step * d_out).sum()

    def summed(*arrays):
        options = {"causal": True, "offset": 2}
        return (kernel.linear_attention(*arrays, **options)[0] * d_native).sum()

    with room.framework.precision("F64"):
        d_native = room.array(d_out)
        gradients = differentiated(room, summed, [room.array(x) for x in arrays])
        found = sum(
            (room.numpy(g) * y).sum()
            for g, y in zip(gradients, directions, strict=True)
        )
    assert found == pytest.approx(want, rel=1e-11)


def differentiated(room, function, arrays):
    """The gradients of a number, by the framework's own automatic differentiation."""
    if room.name == "jax":
        return import_module("jax").grad(function, argnums=(0, 1, 2))(*arrays)
    return import_module("torch").func.grad(function, argnums=(0, 1, 2))(*arrays)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"feature": "elu"}, ValueError, "`feature` must be one of elu+1, relu, or a"),
        ({"causal": 1}, TypeError, "`causal` must be a bool, but is int"),
        ({"causal": True, "offset": 0.5}, TypeError, "`offset` must be an int"),
        ({"offset": 2}, ValueError, "`offset` = 2 needs `causal` = True"),
        ({"mask": causal()}, ValueError, "of axes b 1 1 j such as padding(lengths)"),
        ({"mask": padding([1])}, ValueError, "`lengths` of the mask must have axes b"),
    ],
)
def test_wrong_input_is_named(room, kernel, options, error, words):
    with pytest.raises(error) as caught:
        called(room, kernel.linear_attention, "F32", draw("F32"), **options)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("draws", "scale", "words"),
    [
        ((16, D + 1), None, "`draws` must have query/key width d = 4 like `q`, but ha"),
        ((16, D), 0.0, "`scale` of random features must be above 0, but is 0.0"),
        ((16, D), math.inf, "`scale` must be finite, but is inf"),
    ],
)
def test_wrong_draws_are_named(room, kernel, draws, scale, words):
    options = {"draws": normal("F32", *draws), "scale": scale}
    with pytest.raises(ValueError, match="must") as caught:
        called(room, kernel.performer_attention, "F32", draw("F32"), **options)
    assert words in str(caught.value)


def test_a_step_takes_one_position_and_its_own_state(room, kernel):
    with room.framework.precision("F32"):
        q, k, v = (room.array(x) for x in draw("F32"))
        with pytest.raises(ValueError, match="one position, but query positions i = 6"):
            kernel.linear_attention_step(None, q, k, v)
        one = [x[:, :, :1] for x in (q, k, v)]
        with pytest.raises(
            ValueError, match=r"must have axes b h r \(e \+ 1\) = 2 2 4 4"
        ):
            kernel.linear_attention_step(v, *one)

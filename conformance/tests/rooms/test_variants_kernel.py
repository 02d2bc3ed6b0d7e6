"""Attention by features, beyond the cases of the judge: masks as predicates, other
offsets, empty axes, laws, gradients and errors."""

import math
from importlib import import_module

import numpy as np
import pytest

from attnref.spec import causal, padding

from .approximate import SIZES, assert_right, call, called, draw, normal, run

I, J, D = SIZES["i"], SIZES["j"], SIZES["d"]  # noqa: E741

BOTH = pytest.mark.parametrize("name", ["linear", "performer"])


@pytest.fixture
def kernel(room):
    return import_module(f"attnref.{room.name}.variants.kernel")


def made(name, dtype, inputs, **options):
    """A call of linear or performer attention; of the latter with draws."""
    draws = {"draws": normal(dtype, 16, D)} if name == "performer" else {}
    return call(name, dtype, inputs | draws, **options)


def attention(kernel, name):
    return getattr(kernel, f"{name}_attention")


@BOTH
@pytest.mark.parametrize("offset", [0, -2, 20, -20])
def test_sums_end_at_any_offset(room, kernel, name, offset):
    case = made(name, "F32", draw("F32"), causal=True, offset=offset)
    found = run(room, attention(kernel, name), case)
    assert_right(found, case)
    seen = np.tri(I, J, offset, bool).any(axis=1)
    assert (found[1][:, :, ~seen] == -np.inf).all()
    assert np.isfinite(found[1][:, :, seen]).all()


LENGTHS = [3, 0]
KEYS = np.arange(J) < np.array(LENGTHS)[:, None, None, None]


@BOTH
@pytest.mark.parametrize("options", [{}, {"causal": True, "offset": 1}], ids=str)
def test_a_predicate_of_keys_is_a_mask(room, kernel, name, options):
    case = made(name, "F32", draw("F32") | {"mask": KEYS}, **options)
    found = run(room, attention(kernel, name), case, mask=padding(LENGTHS))
    assert_right(found, case)


@BOTH
def test_keys_after_the_last_query_are_not_read(room, kernel, name):
    case = made(name, "F32", draw("F32"), causal=True, offset=1)
    for x in "kv":
        case.inputs[x][:, :, I + 1 :] = np.nan
    assert_right(run(room, attention(kernel, name), case), case)


@pytest.mark.parametrize(
    ("name", "is_causal"), [("linear", True), ("performer", False)]
)
@pytest.mark.parametrize("empty", ["b", "i", "j"])
def test_empty_axes(room, kernel, name, is_causal, empty):
    case = made(name, "F32", draw("F32", **{empty: 0}), causal=is_causal)
    found = run(room, attention(kernel, name), case)
    b, n, i, _ = case.inputs["q"].shape
    assert [x.shape for x in found] == [(b, n, i, SIZES["e"]), (b, n, i)]
    assert (found[0] == 0).all()
    assert (found[1] == -np.inf).all()


def squares(x):
    """All products of two components: φ(q)·φ(k) = (q·k)²."""
    return (x[..., :, None] * x[..., None, :]).reshape(*x.shape[:-1], D * D)


def test_a_feature_map_of_ones_own(room, kernel):
    """The closed form of its weights."""
    q, k, v = draw("F64").values()
    found = called(room, kernel.linear_attention, "F64", q, k, v, feature=squares)
    k, v = (x.repeat(2, axis=1) for x in (k, v))
    weights = (q @ k.swapaxes(2, 3)) ** 2
    total = weights.sum(-1, keepdims=True)
    near = {"rtol": 0, "atol": 1e-13 * abs(v).max()}
    np.testing.assert_allclose(found[0], weights @ v / total, **near)
    np.testing.assert_allclose(found[1], np.log(total[..., 0]), **near)


def test_performers_error_falls_as_one_over_the_root_of_its_features(room, kernel):
    """In float64, mean over draws; the slope over 16 to 1024 features is −1/2."""
    arrays = draw("F64", b=1, h=1, g=1, i=16, j=16)
    q, k, v = (x / 2 for x in arrays.values())
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
                *(q, k, v),
                draws=normal("F64", count, D, seed=seed),
            )[0]
            for seed in range(12)
        ]
        errors.append(np.sqrt(np.mean([(x - exact) ** 2 for x in found])))
    slope = np.polyfit(np.log(counts), np.log(errors), 1)[0]
    print(f"{room.name}: slope {slope:.3f}, errors {np.round(errors, 5)}")
    assert -0.6 < slope < -0.4


def test_gradients_by_autodiff_are_those_of_the_definition(room, kernel):
    """Along one direction, by a complex step, which is exact but for rounding."""
    if room.name == "numpy":
        pytest.skip("NumPy has no automatic differentiation")
    arrays, directions = draw("F64").values(), draw("F64", seed=5).values()
    d_out = normal("F64", SIZES["b"], 4, I, SIZES["e"])
    step = 1e-30
    q, k, v = (x + 1j * step * y for x, y in zip(arrays, directions, strict=True))
    k, v = (x.repeat(2, axis=1) for x in (k, v))
    features = [np.where(x.real > 0, x + 1, np.exp(x)) for x in (q, k)]
    weights = features[0] @ features[1].swapaxes(2, 3) * np.tri(I, J, 2)
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
    arrays = draw("F32").values()
    with pytest.raises(error) as caught:
        called(room, kernel.linear_attention, "F32", *arrays, **options)
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
    arrays = draw("F32").values()
    with pytest.raises(ValueError, match="must") as caught:
        called(room, kernel.performer_attention, "F32", *arrays, **options)
    assert words in str(caught.value)


def test_a_step_takes_one_position_and_its_own_state(room, kernel):
    b, h, e = (SIZES[axis] for axis in "bhe")
    with room.framework.precision("F32"):
        q, k, v = (room.array(x) for x in draw("F32").values())
        with pytest.raises(ValueError, match="one position, but query positions i = 6"):
            kernel.linear_attention_step(None, q, k, v)
        one = [x[:, :, :1] for x in (q, k, v)]
        state, *_ = kernel.linear_attention_step(None, *one)
        assert tuple(state.shape) == (b, h, D, e + 1)
        with pytest.raises(
            ValueError, match=r"must have axes b h r \(e \+ 1\) = 2 2 4 4"
        ):
            kernel.linear_attention_step(v, *one)

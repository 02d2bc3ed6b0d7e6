"""Every step of the spec is a function of the room, and keeps its pattern."""

import numpy as np
import pytest

from attncheck.case import DTYPES
from attnref.spec import STEPS
from attnref.spec.patterns import LSE

from .calls import PRIMES

SIZES = PRIMES | {"n": PRIMES["h"] * PRIMES["g"], "c": 19, "m": 23}
RNG = np.random.default_rng(11)
KEEP = RNG.random((1, SIZES["n"], 1, SIZES["j"])) < 0.5

OPTIONS = {
    "apply_scale": (0.5,),
    "apply_softcap": (2.0,),
    "add_bias": (RNG.normal(size=(1, SIZES["n"], 1, 1)).astype(np.float32),),
    "apply_mask": (KEEP,),
    "apply_dropout": (0.25, KEEP),
}
"""What an elementwise step takes beside the logits or weights."""


def shape(axes):
    """The shape of axes; a function takes and gives grouped heads (h g) as n."""
    return tuple(SIZES[axis] for axis in axes.replace("h g", "n").split())


def arguments(room, step):
    """Arrays for the step's function, in the order of its pattern, and its options."""
    operands = step.pattern.partition(" -> ")[0].split(", ")
    arrays = [RNG.normal(size=shape(axes)).astype(np.float32) for axes in operands]
    options = OPTIONS.get(step.function, ())
    return [
        room.array(x) if isinstance(x, np.ndarray) else x for x in (*arrays, *options)
    ]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_a_step_has_the_shape_that_its_pattern_says(room, step):
    result = getattr(room, step.function)(*arguments(room, step))
    if step.function == "softmax":
        result, lse = result
        assert tuple(lse.shape) == shape(LSE)
    assert tuple(result.shape) == shape(step.pattern.split(" -> ")[-1])


@pytest.mark.parametrize("dtype", ["F32", "BF16", "F16"])
@pytest.mark.parametrize("name", ["project", "scores", "attend", "merge"])
def test_a_contraction_is_in_the_accumulation_type(room, name, dtype):
    (step,) = (step for step in STEPS if step.function == name)
    arrays = [room.numpy(x).astype(DTYPES[dtype]) for x in arguments(room, step)]
    result = room.numpy(getattr(room, name)(*map(room.array, arrays)))
    assert result.dtype == np.float32
    exact = [x.astype(np.float64) for x in arrays]
    operands = step.pattern.partition(" -> ")[0].split(", ")
    letters = [axes.replace(" ", "") for axes in operands]
    grouped = [
        x.reshape([SIZES[a] for a in axes])
        for x, axes in zip(exact, letters, strict=True)
    ]
    formula = (
        ",".join(letters) + "->" + step.pattern.partition(" -> ")[2].replace(" ", "")
    )
    want, most = np.einsum(formula, *grouped), np.einsum(formula, *map(abs, grouped))
    # A float32 sum of n products is within γ_n of the sum of their absolute values.
    terms = max(SIZES[axis] for axis in "cdje") * SIZES["n"]
    bound = terms * 2.0**-24 / (1 - terms * 2.0**-24) * most
    assert (
        abs(result - want.reshape(result.shape)) <= bound.reshape(result.shape)
    ).all()


@pytest.mark.parametrize("name", ["project", "merge"])
def test_a_projections_bias_is_added_once(room, name):
    (step,) = (step for step in STEPS if step.function == name)
    x, w = (room.numpy(a) * 0 for a in arguments(room, step))
    axes = "n d" if name == "project" else "c"
    b = RNG.normal(size=shape(axes)).astype(np.float32)
    result = room.numpy(getattr(room, name)(*map(room.array, (x, w, b))))
    assert (result == (b[:, None, :] if name == "project" else b)).all()


def test_absent_options_change_nothing(room):
    logits = room.array(RNG.normal(size=shape("b n i j")).astype(np.float32))
    for name in ("apply_softcap", "add_bias", "apply_mask", "apply_dropout"):
        assert getattr(room, name)(logits) is logits


def numbers(room, function, values, *options):
    result = getattr(room, function)(room.array(np.array(values, np.float32)), *options)
    return room.numpy(result)


def test_scale_multiplies(room):
    assert numbers(room, "apply_scale", [[[[1, -2]]]], 0.25).tolist() == [
        [[[0.25, -0.5]]]
    ]


def test_softcap_bounds_and_keeps_small_logits(room):
    got = numbers(room, "apply_softcap", [[[[-np.inf, -1e6, 0, 1e6]]]], 5.0)
    assert got.tolist() == [[[[-5, -5, 0, 5]]]]
    # c·tanh(x / c) = x − x³/3c² + …, which is less than a unit of float32 from x here;
    # and tanh is within two of its own.
    small = numbers(room, "apply_softcap", [[[[2.0**-12]]]], 4.0)
    assert abs(small - 2.0**-12) <= 3 * np.spacing(np.float32(2.0**-12))


def test_a_mask_lets_true_through(room):
    keep = room.array(np.array([[[[True, False]]]]))
    assert numbers(room, "apply_mask", [[[[3, np.nan]]]], keep).tolist() == [
        [[[3, -np.inf]]]
    ]


def test_dropout_divides_what_it_keeps(room):
    keep = room.array(np.array([[[[True, False]]]]))
    got = numbers(room, "apply_dropout", [[[[0.75, 0.25]]]], 0.25, keep)
    assert got.tolist() == [[[[1, 0]]]]


def softmax(room, rows):
    masked = room.array(np.array(rows, np.float32).reshape(1, 1, len(rows), -1))
    weights, lse = map(room.numpy, room.softmax(masked))
    return weights[0, 0], lse[0, 0]


def test_equal_logits_have_equal_weights(room):
    weights, lse = softmax(room, [[1e30] * 4, [-1e30] * 4, [0] * 4])
    assert (weights == 0.25).all()
    assert lse[:2].tolist() == [np.float32(1e30), np.float32(-1e30)]
    assert abs(lse[2] - np.log(4)) <= 2 * np.spacing(np.float32(np.log(4)))


def test_one_key_has_all_the_weight(room):
    weights, lse = softmax(room, [[-np.inf, 7, -np.inf], [500, -500, -np.inf]])
    assert weights.tolist() == [[0, 1, 0], [1, 0, 0]]
    assert lse.tolist() == [7, 500]


def test_minus_infinity_has_no_weight_even_beside_nan(room):
    weights, lse = softmax(room, [[-np.inf, np.nan, 0]])
    assert weights[0, 0] == 0
    assert np.isnan(weights[0, 1:]).all()
    assert np.isnan(lse).all()


def test_no_key_has_no_weight(room):
    weights, lse = softmax(room, [[-np.inf] * 3])
    assert weights.tolist() == [[0, 0, 0]]
    assert lse.tolist() == [-np.inf]
    weights, lse = softmax(room, [[], []])
    assert weights.shape == (2, 0)
    assert lse.tolist() == [-np.inf] * 2

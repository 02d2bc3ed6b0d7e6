"""Attention of low rank, beyond the cases of the judge: any scale, masks as predicates,
empty axes, full rank, the inverse, and errors."""

from importlib import import_module

import numpy as np
import pytest

from attncheck import assert_attention
from attncheck.budget.bounded import SVD
from attncheck.budget.rounding import unit_roundoff
from attncheck.case import DTYPES
from attncheck.definition import expected
from attnref.spec import causal, padding

from .approximate import SIZES, assert_right, call, called, draw, normal, run

J = SIZES["j"]
RANK = 3

every_type = pytest.mark.parametrize("dtype", list(DTYPES))


@pytest.fixture
def low_rank(room):
    return import_module(f"attnref.{room.name}.variants.low_rank")


def combinations(dtype):
    return {"w_e": normal(dtype, J, RANK), "w_f": normal(dtype, J, RANK, seed=2)}


def test_a_scale_of_0_is_one(room, low_rank):
    case = call("linformer", "F32", draw("F32") | combinations("F32"), scale=0)
    assert_right(run(room, low_rank.linformer_attention, case), case)


@every_type
def test_the_identity_as_projection_is_attention(room, low_rank, dtype):
    """Sums with zeros are exact, so nothing is added to attention's own budget."""
    arrays, w_e = draw(dtype), np.eye(J).astype(DTYPES[dtype])
    call = low_rank.linformer_attention
    output, lse = called(room, call, dtype, *arrays.values(), w_e=w_e)
    assert_attention(output, *arrays.values(), lse=lse, profile="strict")


def test_a_predicate_of_keys_is_a_mask(room, low_rank):
    lengths = [3, 0]
    keys = np.arange(J) < np.array(lengths)[:, None, None, None]
    case = call("linformer", "F32", draw("F32") | combinations("F32") | {"mask": keys})
    mask = padding(lengths)
    assert_right(run(room, low_rank.linformer_attention, case, mask=mask), case)


@pytest.mark.parametrize("empty", ["b", "i", "j"])
def test_empty_axes(room, low_rank, empty):
    arrays = draw("F32", **{empty: 0})
    w_e = normal("F32", arrays["k"].shape[2], RANK)
    call = low_rank.linformer_attention
    found = called(room, call, "F32", *arrays.values(), w_e=w_e)
    b, n, i, _ = arrays["q"].shape
    assert [x.shape for x in found] == [(b, n, i, SIZES["e"]), (b, n, i)]
    assert (found[0] == 0).all()
    assert (found[1] == -np.inf).all()


def apart(dtype, **changed):
    """Arrays whose landmarks differ: a middle matrix that can be inverted well."""
    arrays = draw(dtype, **{"i": 8, "j": 12, "d": 8} | changed)
    for x in (arrays["q"], arrays["k"]):
        length = x.shape[2]
        for p in range(length):
            x[:, :, p, p * 4 // length] += 4
    return arrays


@every_type
def test_as_many_landmarks_as_keys_are_attention(room, low_rank, dtype):
    """A·A⁻¹·A = A, within the bound of the inverse, and the definition's exactly."""
    arrays = apart(dtype, i=4, j=4, h=1, g=1)
    case = call("nystrom", dtype, arrays, landmarks=4)
    (found,) = run(room, low_rank.nystrom_attention, case)
    assert_right([found], case)
    q, k, v = (x.astype(np.float64) for x in arrays.values())
    logits = q @ k.swapaxes(2, 3) * q.shape[-1] ** -0.5
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    exact = weights @ v / weights.sum(-1, keepdims=True)
    np.testing.assert_allclose(expected(case).output, exact, rtol=0, atol=1e-13)


@pytest.mark.parametrize("dtype", ["F64", "F32"])
@pytest.mark.parametrize("r", [1, 2, 5, 16])
def test_what_the_bound_takes_of_singular_values_is_so(room, low_rank, dtype, r):
    """The one constant that is not derived: |X·A − 1| ≤ 2·SVD·r·u·κ for stochastic A.

    Measured here on the room's own; the product is exact in float64 for float32, and
    rounds by r·u·κ at most in float64.
    """
    rng = np.random.default_rng(r)
    rows = np.exp(rng.normal(size=(1, 8, r, r)) + 3 * np.eye(r))
    a = (rows / rows.sum(-1, keepdims=True)).astype(DTYPES[dtype])
    (x,) = called(room, low_rank.pseudo_inverse, dtype, a)
    a, x = (y.astype(np.float64) for y in (a, x))
    residual = np.linalg.norm(x @ a - np.eye(r), 2, axis=(-2, -1))
    u, condition = unit_roundoff(DTYPES[dtype]), np.linalg.cond(a)
    used = residual / (2 * SVD * r * u * condition)
    print(f"{room.name} {dtype} r = {r}: {used.max():.3f} of the constant")
    assert used.max() <= 1


def test_equal_landmarks_have_a_pseudo_inverse(room, low_rank):
    """Rank 1: all rows are the mean, and the output is that of one landmark."""
    arrays = apart("F64")
    for x in (arrays["q"], arrays["k"]):
        x[:] = x[:, :, :1]
    call = low_rank.nystrom_attention
    (found,) = called(room, call, "F64", *arrays.values(), landmarks=4)
    mean = arrays["v"].mean(2, keepdims=True).repeat(2, axis=1)
    np.testing.assert_allclose(found, np.broadcast_to(mean, found.shape), atol=1e-13)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"w_e": (J + 1, 2)}, "`w_e` must have key positions j = 10 like `k`, but has"),
        ({"w_e": (J, 2), "w_f": (J, 3)}, "`w_f` must have"),
        ({"w_e": (J, 2), "mask": causal()}, "of axes b 1 1 j such as padding(lengths)"),
    ],
)
def test_a_projection_that_does_not_fit_is_named(room, low_rank, options, words):
    options = {
        name: normal("F32", *x) if isinstance(x, tuple) else x
        for name, x in options.items()
    }
    arrays, call = draw("F32").values(), low_rank.linformer_attention
    with pytest.raises(ValueError, match="must") as caught:
        called(room, call, "F32", *arrays, **options)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("landmarks", "words"),
    [
        (4, "query positions i = 6 must be a multiple of landmarks = 4, and not 0"),
        (6, "key positions j = 10 must be a multiple of landmarks = 6, and not 0"),
        (0, "`landmarks` must be an int of at least 1, but is 0"),
        (2.0, "`landmarks` must be an int of at least 1, but is 2.0"),
    ],
)
def test_landmarks_that_do_not_fit_are_named(room, low_rank, landmarks, words):
    arrays, call = draw("F32").values(), low_rank.nystrom_attention
    with pytest.raises(ValueError, match="must") as caught:
        called(room, call, "F32", *arrays, landmarks=landmarks)
    assert words in str(caught.value)

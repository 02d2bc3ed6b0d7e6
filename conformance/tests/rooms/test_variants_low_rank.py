"""Attention of low rank is its definition in float64; of full rank it is attention."""

from importlib import import_module

import numpy as np
import pytest

from attncheck import approximations, assert_attention
from attncheck.case import DTYPES
from attnref.spec import causal, padding

from .approximate import (
    SIZES,
    UNIT,
    assert_far,
    assert_near,
    called,
    draw,
    normal,
    unit,
)

J = SIZES["j"]
RANK = 3

every_type = pytest.mark.parametrize("dtype", list(DTYPES))


@pytest.fixture
def low_rank(room):
    return import_module(f"attnref.{room.name}.variants.low_rank")


def combinations(dtype):
    return {"w_e": normal(dtype, J, RANK), "w_f": normal(dtype, J, RANK, seed=2)}


@every_type
def test_linformer_is_its_definition(room, low_rank, dtype):
    arrays, weights = draw(dtype), combinations(dtype)
    found = called(room, low_rank.linformer_attention, dtype, arrays, **weights)
    want = unit(approximations.linformer, dtype)(*arrays, **weights)
    assert_near(found, want, dtype)


@pytest.mark.parametrize("scale", [0, -0.7, 2.0])
def test_linformer_takes_any_scale(room, low_rank, scale):
    arrays, options = draw("F32"), combinations("F32") | {"scale": scale}
    found = called(room, low_rank.linformer_attention, "F32", arrays, **options)
    want = unit(approximations.linformer, "F32")(*arrays, **options)
    assert_near(found, want, "F32")


def test_values_are_combined_as_keys_are_by_default(room, low_rank):
    arrays, w_e = draw("F32"), normal("F32", J, RANK)
    found = called(room, low_rank.linformer_attention, "F32", arrays, w_e=w_e)
    want = unit(approximations.linformer, "F32")(*arrays, w_e=w_e, w_f=w_e)
    assert_near(found, want, "F32")


@every_type
def test_the_identity_as_projection_is_attention(room, low_rank, dtype):
    """Sums with zeros are exact, so nothing is added to attention's own budget."""
    arrays, w_e = draw(dtype), np.eye(J).astype(DTYPES[dtype])
    output, lse = called(room, low_rank.linformer_attention, dtype, arrays, w_e=w_e)
    assert_attention(output, *arrays, lse=lse, profile="strict")


LENGTHS = [3, 0]
KEYS = np.arange(J) < np.array(LENGTHS)[:, None]


@pytest.mark.parametrize(
    "mask", [padding(LENGTHS), KEYS[:, None, None]], ids=["padding", "array"]
)
def test_a_blocked_key_is_in_no_combination(room, low_rank, mask):
    arrays, weights = draw("F32"), combinations("F32")
    want = unit(approximations.linformer, "F32")(*arrays, **weights, seen=KEYS)
    for x in arrays[1:]:
        for b, length in enumerate(LENGTHS):
            x[b, :, length:] = np.nan
    arrays[0][1] = np.nan  # the element that is left no key
    call = low_rank.linformer_attention
    found = called(room, call, "F32", arrays, **weights, mask=mask)
    assert_near(found, want, "F32")
    assert (found[0][1] == 0).all()
    assert (found[1][1] == -np.inf).all()


@pytest.mark.parametrize("empty", ["b", "i", "j"])
def test_empty_axes(room, low_rank, empty):
    arrays = draw("F32", **{empty: 0})
    w_e = normal("F32", arrays[1].shape[2], RANK)
    found = called(room, low_rank.linformer_attention, "F32", arrays, w_e=w_e)
    b, n, i, _ = arrays[0].shape
    assert [x.shape for x in found] == [(b, n, i, SIZES["e"]), (b, n, i)]
    assert (found[0] == 0).all()
    assert (found[1] == -np.inf).all()


def apart(dtype, **changed):
    """Arrays whose landmarks differ: a middle matrix that can be inverted well."""
    q, k, v = draw(dtype, **{"i": 8, "j": 12, "d": 8} | changed)
    for x in (q, k):
        length = x.shape[2]
        for p in range(length):
            x[:, :, p, p * 4 // length] += 4
    return [q, k, v]


@every_type
def test_nystrom_is_its_definition(room, low_rank, dtype):
    arrays = apart(dtype)
    found = called(room, low_rank.nystrom_attention, dtype, arrays, landmarks=4)
    want = unit(approximations.nystrom, dtype)(*arrays, landmarks=4)
    assert_near(found, want, dtype)


@every_type
def test_as_many_landmarks_as_keys_are_attention(room, low_rank, dtype):
    """A·A⁻¹·A = A; the bound is that of the inverse's condition number."""
    arrays = apart(dtype, i=4, j=4, h=1, g=1)
    found = called(room, low_rank.nystrom_attention, dtype, arrays, landmarks=4)
    want = unit(approximations.nystrom, dtype)(*arrays, landmarks=4)
    assert_near(found, want, dtype)
    q, k, v = (x.astype(np.float64) for x in arrays)
    logits = q @ k.swapaxes(2, 3) * q.shape[-1] ** -0.5
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    exact = weights @ v / weights.sum(-1, keepdims=True)
    np.testing.assert_array_less(
        abs(want.output - exact), want.bound * 2 * UNIT["F64"] / UNIT[dtype]
    )


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
    (x,) = called(room, low_rank.pseudo_inverse, dtype, [a])
    a, x = (y.astype(np.float64) for y in (a, x))
    residual = np.linalg.norm(x @ a - np.eye(r), 2, axis=(-2, -1))
    condition = np.linalg.cond(a)
    used = residual / (2 * approximations.SVD * r * UNIT[dtype] * condition)
    print(f"{room.name} {dtype} r = {r}: {used.max():.3f} of the constant")
    assert used.max() <= 1


def test_equal_landmarks_have_a_pseudo_inverse(room, low_rank):
    """Rank 1: all rows are the mean, and the output is that of one landmark."""
    arrays = apart("F64")
    for x in arrays[:2]:
        x[:] = x[:, :, :1]
    call = low_rank.nystrom_attention
    (found,) = called(room, call, "F64", arrays, landmarks=4)
    mean = arrays[2].mean(2, keepdims=True).repeat(2, axis=1)
    np.testing.assert_allclose(found, np.broadcast_to(mean, found.shape), atol=1e-13)


@pytest.mark.parametrize("dtype", ["F32", "BF16"])
@pytest.mark.parametrize("fault", ["without", "transposed", "not inverted"])
def test_a_wrong_inverse_is_found(room, low_rank, monkeypatch, dtype, fault):
    right = low_rank.pseudo_inverse
    wrong = {
        "without": lambda x: right(x) @ x,
        "transposed": lambda x: right(x).swapaxes(-1, -2),
        "not inverted": lambda x: x,
    }[fault]
    monkeypatch.setattr(low_rank, "pseudo_inverse", wrong)
    arrays = apart(dtype)
    found = called(room, low_rank.nystrom_attention, dtype, arrays, landmarks=4)
    want = unit(approximations.nystrom, dtype)(*arrays, landmarks=4)
    assert_far(found, want, dtype)


@pytest.mark.parametrize("dtype", ["F32", "BF16"])
def test_one_projection_for_both_is_found(room, low_rank, dtype):
    arrays, weights = draw(dtype), combinations(dtype)
    call, w_e = low_rank.linformer_attention, weights["w_e"]
    found = called(room, call, dtype, arrays, w_e=w_e)
    want = unit(approximations.linformer, dtype)(*arrays, **weights)
    assert_far(found, want, dtype)


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
    with pytest.raises(ValueError, match="must") as caught:
        called(room, low_rank.linformer_attention, "F32", draw("F32"), **options)
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
    options = {"landmarks": landmarks}
    with pytest.raises(ValueError, match="must") as caught:
        called(room, low_rank.nystrom_attention, "F32", draw("F32"), **options)
    assert words in str(caught.value)

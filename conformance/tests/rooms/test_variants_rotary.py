"""Rotary positions turn pairs of components by angles, and nothing else."""

import math
import re

import numpy as np
import pytest

from attnref.spec import causal
from attnref.spec.weights import rotary_permutation

from .variant_calls import (
    SIZES,
    N,
    assert_is_defined,
    assert_rounded_once,
    dot,
    draw,
    gradients,
    incoming,
    module,
    normal,
    run,
)

PAIRS = {
    "halves": lambda width: [(t, t + width // 2) for t in range(width // 2)],
    "interleaved": lambda width: [(2 * t, 2 * t + 1) for t in range(width // 2)],
}
"""Which components turn together."""


def turned(row, position, *, base=10000, width=None, pairing="halves"):
    """A row of numbers, its pairs turned."""
    width = len(row) if width is None else width
    row = list(row)
    for t, (x, y) in enumerate(PAIRS[pairing](width)):
        angle = position * base ** (-2 * t / width)
        cos, sin = math.cos(angle), math.sin(angle)
        row[x], row[y] = row[x] * cos - row[y] * sin, row[x] * sin + row[y] * cos
    return row


def rotary_score(offset=0, **rotation):
    offsets = np.broadcast_to(offset, SIZES["b"])

    def score(x, b, n, h, i, j):
        query = turned(x["q"][b, n, i], i + int(offsets[b]), **rotation)
        return dot(query, turned(x["k"][b, h, j], j, **rotation))

    return score


ROTATIONS = {
    "all components": {},
    "interleaved": {"pairing": "interleaved"},
    "a part of the width": {"width": 4},
    "a part, interleaved": {"width": 2, "pairing": "interleaved"},
    "another base": {"base": 500},
    "base below 1": {"base": 0.25, "width": 4},
    "offset": {"offset": 3},
    "offset below 0": {"offset": -2, "pairing": "interleaved"},
    "offset of each batch element": {"offset": [1, -1]},
    "offset, NumPy": {"offset": np.array([2, 5])},
}


@pytest.mark.parametrize("rotation", ROTATIONS.values(), ids=ROTATIONS)
def test_it_is_its_definition(room, rotation):
    score = rotary_score(**rotation)
    assert_is_defined(room, "rotary_attention", draw(), rotation, score=score)


def test_it_takes_attentions_options(room):
    rng = np.random.default_rng(5)
    full = [SIZES[axis] if axis != "n" else N for axis in "bnij"]
    mask, keep = rng.random((2, *full)) < 0.7
    mask[1, 2, 3] = False
    options = {"scale": -0.3, "softcap": 1.5, "mask": mask, "offset": 1}
    options |= {"dropout_rate": 0.25, "dropout_keep": keep}
    inputs = draw() | {"bias": normal(6, "n", "j")[None, :, None]}
    score = rotary_score(1)
    assert_is_defined(room, "rotary_attention", inputs, options, score=score)


@pytest.mark.parametrize("d", [1, 3, 5])
def test_an_odd_width_keeps_what_does_not_turn(room, d):
    sizes = SIZES | {"d": d}
    if d == 1:
        with pytest.raises(ValueError, match="from 2 to d = 1, but is 1"):
            run(room, "rotary_attention", draw(sizes))
        return
    score = rotary_score(width=2)
    assert_is_defined(room, "rotary_attention", draw(sizes), {"width": 2}, score=score)


@pytest.mark.parametrize("dtype", ["F32", "BF16", "F16"])
def test_other_types(room, dtype):
    inputs = draw(dtype=dtype)
    if dtype == "F32":
        score = rotary_score(7)
        call = {"offset": 7}
        assert_is_defined(
            room, "rotary_attention", inputs, call, dtype=dtype, score=score
        )
    else:
        assert_rounded_once(room, "rotary_attention", inputs, offset=7)


@pytest.mark.parametrize("axes", ["b", "i", "j"])
def test_no_batch_no_queries_or_no_keys(room, axes):
    sizes = SIZES | {axes: 0}
    output, lse = run(room, "rotary_attention", draw(sizes))
    assert output.shape == (sizes["b"], N, sizes["i"], sizes["e"])
    assert (output == 0).all()
    assert (lse == -np.inf).all()


def test_a_blocked_keys_nan_reaches_nothing(room):
    inputs, mask = draw(), np.ones((1, 1, 1, SIZES["j"]), bool)
    mask[..., 2] = False
    clean = run(room, "rotary_attention", inputs, mask=mask)
    d_out, d_lse = incoming(inputs)
    inputs["k"][:, :, 2], inputs["v"][:, :, 2] = np.nan, np.inf
    for got, want in zip(
        run(room, "rotary_attention", inputs, mask=mask), clean, strict=True
    ):
        assert (got == want).all()
    found = gradients(room, "rotary_attention", inputs, d_out, d_lse, mask=mask)
    assert all(np.isfinite(x).all() for x in found.values())
    assert (found["k"][:, :, 2] == 0).all()


def rotate(room, x, positions, **rotation):
    with room.framework.precision("F64"):
        arrays = room.array(x), room.array(positions)
        return room.numpy(module(room).rotate(*arrays, **rotation))


@pytest.mark.parametrize("width", [None, 4])
def test_the_permutation_takes_one_pairing_to_the_other(room, width):
    """Bit for bit: the same products and sums, in other places."""
    x, positions = normal(1, "b", "n", "i", "d"), np.arange(SIZES["i"]) * 37
    order = list(rotary_permutation(SIZES["d"], width))
    halves = rotate(room, x, positions, width=width, pairing="halves")
    permuted = rotate(
        room, x[..., order], positions, width=width, pairing="interleaved"
    )
    assert (halves[..., order] == permuted).all()
    back = sorted(range(SIZES["d"]), key=order.__getitem__)
    assert (permuted[..., back] == halves).all()


def test_permuted_weights_give_the_same_attention(room):
    inputs = draw()
    order = list(rotary_permutation(SIZES["d"]))
    halves = run(room, "rotary_attention", inputs)
    inputs |= {name: inputs[name][..., order] for name in "qk"}
    other = run(room, "rotary_attention", inputs, pairing="interleaved")
    for got, want in zip(other, halves, strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-13)


def test_turning_by_minus_a_position_turns_back(room):
    x, positions = normal(2, "b", "n", "i", "d"), np.arange(SIZES["i"]) + 11
    back = rotate(room, rotate(room, x, positions), -positions)
    np.testing.assert_allclose(back, x, rtol=0, atol=1e-14)


def test_positions_may_differ_between_batch_elements(room):
    x = normal(3, "b", "n", "i", "d")
    positions = np.array([[0, 5, 2, 9], [1000, 1, 0, 3]])
    got = rotate(room, x, positions, pairing="interleaved")
    want = np.empty_like(x)
    for b, n, i in np.ndindex(x.shape[:3]):
        want[b, n, i] = turned(x[b, n, i], positions[b, i], pairing="interleaved")
    # An angle of 1000 is right to 2000 units of rounding, on either side.
    allowed = 4000 * 2.0**-53 * 2 * abs(x).max()
    np.testing.assert_allclose(got, want, rtol=0, atol=allowed)


def test_an_offset_moves_the_queries_as_longer_queries_do(room):
    """A step of decoding: the last query alone gets what it gets in the whole."""
    inputs = draw(SIZES | {"i": 5})
    whole = run(room, "rotary_attention", inputs, mask=causal())
    inputs["q"] = inputs["q"][:, :, 4:]
    last = run(room, "rotary_attention", inputs, mask=causal(4), offset=4)
    for got, want in zip(last, whole, strict=True):
        np.testing.assert_allclose(got, want[:, :, 4:], rtol=0, atol=1e-14)


WRONG = {
    "odd width": (
        {"width": 3},
        "`width` must be even, and from 2 to d = 6, but is 3",
    ),
    "width above d": (
        {"width": 8},
        "`width` must be even, and from 2 to d = 6, but is 8",
    ),
    "no width": (
        {"width": 0},
        "`width` must be even, and from 2 to d = 6, but is 0",
    ),
    "pairing": (
        {"pairing": "neox"},
        "`pairing` must be one of halves, interleaved, but is 'neox'",
    ),
    "base 0": ({"base": 0}, "`base` must be finite and above 0, but is 0"),
    "offset of another batch": (
        {"offset": (1, 2, 3)},
        "`offset` must have axes b = 2, but has shape (3,)",
    ),
}


@pytest.mark.parametrize(("options", "message"), WRONG.values(), ids=WRONG)
def test_wrong_input_is_refused(room, options, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        run(room, "rotary_attention", draw(), **options)


def test_wrong_types_are_refused(room):
    match = r"^`attention` takes offset as an int or integers of axes b, but got 1.5"
    with pytest.raises(TypeError, match=match):
        run(room, "rotary_attention", draw(), offset=1.5)
    with pytest.raises(TypeError, match="`base` must be a Python number, but is str"):
        run(room, "rotary_attention", draw(), base="10000")
    x = normal(0, "b", "n", "i", "d")
    with pytest.raises(TypeError, match=r"^`positions` must be integers, but is float"):
        rotate(room, x, np.arange(4.0))
    match = r"`positions` must have axes i = 4 or b i = 2 4, but has shape \(3,\)"
    with pytest.raises(ValueError, match=match):
        rotate(room, x, np.arange(3))
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        run(room, "rotary_attention", draw(), ofset=1)

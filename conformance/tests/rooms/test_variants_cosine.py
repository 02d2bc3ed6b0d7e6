"""Cosine scores depend on directions alone, until a length is below eps."""

import cmath
import re

import numpy as np
import pytest

from attnref.spec import causal

from .variant_calls import (
    SIZES,
    N,
    assert_is_defined,
    assert_rounded_once,
    dot,
    draw,
    gradients,
    incoming,
    normal,
    run,
)

FULL = (SIZES["b"], N, SIZES["i"], SIZES["j"])
RNG = np.random.default_rng(39)


def inputs_of(sizes=SIZES, dtype="F64"):
    temperature = abs(normal(71, "n", sizes=sizes)) + 1
    return draw(sizes, dtype) | {
        "temperature": temperature.astype(normal(0, dtype=dtype).dtype)
    }


def cosine(eps=1e-12):
    def unit(row):
        length = cmath.sqrt(dot(row, row))
        return [x / (length if length.real > eps else eps) for x in row]

    def score(x, b, n, h, i, j):
        factor = x["temperature"][n] if "temperature" in x else 10
        return factor * dot(unit(x["q"][b, n, i]), unit(x["k"][b, h, j]))

    return {"score": score, "scale": 1}


def test_it_is_its_definition(room):
    assert_is_defined(room, "cosine_attention", inputs_of(), **cosine())


def test_the_temperature_is_10_by_default(room):
    assert_is_defined(room, "cosine_attention", draw(), **cosine())


def test_lengths_below_eps_do_not_become_1(room):
    """Of queries some, of keys others; what is longer than eps has length 1 still."""
    inputs = inputs_of()
    inputs["q"][:, ::2] *= 1e-3
    inputs["k"][:, :, :3] *= 1e-3
    lengths = np.linalg.norm(inputs["q"], axis=-1)
    assert (lengths < 0.1).any()
    assert (lengths > 0.1).any()
    options = {"eps": 0.1}
    assert_is_defined(room, "cosine_attention", inputs, options, **cosine(0.1))


def test_a_query_or_key_of_zeros_has_cosine_0(room):
    inputs = inputs_of()
    inputs["q"][0, 0, 0] = inputs["k"][1, 1, 1] = 0
    output, lse = run(room, "cosine_attention", inputs)
    np.testing.assert_allclose(output[0, 0, 0], inputs["v"][0, 0].mean(0), atol=1e-14)
    np.testing.assert_allclose(lse[0, 0, 0], np.log(SIZES["j"]), atol=1e-14)
    found = gradients(room, "cosine_attention", inputs, *incoming(inputs))
    assert all(np.isfinite(x).all() for x in found.values())


def test_it_takes_attentions_options(room):
    mask, keep = RNG.random((2, *FULL)) < 0.7
    mask[1, 2, 3] = False
    options = {"softcap": 1.5, "mask": mask, "dropout_rate": 0.25, "dropout_keep": keep}
    inputs = inputs_of() | {"bias": normal(31, "n", "j")[None, :, None]}
    assert_is_defined(room, "cosine_attention", inputs, options, **cosine())


def test_other_types(room):
    inputs = inputs_of(dtype="F32")
    assert_is_defined(room, "cosine_attention", inputs, dtype="F32", **cosine())
    assert_rounded_once(room, "cosine_attention", inputs)


def test_lengths_do_not_matter(room):
    """Powers of two multiply exactly: bit for bit."""
    inputs = inputs_of()
    want = run(room, "cosine_attention", inputs)
    inputs["q"] *= 2.0 ** RNG.integers(-9, 9, (*FULL[:3], 1))
    inputs["k"] *= 2.0 ** RNG.integers(-9, 9, (*inputs["k"].shape[:3], 1))
    for got, same in zip(run(room, "cosine_attention", inputs), want, strict=True):
        np.testing.assert_array_equal(got, same)


@pytest.mark.parametrize("axes", ["b", "i", "j"])
def test_no_batch_no_queries_or_no_keys(room, axes):
    inputs = inputs_of(SIZES | {axes: 0})
    output, lse = run(room, "cosine_attention", inputs)
    assert (output == 0).all()
    assert (lse == -np.inf).all()
    found = gradients(room, "cosine_attention", inputs, *incoming(inputs))
    assert all((x == 0).all() for x in found.values())


def test_a_blocked_keys_nan_reaches_nothing(room):
    inputs, mask = inputs_of(), causal(-1)
    clean = gradients(room, "cosine_attention", inputs, *incoming(inputs), mask=mask)
    inputs["k"][:, :, 3:] = inputs["v"][:, :, 3:] = inputs["q"][:, :, 0] = np.nan
    found = gradients(room, "cosine_attention", inputs, *incoming(inputs), mask=mask)
    assert all((found[name] == clean[name]).all() for name in found)


def test_wrong_input_is_refused(room):
    match = "^`cosine_attention` takes no `scale`: its scores are not scaled$"
    with pytest.raises(TypeError, match=match):
        run(room, "cosine_attention", draw(), scale=1.0)
    with pytest.raises(
        ValueError, match=r"^`eps` must be finite and above 0, but is 0$"
    ):
        run(room, "cosine_attention", draw(), eps=0)
    message = (
        "`temperature` must have query heads n = 6 like `q`, but has 3 "
        "(q: b n i d = 2 6 4 6, temperature: n = 3)"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        run(room, "cosine_attention", draw(), temperature=np.ones(3))

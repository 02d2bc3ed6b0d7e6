"""Additive scores: w·tanh(q W + k U), of each head."""

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
RNG = np.random.default_rng(37)
A = 7


def inputs_of(sizes=SIZES, dtype="F64"):
    more = {"sizes": sizes, "dtype": dtype, "a": A}
    weights = {"w_q": normal(61, "n", "d", "a", **more)}
    weights |= {"w_k": normal(62, "h", "d", "a", **more)}
    return draw(sizes, dtype) | weights | {"w_s": normal(63, "n", "a", **more)}


def score(x, b, n, h, i, j):
    query, key = x["q"][b, n, i], x["k"][b, h, j]
    inner = (
        dot(query, x["w_q"][n, :, a]) + dot(key, x["w_k"][h, :, a]) for a in range(A)
    )
    return dot(x["w_s"][n], [cmath.tanh(z) for z in inner])


def test_it_is_its_definition(room):
    assert_is_defined(room, "additive_attention", inputs_of(), score=score, scale=1)


def test_it_takes_attentions_options(room):
    mask, keep = RNG.random((2, *FULL)) < 0.7
    mask[1, 2, 3] = False
    options = {"softcap": 1.5, "mask": mask, "dropout_rate": 0.25, "dropout_keep": keep}
    inputs = inputs_of() | {"bias": normal(31, "n", "j")[None, :, None]}
    assert_is_defined(room, "additive_attention", inputs, options, score=score, scale=1)


def test_other_types(room):
    inputs = inputs_of(dtype="F32")
    rules = {"score": score, "scale": 1}
    assert_is_defined(room, "additive_attention", inputs, dtype="F32", **rules)
    assert_rounded_once(room, "additive_attention", inputs)


@pytest.mark.parametrize("axes", ["b", "i", "j"])
def test_no_batch_no_queries_or_no_keys(room, axes):
    sizes = SIZES | {axes: 0}
    inputs = inputs_of(sizes)
    output, lse = run(room, "additive_attention", inputs)
    assert output.shape == (sizes["b"], N, sizes["i"], sizes["e"])
    assert (output == 0).all()
    assert (lse == -np.inf).all()
    found = gradients(room, "additive_attention", inputs, *incoming(inputs))
    assert all((x == 0).all() for x in found.values())


def test_a_blocked_keys_nan_reaches_no_gradient_of_a_weight(room):
    inputs, mask = inputs_of(), causal(-1)  # query 0 sees nothing, nobody the last key
    clean = gradients(room, "additive_attention", inputs, *incoming(inputs), mask=mask)
    inputs["k"][:, :, 3:] = inputs["v"][:, :, 3:] = inputs["q"][:, :, 0] = np.nan
    found = gradients(room, "additive_attention", inputs, *incoming(inputs), mask=mask)
    assert all((found[name] == clean[name]).all() for name in found)


def test_it_takes_no_scale(room):
    match = "^`additive_attention` takes no `scale`: its scores are not scaled$"
    with pytest.raises(TypeError, match=match):
        run(room, "additive_attention", inputs_of(), scale=1.0)


def test_wrong_weights_are_refused(room):
    inputs = inputs_of()
    message = (
        "`w_k` must have key/value heads h = 3 like `k`, but has 6 "
        "(k: b h j d = 2 3 5 6, w_k: h d a = 6 6 7)"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        run(room, "additive_attention", inputs | {"w_k": np.ones((6, 6, 7))})
    match = "^`w_s` must have additive width a = 7 like `w_q`, but has 5 "
    with pytest.raises(ValueError, match=match):
        run(room, "additive_attention", inputs | {"w_s": np.ones((6, 5))})

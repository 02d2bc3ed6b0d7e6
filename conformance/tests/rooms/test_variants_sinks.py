"""A sink takes weight in the denominator, and is not scaled, capped or masked."""

import re

import numpy as np
import pytest

from attnref.spec import causal

from .variant_calls import (
    SIZES,
    N,
    assert_is_defined,
    assert_rounded_once,
    draw,
    gradients,
    incoming,
    normal,
    run,
)

FULL = (SIZES["b"], N, SIZES["i"], SIZES["j"])
RNG = np.random.default_rng(29)


def inputs_of(sizes=SIZES, dtype="F64"):
    return draw(sizes, dtype) | {"sinks": normal(51, "n", sizes=sizes, dtype=dtype)}


def sink(x, n):
    return x["sinks"][n]


@pytest.mark.parametrize("options", [{}, {"scale": 3.0}, {"softcap": 0.1}])
def test_it_is_its_definition(room, options):
    assert_is_defined(room, "sink_attention", inputs_of(), options, sink=sink)


def test_it_takes_attentions_options(room):
    mask, keep = RNG.random((2, *FULL)) < 0.7
    mask[1, 2, 3] = False
    bias = normal(31, "n", "j")[None, :, None]
    bias[0, 1, 0, 2] = -np.inf
    options = {"scale": -0.3, "softcap": 1.5, "mask": mask}
    options |= {"dropout_rate": 0.25, "dropout_keep": keep}
    inputs = inputs_of() | {"bias": bias}
    assert_is_defined(room, "sink_attention", inputs, options, sink=sink)


def test_other_types(room):
    inputs = inputs_of(dtype="F32")
    assert_is_defined(room, "sink_attention", inputs, dtype="F32", sink=sink)
    assert_rounded_once(room, "sink_attention", inputs)


def test_a_query_without_keys_gets_0_and_its_log_sum_exp_is_the_sink(room):
    """Also where a value that others see is NaN, and where what comes in is NaN."""
    inputs = inputs_of()
    mask = np.ones(FULL, bool)
    mask[0, :, 1] = False
    output, lse = run(room, "sink_attention", inputs, mask=mask)
    assert (output[0, :, 1] == 0).all()
    assert (lse[0, :, 1] == inputs["sinks"]).all()
    inputs["v"][0, :, 2] = np.nan
    assert (run(room, "sink_attention", inputs, mask=mask)[0][0, :, 1] == 0).all()

    inputs = inputs_of()
    d_out, d_lse = incoming(inputs)
    want = gradients(room, "sink_attention", inputs, d_out, d_lse, mask=mask)
    d_out[0, :, 1] = np.nan
    found = gradients(room, "sink_attention", inputs, d_out, d_lse, mask=mask)
    assert all((found[name] == want[name]).all() for name in found)
    assert (found["q"][0, :, 1] == 0).all()


@pytest.mark.parametrize("axes", ["b", "i", "j"])
def test_no_batch_no_queries_or_no_keys(room, axes):
    sizes = SIZES | {axes: 0}
    inputs = inputs_of(sizes)
    output, lse = run(room, "sink_attention", inputs)
    assert (output == 0).all()
    assert (lse == inputs["sinks"][:, None]).all()
    d_out, d_lse = incoming(inputs)
    found = gradients(room, "sink_attention", inputs, d_out, d_lse)
    want = d_lse.sum(axis=(0, 2))
    np.testing.assert_allclose(found["sinks"], want, rtol=0, atol=1e-14)


def test_a_sink_of_minus_infinity_is_none(room):
    inputs, mask = inputs_of(), causal(-1)
    inputs["sinks"][:] = -np.inf
    got = run(room, "sink_attention", inputs, mask=mask)
    assert (got[1][:, :, 0] == -np.inf).all()
    del inputs["sinks"]
    with room.framework.precision("F64"):
        steps = room.attention_steps(*map(room.array, inputs.values()), mask=mask)
        want = room.numpy(steps.output), room.numpy(steps.lse)
    for x, y in zip(got, want, strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=1e-14)


def test_a_sink_of_minus_infinity_gets_no_gradient(room):
    inputs = inputs_of()
    inputs["sinks"][:2] = -np.inf
    d_out, d_lse = incoming(inputs)
    options = {"mask": causal(-1)}
    found = gradients(room, "sink_attention", inputs, d_out, d_lse, **options)
    assert all(np.isfinite(x).all() for x in found.values())
    assert (found["sinks"][:2] == 0).all()


@pytest.mark.parametrize("logit", [1e6, -1e6])
def test_sinks_far_away(room, logit):
    """Far above, it takes all; far below, nothing, in float32 too."""
    inputs = inputs_of(dtype="F32")
    inputs["sinks"][:] = logit
    output, lse = run(room, "sink_attention", inputs, "F32")
    if logit > 0:
        assert (output == 0).all()
        assert (lse == logit).all()
    else:
        assert (abs(output) > 0).all()
        assert (abs(lse) < 20).all()


def test_weights_and_the_sinks_share_sum_to_one(room):
    """With values of 1 the output is 1 − e^(sink − lse)."""
    inputs = inputs_of()
    inputs["v"][:] = 1
    output, lse = run(room, "sink_attention", inputs)
    share = np.exp(inputs["sinks"][:, None] - lse)
    np.testing.assert_allclose(output[..., 0], 1 - share, rtol=0, atol=1e-14)


def test_wrong_sinks_are_refused(room):
    message = (
        "`sinks` must have query heads n = 6 like `q`, but has 3 "
        "(q: b n i d = 2 6 4 6, sinks: n = 3)"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        run(room, "sink_attention", draw(), sinks=np.ones(3))
    with pytest.raises(TypeError, match=r"^`sinks` must be a .*, but is a .*None"):
        run(room, "sink_attention", draw(), sinks=None)

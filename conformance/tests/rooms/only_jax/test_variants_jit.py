"""`jit` and `vmap` take every variant, with offsets that are traced."""

from functools import partial

import jax
import numpy as np
import pytest

from attnref.jax import variants
from attnref.spec import causal

from ..test_variants_latent import inputs_of as latent_inputs
from ..variant_calls import PLACED, UNITS, every_call

CALLS = every_call()
ALLOWED = UNITS * 2.0**-24


def assert_alike(got, want):
    """Two computations, each within half of it of the definition."""
    for x, y in zip(got, want, strict=True):
        assert abs(x - y).max() <= 2 * ALLOWED * max(1, abs(y).max())


@pytest.mark.parametrize("name", CALLS)
def test_a_variant_runs_under_jit(name):
    inputs, options = CALLS[name]
    arrays = {k: jax.numpy.asarray(x) for k, x in inputs.items()}
    call = partial(getattr(variants, name), **options)
    offsets = {"offset": jax.numpy.array([2, -1])} if name in PLACED else {}
    want = call(**arrays, mask=causal(1), **offsets)
    assert_alike(jax.jit(call)(**arrays, mask=causal(1), **offsets), want)
    if name in PLACED:
        fixed = partial(call, offset=1)
        assert_alike(jax.jit(fixed)(**arrays), fixed(**arrays))


@pytest.mark.parametrize("absorbed", [False, True])
def test_latent_attention_runs_under_jit_with_its_params_as_a_pytree(absorbed):
    inputs = {k: jax.numpy.asarray(x) for k, x in latent_inputs(dtype="F32").items()}
    x = inputs.pop("x")
    params = variants.LatentParams(**inputs)
    call = partial(variants.latent_attention, absorbed=absorbed)
    assert_alike([jax.jit(call)(params, x)], [call(params, x)])
    gradient = jax.grad(lambda p: call(p, x).sum())(params)
    assert {k: g.shape for k, g in gradient._asdict().items()} == {
        k: p.shape for k, p in params._asdict().items()
    }


def test_an_offset_that_32_bits_do_not_hold_is_refused():
    inputs, _ = CALLS["alibi_attention"]
    arrays = {k: jax.numpy.asarray(x) for k, x in inputs.items()}
    with pytest.raises(ValueError, match=r"does not hold: they need jax\.config"):
        variants.alibi_attention(**arrays, offset=np.array([2**40, 0]))

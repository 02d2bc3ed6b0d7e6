"""`torch.compile(fullgraph=True)` takes every variant as it is."""

import pytest
import torch

from attnref.spec import causal
from attnref.torch import variants

from ..test_variants_latent import AXES
from ..test_variants_latent import inputs_of as latent_inputs
from ..variant_calls import PLACED, every_call

CALLS = every_call()


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def compiled(call):
    return torch.compile(call, fullgraph=True, backend="eager")


@pytest.mark.parametrize("name", CALLS)
def test_a_variant_is_one_graph(name):
    inputs, options = CALLS[name]
    tensors = {k: torch.from_numpy(x) for k, x in inputs.items()}
    options = options | {"mask": causal(1)}
    call = getattr(variants, name)
    for placed in ({"offset": 1}, {"offset": torch.tensor([2, -1])}):
        more = placed if name in PLACED else {}
        got = compiled(call)(**tensors, **options, **more)
        want = call(**tensors, **options, **more)
        assert all((x == y).all() for x, y in zip(got, want, strict=True))


@pytest.mark.parametrize("absorbed", [False, True])
def test_latent_attention_is_one_graph(absorbed):
    inputs = {k: torch.from_numpy(x) for k, x in latent_inputs(dtype="F32").items()}
    x = inputs.pop("x")
    assert inputs.keys() == AXES.keys()
    params, options = variants.LatentParams(**inputs), {"absorbed": absorbed}
    call = variants.latent_attention
    assert (compiled(call)(params, x, **options) == call(params, x, **options)).all()


@pytest.mark.parametrize("name", CALLS)
def test_autocast_rounds_nothing(name):
    inputs, options = CALLS[name]
    tensors = {k: torch.from_numpy(x) for k, x in inputs.items()}
    call = getattr(variants, name)
    want = call(**tensors, **options)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = call(**tensors, **options)
    assert all((x == y).all() for x, y in zip(got, want, strict=True))

"""`MultiHeadAttention`: the function as a module that owns its weights."""

import pytest
import torch

from attnref.spec import causal
from attnref.torch import MultiHeadAttention, MultiHeadParams, multi_head_attention

SHAPES = {
    "w_q": (5, 6, 4), "w_k": (5, 2, 4), "w_v": (5, 2, 3), "w_o": (6, 3, 5),
    "b_q": (6, 4), "b_k": (2, 4), "b_v": (2, 3), "b_o": (5,),
}  # fmt: skip
"""c = m = 5, n = 6, h = 2, d = 4, e = 3."""


def params(seed=0, names=SHAPES):
    generator = torch.Generator().manual_seed(seed)
    return MultiHeadParams(
        **{name: torch.randn(SHAPES[name], generator=generator) for name in names}
    )


X = torch.randn(2, 7, 5, generator=torch.Generator().manual_seed(9))


def test_it_is_the_function():
    module = MultiHeadAttention(params())
    want = multi_head_attention(params(), X, mask=causal(), scale=0.3)
    assert (module(X, mask=causal(), scale=0.3) == want).all()


def test_its_tensors_are_parameters_of_the_same_names():
    module = MultiHeadAttention(params())
    found = dict(module.named_parameters())
    assert {name: tuple(x.shape) for name, x in found.items()} == SHAPES
    assert all(getattr(module.params, name) is x for name, x in found.items())


def test_absent_biases_are_no_parameters():
    weights = ("w_q", "w_k", "w_v", "w_o")
    module = MultiHeadAttention(params(names=weights))
    assert set(module.state_dict()) == set(weights)
    assert module.params.b_q is None
    assert (module(X) == multi_head_attention(params(names=weights), X)).all()


def test_its_state_goes_out_and_in():
    source, target = MultiHeadAttention(params()), MultiHeadAttention(params(seed=1))
    assert (source(X) != target(X)).any()
    target.load_state_dict(source.state_dict())
    assert (source(X) == target(X)).all()


def test_a_gradient_reaches_every_parameter():
    module = MultiHeadAttention(params())
    module(X, mask=causal()).square().sum().backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None, name
        # A key's bias shifts a whole row of logits, which changes no weight.
        assert name == "b_k" or (parameter.grad != 0).any(), name


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_it_moves_between_dtypes(dtype):
    module = MultiHeadAttention(params()).to(dtype)
    assert module(X.to(dtype)).dtype == dtype

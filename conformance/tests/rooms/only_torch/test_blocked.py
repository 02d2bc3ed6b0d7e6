"""Autograd, `torch.func` and memory of blocked attention."""

import numpy as np
import torch
from torch.func import vmap
from torch.utils._python_dispatch import TorchDispatchMode

from attnref.spec import causal
from attnref.torch import attention_blocked, attention_blocked_vjp

from ..calls import draw

BLOCKS = {"block_q": 2, "block_k": 3}
SIZES = {"b": 1, "h": 1, "g": 2, "i": 3, "j": 4, "d": 2, "e": 2}


def tensors(**options):
    case = draw(sizes=SIZES, bias="nj", **options)
    return {name: torch.from_numpy(x) for name, x in case.inputs.items()}


def test_gradients_by_finite_differences():
    t = tensors()
    mask = torch.tensor(np.tri(3, 4, 1, dtype=bool))[None, None]

    def forward(q, k, v, bias):
        return attention_blocked(q, k, v, mask=mask, bias=bias, softcap=2.0, **BLOCKS)

    inputs = [t[x].requires_grad_() for x in ("q", "k", "v", "bias")]
    assert torch.autograd.gradcheck(forward, inputs)
    assert torch.autograd.gradgradcheck(forward, inputs)


def test_backward_gives_what_the_vjp_gives():
    t = tensors()
    options = {"mask": causal(1), "bias": t["bias"], **BLOCKS}
    want = attention_blocked_vjp(
        t["d_out"], t["q"], t["k"], t["v"], d_lse=t["d_lse"], **options
    )
    leaves = [t[x].requires_grad_() for x in ("q", "k", "v", "bias")]
    output, lse = attention_blocked(*leaves[:3], **options)
    torch.autograd.backward([output, lse], [t["d_out"], t["d_lse"]])
    for leaf, gradient in zip(leaves, want, strict=True):
        assert (leaf.grad == gradient).all()


def test_vmap_is_a_loop():
    t = tensors()
    qs = torch.stack([t["q"], 2 * t["q"], -t["q"]])

    def forward(q):
        return attention_blocked(q, t["k"], t["v"], mask=causal(), **BLOCKS)[0]

    torch.testing.assert_close(vmap(forward)(qs), torch.stack([*map(forward, qs)]))


class Largest(TorchDispatchMode):
    """Notes the size of the largest tensor that any operation makes."""

    elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for x in made if isinstance(made, tuple | list) else [made]:
            if torch.is_tensor(x):
                self.elements = max(self.elements, x.numel())
        return made


def test_no_tensor_is_larger_than_an_argument_or_a_tile():
    q = torch.randn(1, 2, 512, 8, requires_grad=True)
    with Largest() as largest:
        output, _ = attention_blocked(q, q, q, mask=causal(), block_q=32, block_k=64)
        output.sum().backward()
    assert largest.elements == q.numel()

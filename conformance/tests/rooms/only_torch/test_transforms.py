"""Autograd, `torch.func`, autocast and devices."""

import numpy as np
import pytest
import torch
from torch.func import grad, vjp, vmap

from attnref.spec import causal, padding
from attnref.torch import attention, attention_steps, attention_vjp

from ..calls import answered, assert_defined, change, draw

GRADIENTS = ("dq", "dk", "dv", "dbias")
MASK = np.random.default_rng(4).random((2, 15, 7, 11)) < 0.7


def case_and_tensors(dtype="F64", **options):
    case = draw(dtype, bias="nij", mask=MASK, **options)
    return case, {name: torch.from_numpy(x) for name, x in case.inputs.items()}


def by_vjp(t, **options):
    return attention_vjp(
        t["d_out"], t["q"], t["k"], t["v"], mask=t["mask"], bias=t["bias"],
        d_lse=t["d_lse"], **options,
    )  # fmt: skip


def test_backward_gives_what_attention_vjp_gives():
    _, t = case_and_tensors()
    leaves = [t[name].clone().requires_grad_() for name in ("q", "k", "v", "bias")]
    steps = attention_steps(*leaves[:3], mask=t["mask"], bias=leaves[3])
    torch.autograd.backward([steps.output, steps.lse], [t["d_out"], t["d_lse"]])
    for leaf, gradient in zip(leaves, by_vjp(t), strict=True):
        assert (leaf.grad == gradient).all()


def test_gradients_by_finite_differences():
    def forward(q, k, v, bias):
        steps = attention_steps(q, k, v, mask=mask, bias=bias, softcap=2.0)
        return steps.output, steps.lse

    sizes = {"b": 1, "h": 1, "g": 2, "i": 2, "j": 3, "d": 2, "e": 2}
    case = draw(sizes=sizes, bias="nj")
    mask = torch.tensor([[True, False, True], [True, True, True]])[None, None]
    inputs = [
        torch.from_numpy(case.inputs[x]).requires_grad_()
        for x in ("q", "k", "v", "bias")
    ]
    assert torch.autograd.gradcheck(forward, inputs)
    assert torch.autograd.gradgradcheck(forward, inputs)


def test_the_results_of_attention_vjp_are_plain_tensors():
    _, t = case_and_tensors()
    assert not any(gradient.requires_grad for gradient in by_vjp(t))


def test_func_vjp_and_grad():
    case, t = case_and_tensors()

    def forward(q, k, v, bias):
        steps = attention_steps(q, k, v, mask=t["mask"], bias=bias)
        return steps.output, steps.lse

    (output, lse), pull = vjp(forward, t["q"], t["k"], t["v"], t["bias"])
    gradients = pull((t["d_out"], t["d_lse"]))
    results = attention_steps(t["q"], t["k"], t["v"], mask=t["mask"], bias=t["bias"])
    results = results._asdict() | dict(zip(GRADIENTS, gradients, strict=True))
    results |= {"output": output, "lse": lse}
    assert_defined(case, {name: x.numpy() for name, x in results.items()})

    def loss(q):
        output, lse = forward(q, t["k"], t["v"], t["bias"])
        return (output * t["d_out"]).sum() + (lse * t["d_lse"]).sum()

    assert (grad(loss)(t["q"]) == gradients[0]).all()


@pytest.mark.parametrize("mask", [causal(), padding([3, 11])])
def test_vmap_over_another_axis(mask):
    case = draw(mask=answered(mask, MASK.shape))
    q, k, v = (torch.from_numpy(case.inputs[name]) for name in "qkv")
    qs = torch.stack([q, 2 * q, -q])
    mapped = vmap(lambda q: attention(q, k, v, mask=mask))(qs)
    for q, output in zip(qs, mapped, strict=True):
        assert_defined(change(case, q=q.numpy()), {"output": output.numpy()})


@pytest.mark.parametrize("dtype", ["F32", "F64"])
@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16])
def test_autocast_changes_nothing(dtype, low):
    _, t = case_and_tensors(dtype)
    want = attention_steps(t["q"], t["k"], t["v"], mask=t["mask"], bias=t["bias"])
    gradients = by_vjp(t)
    with torch.autocast("cpu", dtype=low):
        got = attention_steps(t["q"], t["k"], t["v"], mask=t["mask"], bias=t["bias"])
        again = by_vjp(t)
    for x, y in zip((*got, *again), (*want, *gradients), strict=True):
        assert x.dtype == y.dtype
        assert (x == y).all()


def test_autocast_does_not_reach_the_backward_pass():
    _, t = case_and_tensors("F32")
    leaves = [t[name].clone().requires_grad_() for name in "qkv"]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = attention(*leaves, mask=t["mask"], bias=t["bias"])
    output.backward(t["d_out"])
    want = attention_vjp(
        t["d_out"], t["q"], t["k"], t["v"], mask=t["mask"], bias=t["bias"]
    )
    for leaf, gradient in zip(leaves, want, strict=False):
        assert (leaf.grad == gradient).all()


DEVICES = ["cpu", "meta"] + ["cuda"] * torch.cuda.is_available()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("mask", [None, causal(1), padding([3, 11]), "array"])
def test_results_are_on_the_device_of_the_inputs(device, mask):
    _, t = case_and_tensors("F32")
    t = {name: tensor.to(device) for name, tensor in t.items()}
    mask = t["mask"] if mask == "array" else mask
    q, k, v, bias = (t[name] for name in ("q", "k", "v", "bias"))
    steps = attention_steps(q, k, v, mask=mask, bias=bias)
    gradients = attention_vjp(t["d_out"], q, k, v, mask=mask, bias=bias)
    assert {x.device.type for x in (*steps, *gradients)} == {device}


def test_non_contiguous_tensors_are_read_right():
    case = draw()
    strided = {
        name: torch.from_numpy(case.inputs[name]).transpose(1, 2).contiguous()
        for name in "qkv"
    }
    strided = {name: x.transpose(1, 2) for name, x in strided.items()}
    assert not any(x.is_contiguous() for x in strided.values())
    assert_defined(case, {"output": attention(**strided).numpy()})

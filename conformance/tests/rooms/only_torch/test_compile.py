"""`torch.compile(fullgraph=True)` takes every function as it is."""

from functools import partial

import numpy as np
import pytest
import torch

from attncheck.case import Case
from attncheck.frameworks import torch as adapter
from attncheck.subjects.attnref import room_subject
from attncheck.worker import run_case
from attnref.spec import causal, padding, segments, window
from attnref.torch import (
    MultiHeadAttention,
    MultiHeadParams,
    attention,
    attention_vjp,
    multi_head_attention,
)

from ..calls import draw, tolerance

SIZES = {"b": 2, "h": 2, "g": 3, "i": 5, "j": 7, "d": 4, "e": 8}

MASKS = {
    "none": None,
    "array": torch.ones(2, 1, 5, 7).tril().bool(),
    "causal": causal(2),
    "offset of each batch element": causal([0, 2]),
    "padding": padding(torch.tensor([3, 7])) & causal(),
    "padding of NumPy": padding(np.array([3, 7])),
    "window": ~window(1, None) | causal(),
    "segments": segments([[0, 0, 1, 1, 2]] * 2, [[0, 0, 1, 1, 1, 2, 2]] * 2),
    "callable": lambda b, n, i, j: (j <= i) | (n == 1),
}


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def tensors(case, *names):
    return [torch.from_numpy(case.inputs[name]) for name in names]


def within(case, name, got, want):
    """Both lie within the tolerance of the definition: together within two of them."""
    bound = 2 * torch.from_numpy(tolerance(case)[name])
    return bool((abs(got.double() - want.double()) <= bound).all())


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_attention_with_any_mask(mask):
    case = draw("F32", sizes=SIZES)
    q, k, v = tensors(case, "q", "k", "v")
    compiled = torch.compile(attention, fullgraph=True, backend="eager")
    assert (compiled(q, k, v, mask=mask) == attention(q, k, v, mask=mask)).all()


def test_two_scales_and_softcaps_make_two_right_results():
    case = draw("F32", sizes=SIZES)
    q, k, v = tensors(case, "q", "k", "v")
    compiled = torch.compile(attention, fullgraph=True, backend="eager")
    for numbers in ({"scale": 0.5}, {"scale": 0.25}, {"scale": -1, "softcap": 2.0},
                    {"scale": 0, "softcap": 3.0}, {}):  # fmt: skip
        assert (compiled(q, k, v, **numbers) == attention(q, k, v, **numbers)).all()


# Inductor's own imports use what torch deprecates.
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_everything_by_a_real_backend(backend):
    rng = np.random.default_rng(0)
    keep = rng.random((2, 6, 5, 7)) < 0.5
    mask = rng.random((2, 6, 5, 7)) < 0.7
    dropout = {"dropout_rate": 0.5, "dropout_keep": keep}
    case = draw("F32", sizes=SIZES, bias="nij", mask=mask, softcap=2.0, **dropout)
    q, k, v, mask, bias, keep = tensors(
        case, "q", "k", "v", "mask", "bias", "dropout_keep"
    )
    options = {"mask": mask, "bias": bias, "softcap": 2.0}
    options |= {"dropout_rate": 0.5, "dropout_keep": keep}
    compiled = torch.compile(attention, fullgraph=True, backend=backend)
    got = compiled(q, k, v, **options)
    assert within(case, "output", got, attention(q, k, v, **options))


@pytest.mark.parametrize("mask", [None, causal(1), padding([3, 7])])
def test_gradients(mask):
    case = draw("F32", sizes=SIZES, bias="nj")
    q, k, v, d_out, bias, d_lse = tensors(case, "q", "k", "v", "d_out", "bias", "d_lse")
    compiled = torch.compile(attention_vjp, fullgraph=True, backend="aot_eager")
    options = {"mask": mask, "bias": bias, "d_lse": d_lse}
    got = compiled(d_out, q, k, v, **options)
    for name, x, y in zip(
        ("dq", "dk", "dv", "dbias"),
        got,
        attention_vjp(d_out, q, k, v, **options),
        strict=True,
    ):
        assert within(case, name, x, y), name


def params(dtype=torch.float32):
    """c = m = 5, n = 6, h = 2, d = 4, e = 3."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(5, 6, 4), (5, 2, 4), (5, 2, 3), (6, 3, 5), (6, 4), (2, 4), (2, 3), (5,)]
    arrays = [torch.randn(shape, generator=generator) for shape in shapes]
    return MultiHeadParams(*(array.to(dtype) for array in arrays))


def test_multi_head_attention():
    x = torch.randn(2, 7, 5, generator=torch.Generator().manual_seed(1))
    compiled = torch.compile(multi_head_attention, fullgraph=True, backend="eager")
    want = multi_head_attention(params(), x, mask=causal())
    assert (compiled(params(), x, mask=causal()) == want).all()


def test_the_module():
    x = torch.randn(2, 7, 5, generator=torch.Generator().manual_seed(1))
    module = MultiHeadAttention(params())
    compiled = torch.compile(module, fullgraph=True, backend="eager")
    want = torch.autograd.grad(module(x, mask=causal()).sum(), module.w_q)[0]
    got = torch.autograd.grad(compiled(x, mask=causal()).sum(), module.w_q)[0]
    assert (got == want).all()


def test_wrong_input_is_refused_in_the_same_words():
    q = torch.ones(1, 2, 3, 4)
    compiled = torch.compile(attention, backend="eager")
    with pytest.raises(ValueError, match="for axes \\(i, j\\) write mask"):
        compiled(q, q, q, mask=torch.ones(3, 3, dtype=torch.bool))


# ------------------------------------------------------------- as the judge compiles


@pytest.fixture
def asked(monkeypatch):
    monkeypatch.setenv(adapter.COMPILE, "1")


@pytest.fixture
def without_cpp(monkeypatch):
    """Graphs are compiled, but to no C++."""
    through = partial(torch.compile, backend="aot_eager")
    monkeypatch.setattr(torch, "compile", through)


def test_the_judge_compiles_only_if_asked(monkeypatch):
    monkeypatch.delenv(adapter.COMPILE, raising=False)
    assert "ATTNCHECK_COMPILE=1" in adapter.no_compiler()


def test_a_missing_compiler_is_named(monkeypatch, asked):
    monkeypatch.setenv("CXX", "no-such-compiler -O2")
    assert adapter.no_compiler().endswith(
        "C++ compiler, and there is no no-such-compiler"
    )
    monkeypatch.setenv("CXX", "python3")
    assert adapter.no_compiler() is None


def is_compiled(x, *, shift=0):
    return x + shift + (1 if torch.compiler.is_compiling() else 0)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_what_the_judge_compiles_is_compiled(asked):
    if why := adapter.no_compiler():
        pytest.skip(f"not run: {why}")
    assert adapter.compiled(is_compiled)(torch.zeros(3), shift=1).tolist() == [2, 2, 2]


def test_every_shape_is_compiled(without_cpp):
    compiled = adapter.compiled(is_compiled)
    for size in range(1, 20):  # more than PyTorch compiles of one function by itself
        compiled = adapter.compiled(is_compiled)
        assert compiled(torch.zeros(size)).tolist() == [1] * size


def test_what_cannot_be_one_graph_is_not_taken_in_parts(without_cpp):
    def breaks(x):
        torch._dynamo.graph_break()
        return x + 1

    with pytest.raises(torch._dynamo.exc.Unsupported):
        adapter.compiled(breaks)(torch.zeros(3))


def test_a_compiler_that_is_switched_off_is_not_taken_for_one(without_cpp):
    with (
        torch._dynamo.config.patch(disable=True),
        pytest.raises(RuntimeError, match="no compiled frames"),
    ):
        adapter.compiled(is_compiled)(torch.zeros(3))


def test_the_judge_compiles_forward_and_gradients(asked, without_cpp, monkeypatch):
    monkeypatch.setenv("CXX", "python3")
    arrays = {n: np.ones((1, 1, 2, 3), np.float32) for n in ("q", "k", "v", "d_out")}
    case = Case(id="x", clauses=(), why="", dtype="F32", inputs=arrays, compiled=True)
    result = run_case(room_subject("torch"), case, {})
    assert result.status == "done", result.message
    assert {"output", "lse", "dq", "dk", "dv"} <= set(result.arrays)

"""The fused backends mean the spec, run one at a time, and refuse with reasons."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn.attention.bias import CausalBias

from attncheck.case import GRADIENTS
from attnref.spec import (
    block_local,
    causal,
    fixed,
    global_positions,
    listed_blocks,
    padding,
    prefix,
    segments,
    strided,
    window,
)
from attnref.torch import attention
from attnref.torch.sdpa import AUTO, BACKENDS, flash_attn, flex, kernels, sdpa, sdpa_ran
from attnref.torch.sdpa.call import Call, translate

from ..calls import answered, assert_defined, change, draw

# PyTorch says once a process that eager FlexAttention is not fused.
pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without")

SIZES = {"b": 2, "h": 2, "g": 3, "i": 5, "j": 7, "d": 4, "e": 8}
FULL = (2, 6, 5, 7)
RANDOM = np.random.default_rng(4).random(FULL) < 0.5

MASKS = {
    "none": None,
    "causal": causal(),
    "lower-right": causal(2),
    "in between": causal(1),
    "all": causal(6),
    "queries without keys": causal(-2),
    "nothing": causal(-9),
    "offset of each batch element": causal([0, 2]),
    "window": window(2, 1, 1),
    "padding": padding([3, 0]),
    "prefix": causal() | prefix([2, 4]),
    "segments": segments([[0, 0, 1, 1, 2]] * 2, [[0, 0, 1, 1, 1, 2, 2]] * 2),
    "strided": strided(3, [2, 0]),
    "fixed": fixed(3, 1, 2),
    "big bird": block_local(2)
    | listed_blocks([[2], [3], [-1]], 2)
    | global_positions([0]),
}
ON_CPU = ("math", "flash", "flex")

# Eager FlexAttention is traced anew for every shape and mask, which takes a second.
SOME = ("none", "in between", "queries without keys", "padding", "segments")
SOME += ("strided", "fixed", "big bird")


def of_each_backend(values, some):
    """(backend, value), of `flex` some values only."""
    return [(b, x) for b in ON_CPU for x in values if b != "flex" or x in some]


def tensors(case, *names):
    return [torch.from_numpy(case.inputs[name]) for name in names]


def results(case, backend, **options):
    """Output and log-sum-exp, where the backend has one, of a case's q, k and v."""
    has_lse = backend != "math"
    ran = sdpa_ran(*tensors(case, *"qkv"), backend=backend, lse=has_lse, **options)
    assert ran.backend == backend
    found = {"output": ran.output, "lse": ran.lse}
    return {name: x.numpy() for name, x in found.items() if x is not None}


def by_autograd(case, backend, **options):
    leaves = [x.requires_grad_() for x in tensors(case, *"qkv")]
    output = sdpa(*leaves, backend=backend, **options)
    (d_out,) = tensors(case, "d_out")
    found = torch.autograd.grad(output, leaves, d_out)
    return {name: x.numpy() for name, x in zip(GRADIENTS, found, strict=False)}


def of_spec(mask):
    return None if mask is None else answered(mask, FULL)


# ------------------------------------------------------------------- it means the spec


@pytest.mark.parametrize(("backend", "mask"), of_each_backend(MASKS, SOME))
def test_any_mask(backend, mask):
    mask = MASKS[mask]
    case = draw(sizes=SIZES, mask=of_spec(mask))
    assert_defined(case, results(case, backend, mask=mask))


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("backend", ["math", "flash"])
def test_the_gradients_under_any_mask(backend, mask):
    case = draw(sizes=SIZES, mask=of_spec(mask))
    case = change(case, d_lse=None)
    assert_defined(case, by_autograd(case, backend, mask=mask))


@pytest.mark.parametrize("mask", ["none", "queries without keys"])
@pytest.mark.parametrize(
    ("backend", "scale"), of_each_backend([0.3, 0.0, -0.7], [-0.7])
)
def test_any_scale_and_a_bias(backend, scale, mask):
    mask = MASKS[mask]
    case = draw(sizes=SIZES, bias="nj", mask=of_spec(mask), scale=scale)
    (bias,) = tensors(case, "bias")
    options = {"mask": mask, "bias": bias, "scale": scale}
    assert_defined(case, results(case, backend, **options))


SHAPES = (FULL, (2, 1, 1, 7), (1, 6, 5, 1), (1, 1, 1, 1))


@pytest.mark.parametrize(("backend", "shape"), of_each_backend(SHAPES, SHAPES[:1]))
def test_a_mask_that_is_an_array(backend, shape):
    mask = RANDOM[tuple(slice(size) for size in shape)]
    case = draw(sizes=SIZES, mask=mask)
    assert_defined(case, results(case, backend, mask=torch.from_numpy(mask)))


@pytest.mark.parametrize("backend", ON_CPU)
def test_a_mask_that_is_a_function(backend):
    def mask(b, n, i, j):
        return (j <= i) | (n == 1)

    grids = np.ogrid[tuple(map(slice, FULL))]
    full = np.broadcast_to(mask(*grids), FULL)
    case = draw(sizes=SIZES, mask=full)
    assert_defined(case, results(case, backend, mask=mask))


def test_softcap_is_what_flex_has():
    case = draw(sizes=SIZES, softcap=0.8, bias="nij", mask=of_spec(causal(1)))
    (bias,) = tensors(case, "bias")
    options = {"mask": causal(1), "bias": bias, "softcap": 0.8}
    assert_defined(case, results(case, "flex", **options))


@pytest.mark.parametrize(("d", "e"), [(3, 17), (16, 5), (1, 1)])
@pytest.mark.parametrize("backend", ["math", "flash"])
def test_keys_and_values_of_any_width(backend, d, e):
    case = change(draw(sizes=SIZES | {"d": d, "e": e}), d_lse=None)
    assert_defined(case, results(case, backend) | by_autograd(case, backend))


@pytest.mark.parametrize("what", ["q", "k", "v"])
@pytest.mark.parametrize("keys", [1, 3, 7, 15, 33])
@pytest.mark.parametrize("mask", [None, causal(99)])
def test_flash_hides_no_nan(what, keys, mask):
    case = draw("F32", sizes=SIZES | {"j": keys})
    array = case.inputs[what].copy()
    array[1, 1, -1] = np.nan
    output = results(change(case, **{what: array}), "flash", mask=mask)["output"]
    rows = np.isnan(output).any(axis=3)
    want = np.zeros(rows.shape, bool)
    want[1, slice(1, 2) if what == "q" else slice(3, 6)] = True
    want[..., : -1 if what == "q" else None] &= what != "q"
    assert (rows == want).all()


@pytest.mark.parametrize("backend", ["math", "flash"])
def test_nan_where_no_one_looks_reaches_nothing(backend):
    case = change(draw(sizes=SIZES, mask=of_spec(causal(-1))), d_lse=None)
    spoilt = {name: case.inputs[name].copy() for name in ("q", "k", "v", "d_out")}
    spoilt["k"][:, :, 4:], spoilt["v"][:, :, 4:] = np.nan, np.inf
    spoilt["q"][:, :, 0] = spoilt["d_out"][:, :, 0] = np.nan
    dirty = change(case, **spoilt)
    for mask in (causal(-1), torch.from_numpy(of_spec(causal(-1)))):
        found = results(dirty, backend, mask=mask)
        found |= by_autograd(dirty, backend, mask=mask)
        assert_defined(dirty, found, like=case)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("keys", [3, 16, 33])
def test_flash_shows_an_infinite_bias(keys, dtype):
    q, k, v = (torch.ones(1, 1, length, 8, dtype=dtype) for length in (2, keys, keys))
    bias = torch.zeros(1, 1, 2, keys, dtype=dtype)
    bias[..., 0, 1], bias[..., 1, 1] = torch.inf, -torch.inf
    rows = sdpa(q, k, v, bias=bias, backend="flash").isnan().all(dim=3)
    assert rows.flatten().tolist() == [True, False]


@pytest.mark.parametrize("axis", ["b", "i", "j"])
@pytest.mark.parametrize("backend", ON_CPU)
def test_an_empty_axis(backend, axis):
    case = draw(sizes=SIZES | {axis: 0})
    found = results(case, backend)
    assert found["output"].shape == tuple({**SIZES, "n": 6, axis: 0}[a] for a in "bnie")
    assert (found["output"] == 0).all()
    assert (found.get("lse", np.zeros(0)) == -np.inf).all() or backend == "math"


@pytest.mark.parametrize("backend", ["math", "flash"])
def test_no_keys_give_zero_gradients(backend):
    case = change(draw(sizes=SIZES | {"j": 0}), d_lse=None)
    assert all((x == 0).all() for x in by_autograd(case, backend).values())


@pytest.mark.parametrize("backend", ON_CPU)
def test_any_strides(backend):
    case = draw(sizes=SIZES)
    strided = [
        x.transpose(1, 3).contiguous().transpose(1, 3) for x in tensors(case, *"qkv")
    ]
    assert all(x.stride(3) != 1 for x in strided)
    assert_defined(case, {"output": sdpa(*strided, backend=backend).numpy()})


@pytest.mark.parametrize("backend", ON_CPU)
def test_autocast_changes_nothing(backend):
    q, k, v = tensors(draw("F32", sizes=SIZES), *"qkv")
    want = sdpa(q, k, v, backend=backend)
    with torch.autocast("cpu", torch.bfloat16):
        got = sdpa(q, k, v, backend=backend)
    assert got.dtype == torch.float32
    assert (got == want).all()


def test_wrong_input_is_refused_in_the_words_of_the_spec():
    q, k, v = tensors(draw(sizes=SIZES), *"qkv")
    with pytest.raises(ValueError, match="must have query/key width d = 4 like `q`"):
        sdpa(q, k[..., :2], v)
    with pytest.raises(TypeError, match="call it, as in mask=causal"):
        sdpa(q, k, v, mask=causal)
    with pytest.raises(ValueError, match="`backend` must be one of auto, math, flash"):
        sdpa(q, k, v, backend="fast")


# ------------------------------------------------------------------- forced, and chosen


@pytest.mark.parametrize("backend", ["math", "flash"])
def test_one_backend_is_allowed_and_no_other(backend, monkeypatch):
    allowed = []

    def recorded(*arrays, **options):
        names = ("math", "flash", "mem_efficient", "cudnn")
        flags = torch.backends.cuda
        allowed.append([n for n in names if getattr(flags, f"{n}_sdp_enabled")()])
        return original(*arrays, **options)

    original = kernels.scaled_dot_product_attention
    monkeypatch.setattr(kernels, "scaled_dot_product_attention", recorded)
    sdpa(*tensors(draw(sizes=SIZES), *"qkv"), backend=backend)
    assert allowed == [[backend]]


def test_auto_asks_in_its_order_and_says_which_ran():
    q, k, v = tensors(draw(sizes=SIZES), *"qkv")
    assert sdpa_ran(q, k, v).backend == "flash"
    assert sdpa_ran(q, k, v).refused == {}
    ran = sdpa_ran(q, k, v, softcap=2.0)
    assert ran.backend == "flex"
    assert tuple(ran.refused) == AUTO[:4]
    assert ran.refused["math"] == "scaled_dot_product_attention has no softcap"
    bias = torch.zeros(1, 1, 1, 7, dtype=q.dtype, requires_grad=True)
    assert sdpa_ran(q, k, v, bias=bias).backend == "math"


def test_where_none_can_every_reason_is_given():
    q, k, v = tensors(draw(sizes=SIZES), *"qkv")
    with pytest.raises(NotImplementedError) as error:
        sdpa(q.requires_grad_(), k, v, softcap=2.0)
    words = str(error.value)
    assert all(f"{name}: " in words for name in AUTO)
    assert "FlexAttention does not support backward on CPU" in words


REFUSALS = {
    "efficient": "PyTorch has it on CUDA, and the tensors are on cpu",
    "cudnn": "PyTorch has it on CUDA, and the tensors are on cpu",
    "flash-attn": "the package flash-attn is not installed",
}


@pytest.mark.parametrize("backend", REFUSALS)
def test_what_cannot_run_here_says_why(backend):
    if backend == "flash-attn" and flash_attn.find_spec("flash_attn"):
        pytest.skip("flash-attn is installed")
    with pytest.raises(NotImplementedError, match=f"^{backend}: {REFUSALS[backend]}$"):
        sdpa(*tensors(draw(sizes=SIZES), *"qkv"), backend=backend)


def test_what_a_backend_lacks_it_says():
    q, k, v, bias = tensors(draw(sizes=SIZES, bias="nij"), *"qkv", "bias")
    for lacks, options in (
        ("flash: .* no gradient of a bias", {"bias": bias.requires_grad_()}),
        ("flash: .* has no softcap", {"softcap": 2.0}),
    ):
        with pytest.raises(NotImplementedError, match=lacks):
            sdpa(q, k, v, backend="flash", **options)
    with pytest.raises(NotImplementedError, match=r"math: .* no log-sum-exp"):
        sdpa_ran(q, k, v, backend="math", lse=True)
    with torch.no_grad():  # then there is no gradient to give
        sdpa(q, k, v, bias=bias, backend="flash")


@pytest.mark.parametrize("name", kernels.QUESTIONS)
def test_the_reasons_on_cuda_are_pytorchs_own(name):
    q = torch.zeros(1, 2, 3, 8)  # which no CUDA kernel takes: it is not on CUDA
    with pytest.raises(NotImplementedError) as error:
        kernels._ask(name, q, q, q, None, False)
    assert "Triggered internally" not in str(error.value)
    assert len(str(error.value)) > 10


def test_no_compiler_is_a_reason(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    q = torch.zeros(1, 2, 3, 8)
    with pytest.raises(NotImplementedError, match="there is no no-such-compiler"):
        sdpa(q, q, q, backend="flex-compiled")


# ---------------------------------------------- what is called where there is no device


def on_cuda(call: Call) -> Call:
    """The call with stand-ins for tensors on CUDA: shapes, and where they are."""
    device = SimpleNamespace(type="cuda")
    q, k = (
        SimpleNamespace(
            shape=x.shape,
            device=device,
            is_cuda=True,
            is_cpu=False,
            dtype=torch.float16,
        )
        for x in (call.q, call.k)
    )
    return call._replace(q=q, k=k)


def translated(mask, i=5, j=7):
    q, k = torch.zeros(1, 2, i, 8), torch.zeros(1, 2, j, 8)
    options = {"bias": None, "scale": None, "softcap": None, "lse": False}
    return translate(q, k, k, mask=mask, **options)


@pytest.mark.parametrize("name", ["flash", "efficient"])
def test_on_cuda_lower_right_is_pytorchs_own(name):
    mask, is_causal = kernels._mask(name, on_cuda(translated(causal(2))))
    assert isinstance(mask, CausalBias)
    assert not is_causal
    assert (mask._materialize() == torch.ones(5, 7).tril(2)).all()


def test_upper_left_with_more_keys_is_a_square():
    call = translated(causal())
    assert (call.q.shape[2], call.k.shape[2], call.diagonal) == (5, 5, 0)
    assert kernels._mask("flash", on_cuda(call)) == (None, True)


def test_the_last_query_of_a_cache_needs_no_mask():
    call = translated(causal(6), i=1)
    assert kernels._mask("cudnn", on_cuda(call)) == (None, False)


def fake_flash_attn_func(
    q, k, v, *, softmax_scale, causal, window_size, softcap, return_attn_probs
):
    """flash-attn as its README describes it: `b i n d`, aligned to the lower right."""
    assert softmax_scale > 0
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    offset = k.shape[2] - q.shape[2]
    left, right = (None if end < 0 else end for end in window_size)
    mask = window(left, 0 if causal else right, offset)
    output = attention(q, k, v, mask=mask, scale=softmax_scale, softcap=softcap or None)
    output = output.transpose(1, 2)
    return (output, None, None) if return_attn_probs else output


@pytest.mark.parametrize(
    "mask", [None, causal(), causal(2), causal(-2), window(3, 1, 2)]
)
@pytest.mark.parametrize("options", [{}, {"scale": -0.4}, {"softcap": 1.5}])
def test_calls_of_flash_attn(mask, options, monkeypatch):
    package = SimpleNamespace(flash_attn_func=fake_flash_attn_func)
    monkeypatch.setitem(sys.modules, "flash_attn", package)
    monkeypatch.setattr(flash_attn, "why_not", lambda name, call: None)
    q, k, v = tensors(draw(sizes=SIZES), *"qkv")
    got = sdpa(q, k, v, mask=mask, **options, backend="flash-attn")
    want = attention(q, k, v, mask=mask, **options)
    assert torch.allclose(got, want, rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    ("mask", "of_half", "why"),
    [
        (padding([3, 4]), True, "no mask but causal ones and windows"),
        (window(2, 0), True, "no mask but causal ones and windows"),
        (None, False, "bfloat16 and float16, not float64"),
    ],
)
def test_what_flash_attn_cannot_do(mask, of_half, why, monkeypatch):
    monkeypatch.setattr(flash_attn, "find_spec", lambda name: name)
    monkeypatch.setattr(flash_attn, "CUDA", ("cpu",))
    q, k, v = tensors(draw(sizes=SIZES | {"e": 4}), *"qkv")
    q, k, v = (x.half() for x in (q, k, v)) if of_half else (q, k, v)
    with pytest.raises(NotImplementedError, match=why):
        sdpa(q, k, v, mask=mask, backend="flash-attn")


def test_block_masks_of_plain_predicates_are_kept():
    first, again = (flex.block_mask(translated(causal(1))) for _ in range(2))
    assert first is again
    lengths = torch.tensor([3])
    changing = [flex.block_mask(translated(padding(lengths))) for _ in range(2)]
    assert changing[0] is not changing[1]


def test_every_backend_is_known_by_name():
    names = (
        "math",
        "flash",
        "efficient",
        "cudnn",
        "flex",
        "flex-compiled",
        "flash-attn",
    )
    assert names == BACKENDS


# ------------------------------------------------------------------------- transformed


@pytest.mark.parametrize("mask", [None, causal(1), padding([3, 0])])
@pytest.mark.parametrize("backend", ["math", "flash"])
def test_torch_compile_takes_it_as_one_graph(backend, mask):
    torch.compiler.reset()
    q, k, v = tensors(draw("F32", sizes=SIZES), *"qkv")
    compiled = torch.compile(sdpa, fullgraph=True, backend="eager")
    want = sdpa(q, k, v, mask=mask, backend=backend)
    assert (compiled(q, k, v, mask=mask, backend=backend) == want).all()


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("backend", ["math", "flash"])
def test_vmap_over_another_axis(backend):
    q, k, v = tensors(draw("F32", sizes=SIZES), *"qkv")
    qs = torch.stack([q, 2 * q, -q])
    options = {"mask": causal(1), "backend": backend}
    mapped = torch.func.vmap(lambda q: sdpa(q, k, v, **options))(qs)
    for one, output in zip(qs, mapped, strict=True):
        assert torch.allclose(output, sdpa(one, k, v, **options), rtol=0, atol=1e-6)

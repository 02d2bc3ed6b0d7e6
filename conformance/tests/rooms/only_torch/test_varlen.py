"""Packed sequences: what is handed to PyTorch's kernel, and what comes of it.

The kernel is on CUDA; here one stands in for it that does what its documentation says.
"""

import sys

import pytest
import torch

from attnref.spec import causal, padding, window
from attnref.torch import attention
from attnref.torch.sdpa import varlen

MODULE = sys.modules["attnref.torch.sdpa.varlen"]

Q, K = [3, 0, 4, 2], [5, 2, 4, 0]
CORNERS = [j - i for i, j in zip(Q, K, strict=True)]


def drawn(e=6):
    generator = torch.Generator().manual_seed(0)
    shapes = ((sum(Q), 4, 6), (sum(K), 2, 6), (sum(K), 2, e))
    return [
        torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes
    ]


def each(x, lengths):
    """Every sequence alone, `1 n i d`."""
    return [part.transpose(0, 1)[None] for part in x.split(lengths)]


def expected(q, k, v, mask, **options):
    masks = [mask(corner) if mask else None for corner in CORNERS]
    parts = zip(each(q, Q), each(k, K), each(v, K), masks, strict=True)
    found = [attention(q, k, v, mask=mask, **options) for q, k, v, mask in parts]
    return torch.cat([x[0].transpose(0, 1) for x in found])


def documented(
    query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, *, scale=None,
    window_size=(-1, -1), enable_gqa=False,
):  # fmt: skip
    """`varlen_attn` by its documentation; what it leaves open is NaN.

    That is the output of a query without a key.
    """
    assert scale > 0
    assert query.shape[-1] == value.shape[-1]
    assert enable_gqa == (query.shape[1] != key.shape[1])
    assert cu_seq_q.dtype == cu_seq_k.dtype == torch.int32
    lengths = [cu.diff().tolist() for cu in (cu_seq_q, cu_seq_k)]
    assert [max_q, max_k] == [max(x) for x in lengths]
    left, right = (None if end < 0 else end for end in window_size)
    found = []
    for q, k, v in zip(
        each(query, lengths[0]),
        each(key, lengths[1]),
        each(value, lengths[1]),
        strict=True,
    ):
        mask = window(left, right, k.shape[2] - q.shape[2])
        output = attention(q, k, v, mask=mask, scale=scale)
        seen = attention(q, k, torch.ones_like(v), mask=mask, scale=scale)
        found.append(torch.where(seen == 0, torch.nan, output)[0].transpose(0, 1))
    return torch.cat(found)


def without_flag(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, *, scale=None,
                 window_size=(-1, -1)):  # fmt: skip
    """The same as it was before it had a flag for grouped heads."""
    arrays = (query, key, value, cu_seq_q, cu_seq_k, max_q, max_k)
    grouped = query.shape[1] != key.shape[1]
    options = {"scale": scale, "window_size": window_size, "enable_gqa": grouped}
    return documented(*arrays, **options)


@pytest.fixture(params=[documented, without_flag])
def kernel(request, monkeypatch):
    monkeypatch.setattr(MODULE, "_kernel", lambda q: request.param)
    monkeypatch.setattr(MODULE, "varlen_attn", lambda: request.param)


LENGTHS = {"q_lengths": Q, "k_lengths": K}


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("e", [6, 3, 9])
@pytest.mark.parametrize("scale", [None, 0.0, -0.4])
@pytest.mark.parametrize("mask", [None, causal, lambda offset: window(1, 1, offset)])
def test_every_sequence_attends_to_itself(mask, scale, e):
    q, k, v = drawn(e)
    packed = None if mask is None else mask(CORNERS)
    got = varlen(q, k, v, **LENGTHS, mask=packed, scale=scale)
    want = expected(q, k, v, mask, scale=scale)
    assert torch.allclose(got, want, rtol=0, atol=1e-13)


@pytest.mark.usefixtures("kernel")
def test_lengths_may_be_tensors():
    q, k, v = drawn()
    given = {name: torch.tensor(lengths) for name, lengths in LENGTHS.items()}
    got = varlen(q, k, v, **given, mask=causal(torch.tensor(CORNERS)))
    assert torch.allclose(got, expected(q, k, v, causal), rtol=0, atol=1e-13)


@pytest.mark.usefixtures("kernel")
def test_nan_where_no_one_looks_reaches_nothing():
    q, k, v = drawn()
    want = varlen(q, k, v, **LENGTHS, mask=window(0, 0, CORNERS))
    q[-2:] = torch.nan  # the last sequence has no keys
    k[0] = v[5:7] = torch.nan  # before the first window; of no query
    got = varlen(q, k, v, **LENGTHS, mask=window(0, 0, CORNERS))
    assert (got == want).all()


@pytest.mark.usefixtures("kernel")
def test_gradients_flow():
    arrays = [x.requires_grad_() for x in drawn()]
    weights = torch.randn(sum(Q), 4, 6, dtype=torch.float64)
    masked = {"mask": causal(CORNERS)}
    got = torch.autograd.grad(
        (varlen(*arrays, **LENGTHS, **masked) * weights).sum(), arrays
    )
    want = torch.autograd.grad((expected(*arrays, causal) * weights).sum(), arrays)
    for x, y in zip(got, want, strict=True):
        assert torch.allclose(x, y, rtol=0, atol=1e-12)


def test_on_a_cpu_it_is_refused():
    with pytest.raises(NotImplementedError, match="has a CUDA kernel, and the tensors"):
        varlen(*drawn(), **LENGTHS)


@pytest.mark.parametrize(
    ("mask", "why"),
    [
        (causal(), r"the offsets must be \[2, 2, 0, -2\], but are \[0, 0, 0, 0\]"),
        (causal([2, 2, 0, 0]), r"but are \[2, 2, 0, 0\]"),
        (padding([1, 1, 1, 1]), "causal masks and windows only"),
    ],
)
def test_masks_that_the_kernel_lacks_are_refused(mask, why):
    with pytest.raises(NotImplementedError, match=why):
        varlen(*drawn(), **LENGTHS, mask=mask)


def test_lengths_that_do_not_fit_are_an_error():
    with pytest.raises(
        ValueError, match="`k_lengths` must be at least 0 and add up to"
    ):
        varlen(*drawn(), q_lengths=Q, k_lengths=[5, 2, 4, 1])
    with pytest.raises(ValueError, match="as many sequences"):
        varlen(*drawn(), q_lengths=Q, k_lengths=[5, 6])
    with pytest.raises(ValueError, match="`scale` must be finite"):
        varlen(*drawn(), **LENGTHS, scale=float("nan"))


def test_pytorchs_own_takes_what_is_handed_to_it():
    assert MODULE.varlen_attn().__name__ == "varlen_attn"
    assert MODULE._grouped(True) in ({"enable_gqa": True}, {})

"""Mistakes that look like rounding are found, in the results that they reach.

One kernel, written out: online softmax over tiles of keys in float32, weights and
gradients of logits rounded to storage before their products.  Every fault is one line
of it.  What a fault does not reach must pass: that is the blame.
"""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from attncheck.budget import PROFILES, derive, interval, is_void, output_dtype, split
from attncheck.case import DTYPES, Case
from attncheck.definition import expected

TILE = 32


def kept(x, dtype):
    """float32 numbers rounded to `dtype`."""
    return x.astype(dtype).astype(np.float32)


def cut(x, dtype):
    """Rounded toward zero instead."""
    nearest = x.astype(dtype)
    smaller = np.nextafter(nearest, dtype.type(0))
    return np.where(np.abs(kept(x, dtype)) > np.abs(x), smaller, nearest).astype(
        np.float32
    )


def flash(case, fault=None):
    """Every result of one head in its own type; the keys are visited tile by tile."""
    storage, scale = DTYPES[case.dtype], np.float32(case.scale_value)
    arrays = {n: a[0, 0] for n, a in case.inputs.items()}
    q, k, v, d_out = (arrays[n].astype(np.float32) for n in ("q", "k", "v", "d_out"))
    mask = np.broadcast_to(arrays.get("mask", np.array(True)), (len(q), len(k)))
    fill = np.float32(-1e4 if fault == "finite mask" else -np.inf)
    logits = np.where(mask, q @ k.T * scale, fill)
    tiles = [np.s_[j : j + TILE] for j in range(0, len(k), TILE)]

    top = np.full((len(q), 1), -np.inf, np.float32)
    total, out = np.zeros_like(top), np.zeros_like(d_out)
    for tile in tiles:
        new = np.maximum(top, logits[:, tile].max(axis=-1, keepdims=True))
        safe = np.where(new == -np.inf, np.float32(0), new)
        p, rescale = np.exp(logits[:, tile] - safe), np.exp(top - safe)
        used = kept(p, storage)
        if fault == "truncated weights":
            p = used = cut(p, storage)
        total = total * rescale + p.sum(axis=-1, keepdims=True)
        out = out * rescale + used @ v[tile]
        if fault == "output accumulated in storage":
            out = kept(out, storage)
        top = new
    out, lse = out / total, top + np.log(total)

    p, stored = np.exp(logits - lse), kept(out, storage)
    mean = (d_out * stored).sum(axis=-1, keepdims=True)
    dp = d_out @ v.T
    if fault == "dP rounded":
        dp = kept(dp, storage)
    ds = kept(p * (dp - mean), storage)
    dq = np.zeros_like(q)
    for tile in tiles:
        dq = dq + ds[:, tile] @ k[tile]
        if fault == "dq accumulated in storage":
            dq = kept(dq, storage)
    got = {"output": out, "lse": lse[:, 0], "dq": dq * scale}
    got |= {"dk": ds.T @ q * scale, "dv": kept(p, storage).T @ d_out}
    return {n: a[None, None].astype(output_dtype(case, n)) for n, a in got.items()}


def make_case(dtype="BF16", *, i=16, j=2048, d=64, seed=0, values=0.0, noise=1.0):
    rng = np.random.default_rng(seed)
    arrays = {
        "q": noise * rng.standard_normal((1, 1, i, d)),
        "k": rng.standard_normal((1, 1, j, d)),
        "v": values + rng.standard_normal((1, 1, j, d)),
        "d_out": values + rng.standard_normal((1, 1, i, d)),
    }
    arrays = {n: a.astype(DTYPES[dtype]) for n, a in arrays.items()}
    return Case(id="long", clauses=(), why="", dtype=dtype, inputs=arrays)


def far_below_zero(dtype):
    """Live scores of −25600; those of the masked keys are 0."""
    case = make_case(dtype, i=4, j=40, d=8)
    q, k = np.zeros((1, 1, 4, 8)), np.zeros((1, 1, 40, 8))
    q[..., 0], k[..., :20, 0] = 160, -160
    arrays = {"q": q.astype(DTYPES[dtype]), "k": k.astype(DTYPES[dtype])}
    arrays["mask"] = (np.arange(40) < 20)[None, None, None]
    return replace(case, inputs=case.inputs | arrays, scale=1.0)


def failures(case, got, profile="tensor-core"):
    """The results that have an element outside its interval."""
    want = expected(case)
    budget = derive(case, want, PROFILES[profile])
    assert is_void(case, want, budget.bounds) is None
    found = set()
    for name, value in got.items():
        reference, bound = getattr(want, name), budget.bounds[name]
        low, high = interval(reference, bound, output_dtype(case, name))
        wide = value.astype(np.float64)
        if not ((low <= wide) & (wide <= high)).all():
            found.add(name)
    return found


CASES = {
    "output accumulated in storage": lambda: make_case(),
    "truncated weights": lambda: make_case(j=512),
    "dP rounded": lambda: make_case("F16", j=160, values=8.0, i=40),
    "dq accumulated in storage": lambda: make_case(),
    "finite mask": lambda: far_below_zero("BF16"),
}
REACHES = {
    "output accumulated in storage": {"output"},
    "truncated weights": {"lse"},
    "dP rounded": {"dq", "dk"},
    "dq accumulated in storage": {"dq"},
    "finite mask": {"output", "lse", "dk", "dv"},
}
SPARES = {
    "output accumulated in storage": {"lse", "dq", "dk", "dv"},
    # The bias of its weights cancels in the division by their sum.
    "truncated weights": {"output", "dq", "dk"},
    "dP rounded": {"output", "lse", "dv"},
    "dq accumulated in storage": {"output", "lse", "dk", "dv"},
    "finite mask": set(),
}


@pytest.mark.parametrize("fault", CASES)
def test_the_correct_kernel_passes_where_the_fault_is_looked_for(fault):
    case = CASES[fault]()
    assert not failures(case, flash(case))


@pytest.mark.parametrize("fault", CASES)
def test_a_fault_fails_what_it_reaches_and_nothing_else(fault):
    case = CASES[fault]()
    found = failures(case, flash(case, fault))
    assert REACHES[fault] <= found
    assert not SPARES[fault] & found


def test_rounded_dp_is_forgiven_where_it_is_declared():
    case = CASES["dP rounded"]()
    assert not failures(case, flash(case, "dP rounded"), "tensor-core+dP")


def test_dropping_the_digits_of_weights_is_cutting():
    x = np.array([1.0, 1.99999, 1e-3, 0.0, 1 + 2**-8 + 2**-9], np.float32)
    bits = (x.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    assert np.array_equal(cut(x, np.dtype(ml_dtypes.bfloat16)), bits)


# -------------------------------------------------------------------------- split

LEADS = {"output": "weights", "lse": "elementwise", "dq": "dS", "dv": "weights"}


@pytest.mark.parametrize("name", LEADS)
def test_shares_of_a_bound_add_up_and_the_largest_leads(name):
    case = make_case(j=160, i=40)
    index = (0, 0, 3, 1)[: 3 if name == "lse" else 4]
    shares = split(case, expected(case), PROFILES["tensor-core"], name, index)
    assert sum(shares.values()) == pytest.approx(1)
    assert list(shares.values()) == sorted(shares.values(), reverse=True)
    assert next(iter(shares)) == LEADS[name]


def test_what_a_profile_keeps_in_the_accumulator_has_no_share():
    case = make_case(j=160, i=40)
    for profile, rounded in {
        "strict": set(),
        "tensor-core": {"weights", "dS"},
        "tensor-core+dP": {"weights", "dS", "dP"},
    }.items():
        shares = split(case, expected(case), PROFILES[profile], "dq", (0, 0, 0, 0))
        assert set(shares) & {"weights", "dS", "dP"} == rounded


def test_an_exact_result_has_only_its_own_rounding():
    case = far_below_zero("F32")
    shares = split(case, expected(case), PROFILES["strict"], "dv", (0, 0, 39, 0))
    assert shares == {"output rounding": 1.0}

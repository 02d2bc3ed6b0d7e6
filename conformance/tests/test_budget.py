"""The budget holds for legal implementations, and does not for wrong ones.

The implementations are written here, in plain NumPy: small kernels with one accumulator
type, every intermediate of which can be rounded as a profile allows, or broken.
"""

import os
from dataclasses import dataclass, replace
from itertools import pairwise

import ml_dtypes
import numpy as np
import pytest

from attncheck.budget import (
    PROFILES,
    Profile,
    budget,
    half_ulp,
    interval,
    is_void,
    nearest,
    output_dtype,
)
from attncheck.case import DTYPES, Case
from attncheck.definition import expected

BF16 = np.dtype(ml_dtypes.bfloat16)

# ---------------------------------------------------------------- implementations


def product(a, b):
    """a bᵀ over the last axis of both, by BLAS."""
    return a @ b.T


def sequential(a, b):
    """The same, one term after the other."""
    total = np.zeros((a.shape[0], b.shape[0]), a.dtype)
    for term in range(a.shape[1]):
        total = total + a[:, term, None] * b[None, :, term]
    return total


def tf32(a, b):
    """The same, with both operands rounded to 11 significant bits."""
    return product(*(nearest_tf32(x) for x in (a, b)))


def nearest_tf32(x):
    fraction, exponent = np.frexp(x.astype(np.float64))
    return np.ldexp(np.rint(np.ldexp(fraction, 11)), exponent - 11).astype(np.float32)


@dataclass(frozen=True)
class Kernel:
    """One head's forward and backward in the accumulator's type.

    `stored` names what is rounded to the storage type, as in `Profile`; `tile` keys at
    a time with base-2 exponentials and a running maximum, or all at once; `split`
    merges two halves of the keys by their log-sum-exp.
    """

    dot: object = product
    tile: int | None = None
    split: bool = False
    stored: frozenset = frozenset()
    rowsum: bool = False
    """Whether D is the sum of weights times their gradients."""
    normalised: bool = False
    """Whether weights are divided by the row sum before they meet the values."""
    flush: bool = False
    scale_factor: float = 1.0
    gain: float = 1.0
    narrow: np.dtype | None = None
    """A fault: the type that the logits are rounded to."""

    def keep(self, x, name, dtype):
        """`x` as it is kept: flushed, and rounded to storage if `name` is."""
        if name in self.stored:
            x = x.astype(dtype).astype(x.dtype)
        if self.flush:
            x = np.where(np.abs(x) < np.finfo(x.dtype).smallest_normal, 0, x)
        return x.astype(x.dtype)

    def row_sum(self, p):
        """Σ over the keys, summed like products; but no operand is rounded for it."""
        dot = product if self.dot is tf32 else self.dot
        return dot(p, np.ones((1, p.shape[1]), p.dtype))


@dataclass
class Head:
    """The arrays of one head, in the accumulator's type."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    mask: np.ndarray
    kept: np.ndarray
    d_out: np.ndarray
    d_lse: np.ndarray
    bias: np.ndarray | None
    scale: float
    cap: float | None
    storage: np.dtype


def logits_of(kernel, head):
    """Raw scores, tanh and logits; blocked logits are −∞."""
    acc = head.q.dtype.type
    raw = kernel.keep(kernel.dot(head.q, head.k), "scores", head.storage)
    x = kernel.keep(raw * acc(head.scale), "scores", head.storage)
    tanh = np.zeros_like(x)
    if head.cap is not None:
        x = kernel.keep(x / acc(head.cap), "scores", head.storage)
        tanh = kernel.keep(np.tanh(x), "scores", head.storage)
        x = kernel.keep(tanh * acc(head.cap), "scores", head.storage)
    if head.bias is not None:
        x = kernel.keep(x + head.bias, "scores", head.storage)
    if kernel.narrow is not None:
        x = x.astype(kernel.narrow).astype(acc)
    return raw, tanh, np.where(head.mask, x, acc(-np.inf))


def attend_all(kernel, head, logits):
    """Softmax over all keys at once; output before its rounding, and log-sum-exp."""
    acc = logits.dtype.type
    top = logits.max(axis=-1, keepdims=True, initial=-np.inf)
    empty = top == -np.inf
    top = np.where(empty, acc(0), top)
    p = np.exp(logits - top)
    total = kernel.row_sum(p)
    total = np.where(empty, acc(1), total)
    used = p / total if kernel.normalised else p
    used = kernel.keep(used, "weights", head.storage) * head.kept
    if "scores" in kernel.stored:
        used = kernel.keep(used, "weights", head.storage)
    out = kernel.dot(used, head.v.T)
    out = out if kernel.normalised else out / total
    return out, np.where(empty, acc(-np.inf), top + np.log(total))[:, 0], p / total


def attend_tiles(kernel, head, logits):
    """Online softmax: exp2, log2(e) folded in, normalised after the product with V."""
    acc = logits.dtype.type
    log2e = acc(np.log2(np.e))
    rows = logits.shape[0]
    top, total = np.full((rows, 1), -np.inf, acc), np.zeros((rows, 1), acc)
    out = np.zeros((rows, head.v.shape[1]), acc)
    for j in range(0, logits.shape[1], kernel.tile):
        tile = np.s_[:, j : j + kernel.tile]
        new = np.maximum(top, logits[tile].max(axis=-1, keepdims=True))
        safe = np.where(new == -np.inf, acc(0), new)
        rescale = np.exp2((top - safe) * log2e)
        p = np.exp2(logits[tile] * log2e - safe * log2e)
        total = total * rescale + p.sum(axis=-1, keepdims=True, dtype=acc)
        used = kernel.keep(p * head.kept[tile], "weights", head.storage)
        out = out * rescale + kernel.dot(used, head.v[tile[1]].T)
        top = new
    empty = top == -np.inf
    total = np.where(empty, acc(1), total)
    ln2 = acc(np.log(2))
    lse = np.where(empty, -np.inf, top + np.log2(total) * ln2).astype(acc)
    safe = np.where(empty, acc(0), top)
    return out / total, lse[:, 0], np.exp(logits - safe) / total


def attend_split(kernel, head, logits):
    """Two halves of the keys, merged by log-sum-exp."""
    middle = logits.shape[1] // 2
    parts = []
    for part in (np.s_[:, :middle], np.s_[:, middle:]):
        half = replace_head(head, v=head.v[part[1]], kept=head.kept[part])
        parts.append(attend_all(replace(kernel, split=False), half, logits[part]))
    logsums = np.stack([lse for _, lse, _ in parts], axis=1)
    top = logsums.max(axis=1, keepdims=True)
    top = np.where(top == -np.inf, logits.dtype.type(0), top)
    share = np.exp(logsums - top)
    total = share.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = (top + np.log(total))[:, 0]
    share = share / np.where(total == 0, 1, total)
    out = sum(share[:, n, None] * o for n, (o, _, _) in enumerate(parts))
    p = np.concatenate([share[:, n, None] * w for n, (*_, w) in enumerate(parts)], 1)
    return out, lse, p


def replace_head(head, **changes):
    return Head(**(vars(head) | changes))


def forward(kernel, head):
    raw, tanh, logits = logits_of(kernel, head)
    attend = attend_split if kernel.split else attend_all
    attend = attend_tiles if kernel.tile else attend
    with np.errstate(under="ignore"):
        out, lse, weights = attend(kernel, head, logits)
    out = (out * out.dtype.type(kernel.gain)).astype(head.storage)
    return raw, tanh, logits, weights, out, lse


def backward(kernel, head, tanh, logits, out, lse):
    """Weights from the saved log-sum-exp, D from the stored output or a row sum."""
    acc = head.q.dtype.type
    safe = np.where(lse == -np.inf, acc(0), lse)[:, None]
    live = logits > -np.inf
    p = np.exp(logits - safe)
    if "scores" in kernel.stored:
        # Unfused code goes back through the weights that it stored.
        p = kernel.keep(p, "weights", head.storage)
    dp = kernel.keep(kernel.dot(head.d_out, head.v), "d_weights", head.storage)
    dp = kernel.keep(dp * head.kept, "d_weights", head.storage)
    dp = np.where(live, dp, acc(0))
    if kernel.rowsum:
        mean = (p * dp).sum(axis=-1, keepdims=True, dtype=acc)
    else:
        mean = kernel.dot(head.d_out, out.astype(acc)).diagonal()[:, None]
    ds = np.where(live, p * ((dp - mean) + head.d_lse[:, None]), acc(0))
    ds = kernel.keep(ds, "scores", head.storage)
    dx = ds if head.cap is None else ds * (1 - tanh * tanh)
    dx = kernel.keep(dx * acc(head.scale), "d_logits", head.storage)
    used = kernel.keep(p * head.kept, "weights", head.storage)
    dbias = kernel.keep(ds, "d_logits", head.storage)
    dq, dk = kernel.dot(dx, head.k.T), kernel.dot(dx.T, head.q.T)
    return dq, dk, kernel.dot(used.T, head.d_out.T), dbias


def heads_of(case, kernel):
    """(index, head) for every head of the case."""
    acc, shape = case.accumulation, [case.sizes[a] for a in "bnij"]

    def full(name, default):
        array = case.inputs.get(name, np.full((1, 1, 1, 1), default))
        return np.broadcast_to(array, shape)

    def cast(array):
        return kernel.keep(array.astype(acc), "", acc)

    factor = full("dropout_keep", True) / (1 - case.dropout_rate)
    d_lse = case.inputs.get("d_lse", np.zeros(shape[:3]))
    for b, n in np.ndindex(*shape[:2]):
        h = n // case.sizes["g"]
        yield (
            (b, n, h),
            Head(
                q=cast(case.inputs["q"][b, n]),
                k=cast(case.inputs["k"][b, h]),
                v=cast(case.inputs["v"][b, h]),
                mask=full("mask", True)[b, n],
                kept=factor[b, n].astype(acc),
                d_out=cast(case.inputs["d_out"][b, n]),
                d_lse=d_lse[b, n].astype(acc),
                bias=cast(full("bias", 0.0)[b, n]) if "bias" in case.inputs else None,
                scale=case.scale_value * kernel.scale_factor,
                cap=case.softcap,
                storage=DTYPES[case.dtype],
            ),
        )


def run(case, kernel):
    """Every result of the case, in its own type, as float64 arrays."""
    sizes, acc = case.sizes, case.accumulation

    def zeros(axes):
        return np.zeros([sizes[a] for a in axes], acc)

    got = {n: zeros("bnij") for n in ("scores", "logits", "masked", "weights")}
    got |= {"output": zeros("bnie"), "lse": zeros("bni"), "dq": zeros("bnid")}
    got |= {"dk": zeros("bhjd"), "dv": zeros("bhje"), "dbias": zeros("bnij")}
    for (b, n, h), head in heads_of(case, kernel):
        raw, tanh, logits, weights, out, lse = forward(kernel, head)
        dq, dk, dv, dbias = backward(kernel, head, tanh, logits, out, lse)
        steps = {"scores": raw, "logits": logits, "masked": logits, "weights": weights}
        steps |= {"output": out, "lse": lse, "dq": dq, "dbias": dbias}
        for name, value in steps.items():
            got[name][b, n] = value
        for name, value in {"dk": dk, "dv": dv}.items():
            eager = "scores" in kernel.stored and sizes["g"] > 1
            stored = value.astype(head.storage).astype(acc) if eager else value
            got[name][b, h] += stored
    if "bias" in case.inputs:
        shape = case.inputs["bias"].shape
        axes = tuple(a for a in range(4) if shape[a] != got["dbias"].shape[a])
        got["dbias"] = got["dbias"].sum(axis=axes, keepdims=True, dtype=acc)
    else:
        del got["dbias"]
    return {n: v.astype(output_dtype(case, n)) for n, v in got.items()}


# ------------------------------------------------------------------------- inputs


def make_case(kind="normal", dtype="F32", seed=0, **sizes):
    """A case of the named kind, its values snapped to the storage type."""
    rng = np.random.default_rng([seed, sum(map(ord, kind))])
    s = {"b": 1, "h": 2, "g": 1, "i": 9, "j": 37, "d": 8, "e": 5} | sizes
    n = s["h"] * s["g"]
    arrays = {
        "q": rng.standard_normal((s["b"], n, s["i"], s["d"])),
        "k": rng.standard_normal((s["b"], s["h"], s["j"], s["d"])),
        "v": rng.standard_normal((s["b"], s["h"], s["j"], s["e"])),
        "d_out": rng.standard_normal((s["b"], n, s["i"], s["e"])),
    }
    options = KINDS[kind](rng, arrays, s, n) or {}
    exact = ("mask", "dropout_keep")
    storage, acc = DTYPES[dtype], np.float64 if dtype == "F64" else np.float32
    with np.errstate(over="ignore"):
        arrays = {
            name: a if name in exact else a.astype(acc if name == "d_lse" else storage)
            for name, a in arrays.items()
        }
    return Case(id=kind, clauses=(), why="", dtype=dtype, inputs=arrays, **options)


def scaled(**factors):
    def kind(rng, arrays, s, n):
        for name, factor in factors.items():
            arrays[name] *= factor

    return kind


def shifted(rng, arrays, s, n):
    arrays["v"] += 8
    arrays["d_out"] += 8
    arrays["k"] += 4


def flat_and_far(rng, arrays, s, n):
    """dP is large and nearly common to a row, Σ p K small: its rounding shows in dq."""
    arrays["q"] *= 0.3
    arrays["v"] += 8
    arrays["d_out"] += 8


def masked(rng, arrays, s, n):
    arrays["mask"] = rng.random((s["b"], 1, s["i"], s["j"])) < 0.5
    arrays["mask"][:, :, 3:4] = False
    arrays["mask"][:, :, :, 5:6] = False


def causal(rng, arrays, s, n):
    arrays["mask"] = np.tril(np.ones((1, 1, s["i"], s["j"]), bool), s["j"] - s["i"])


def biased(rng, arrays, s, n):
    arrays["bias"] = rng.standard_normal((1, n, 1, s["j"]))


def steep_bias(rng, arrays, s, n):
    arrays["bias"] = rng.choice([-1e4, -60.0, 0.0, 60.0], (1, n, s["i"], s["j"]))


def bias_with_infinities(rng, arrays, s, n):
    biased(rng, arrays, s, n)
    arrays["bias"][..., ::3] = -np.inf


def softcapped(rng, arrays, s, n):
    arrays["q"] *= 4
    return {"softcap": 1.7, "scale": -0.9}


def loose_softcap(rng, arrays, s, n):
    return {"softcap": 1000.0}


def dropped(rng, arrays, s, n):
    arrays["dropout_keep"] = rng.random((s["b"], n, s["i"], s["j"])) < 0.7
    return {"dropout_rate": 0.3}


def with_d_lse(rng, arrays, s, n):
    arrays["d_lse"] = 5 * rng.standard_normal((s["b"], n, s["i"]))


def few_tokens(rng, arrays, s, n):
    for name in ("q", "k"):
        array = arrays[name]
        arrays[name] = array[:, :, np.arange(array.shape[2]) % 3]


def one_hot(rng, arrays, s, n):
    arrays["q"] = 40 * np.sign(arrays["q"])
    arrays["k"] = np.sign(arrays["k"])


def monotone(rng, arrays, s, n):
    arrays["q"][:] = 1
    arrays["k"][:] = np.linspace(-3, 3, s["j"])[:, None]


def values_are_keys(rng, arrays, s, n):
    width = min(s["d"], s["e"])
    arrays["v"][..., :width] = arrays["k"][..., :width]


def trend(rng, arrays, s, n):
    """Later keys are greater, and so are their values."""
    for name in ("k", "v"):
        arrays[name] += np.linspace(-2, 2, s["j"])[:, None]


def nearly_equal(rng, arrays, s, n):
    """Scores that scatter by a few hundredths; queries by less than their mean."""
    arrays["q"] = arrays["q"][:, :, :1] + 0.2 * arrays["q"]
    return {"scale": float(rng.choice([0.01, 0.03, 0.1]))}


def heavy_tails(rng, arrays, s, n):
    for name, array in arrays.items():
        arrays[name] = rng.standard_t(3, array.shape)


def everything(rng, arrays, s, n):
    for kind in (masked, biased, dropped, with_d_lse):
        kind(rng, arrays, s, n)
    return {"dropout_rate": 0.3, "softcap": 2.5, "scale": 0.7}


KINDS = {
    "normal": scaled(),
    "large scores": scaled(q=6, k=3),
    "huge scores": scaled(q=20, k=8),
    "subnormal values": scaled(v=2.0**-140, d_out=2.0**-20),
    "subnormal queries": scaled(q=2.0**-135),
    "cancelling": scaled(v=100),
    "far from zero": shifted,
    "flat and far": flat_and_far,
    "masked": masked,
    "causal": causal,
    "biased": biased,
    "steep bias": steep_bias,
    "bias with infinities": bias_with_infinities,
    "softcap": softcapped,
    "loose softcap": loose_softcap,
    "dropout": dropped,
    "gradient of lse": with_d_lse,
    "few tokens": few_tokens,
    "one-hot": one_hot,
    "uniform": scaled(q=0),
    "monotone": monotone,
    "values are keys": values_are_keys,
    "trend": trend,
    "nearly equal": nearly_equal,
    "heavy tails": heavy_tails,
    "everything": everything,
}
SIZES = {
    "plain": {},
    "grouped": {"g": 3, "h": 1, "i": 6, "b": 2},
    "one key": {"j": 1, "i": 2},
    "no keys": {"j": 0, "i": 2},
    "wide": {"d": 48, "e": 3, "j": 17},
    "many keys": {"h": 1, "i": 3, "j": 400, "d": 16, "e": 24},
    "many queries": {"h": 1, "g": 2, "i": 60, "j": 20, "e": 24},
}
SEEDS = range(int(os.environ.get("ATTNCHECK_SEEDS", "1")))
"""More than one on request, to measure how much of the budget is used."""

# ------------------------------------------------------------------- legal kernels

TENSOR_CORE = frozenset({"weights", "d_logits"})
WITH_DP = TENSOR_CORE | {"d_weights"}
EAGER = WITH_DP | {"scores"}

STRICT_KERNELS = {
    "naive": Kernel(rowsum=True),
    "naive, normalised before": Kernel(normalised=True),
    "sequential": Kernel(dot=sequential),
    "online, tiles of 16": Kernel(tile=16),
    "online, flushing": Kernel(tile=16, flush=True, dot=sequential),
    "split": Kernel(split=True),
}
LEGAL = [
    *[("strict", "F32", k) for k in STRICT_KERNELS.values()],
    *[("strict", "F64", k) for k in STRICT_KERNELS.values()],
    *[("strict", t, STRICT_KERNELS["naive"]) for t in ("BF16", "F16")],
    *[("strict", t, STRICT_KERNELS["online, tiles of 16"]) for t in ("BF16", "F16")],
    *[("tensor-core", t, Kernel(tile=16, stored=TENSOR_CORE)) for t in ("BF16", "F16")],
    *[
        ("tensor-core", t, Kernel(normalised=True, rowsum=True, stored=TENSOR_CORE))
        for t in ("BF16", "F16")
    ],
    *[
        ("tensor-core+dP", t, Kernel(rowsum=True, normalised=True, stored=WITH_DP))
        for t in ("BF16", "F16")
    ],
    *[
        ("eager", t, Kernel(rowsum=True, normalised=True, stored=EAGER))
        for t in ("BF16", "F16")
    ],
    ("tf32", "F32", Kernel(dot=tf32)),
    ("tf32", "F32", Kernel(dot=tf32, tile=16)),
]


def excess(case, kernel, profile):
    """name → the greatest |got − expected| / (bound + half an ulp), +∞ where it fails.

    None where the case can say nothing.
    """
    want = expected(case)
    bounds = budget(case, want, profile)
    if is_void(case, want, bounds):
        return None
    with np.errstate(all="ignore"):
        got = run(case, kernel)
    return {name: _excess(case, want, bounds, got, name) for name in got}


def _excess(case, want, bounds, got, name):
    reference, bound = getattr(want, name), bounds[name]
    dtype = output_dtype(case, name)
    value = got[name].astype(np.float64)
    judged = (
        want.visible if name in ("scores", "logits") else np.full(value.shape, True)
    )
    low, high = interval(reference, bound, dtype)
    inside = (low <= value) & (value <= high) | ~judged
    room = bound + half_ulp(np.abs(reference) + bound, dtype)
    with np.errstate(all="ignore"):
        ratio = np.where(
            inside & (value == reference), 0, abs(value - reference) / room
        )
    ratio = np.where(np.isfinite(ratio) & judged, ratio, 0.0)
    worst = ratio.max(initial=0.0)
    return worst if inside.all() else max(worst, np.nextafter(1, 2))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_no_legal_kernel_exceeds_the_budget(kind, size, seed):
    judged = 0
    for profile, dtype, kernel in LEGAL:
        case = make_case(kind, dtype, seed, **SIZES[size])
        ratios = excess(case, kernel, PROFILES[profile])
        judged += ratios is not None
        for name, ratio in (ratios or {}).items():
            assert ratio <= 1, (name, profile, dtype, kernel)
            print(f"used {profile} {dtype} {name} {ratio:.4f}")
    assert judged >= len(STRICT_KERNELS), f"{judged} of {len(LEGAL)} not void"


@pytest.mark.parametrize("profile", ["strict", "tensor-core"])
def test_values_that_match_the_sign_of_the_rounding_stay_inside(profile):
    """V = the sign of the rounding error of P: the errors of all terms add up."""
    plain = make_case("uniform", "BF16", j=96, e=1, i=4)
    bias = np.random.default_rng(3).standard_normal((1, 2, 1, 96)).astype(BF16)
    p = np.exp(bias[0, :, 0].astype(np.float32))
    p = p / p.sum(axis=-1, keepdims=True)
    sign = np.sign(p.astype(BF16).astype(np.float32) - p)[None, :, :, None]
    arrays = plain.inputs | {"bias": bias, "v": sign.astype(BF16)}
    case = replace(plain, inputs=arrays)
    kernel = Kernel(normalised=True, stored=TENSOR_CORE)
    ratio = excess(case, kernel, PROFILES[profile])["output"]
    assert (ratio <= 1) == (profile == "tensor-core")


# -------------------------------------------------------------------------- teeth

FAULTS = {
    "scores rounded to bfloat16": Kernel(narrow=BF16),
    "scale 1/d": Kernel(scale_factor=8**-0.5),
    "a gain of 1 %": Kernel(gain=1.01),
}


@pytest.mark.parametrize("kind", ["normal", "masked", "dropout", "far from zero"])
@pytest.mark.parametrize("fault", ["scores rounded to bfloat16", "scale 1/d", "gain"])
def test_a_fault_exceeds_the_strict_float32_budget(kind, fault):
    name = next(n for n in FAULTS if fault in n)
    ratios = excess(make_case(kind), FAULTS[name], PROFILES["strict"])
    assert ratios["output"] > 1
    assert all(ratios[n] > 1 for n in ("logits", "weights", "lse")) or fault == "gain"


@pytest.mark.parametrize("dtype", ["BF16", "F16"])
def test_a_fault_exceeds_the_tensor_core_budget(dtype):
    case = make_case("large scores", dtype)
    for name in ("scores rounded to bfloat16", "scale 1/d"):
        kernel = replace(FAULTS[name], stored=TENSOR_CORE, tile=16)
        ratios = excess(case, kernel, PROFILES["tensor-core"])
        assert max(ratios.values()) > 1, name


def test_a_profile_does_not_forgive_what_a_later_one_does():
    """Each kernel passes under its own profile, and not under the one before."""
    kernels = {
        "strict": Kernel(rowsum=True),
        "tensor-core": Kernel(rowsum=True, normalised=True, stored=TENSOR_CORE),
        "tensor-core+dP": Kernel(rowsum=True, normalised=True, stored=WITH_DP),
        "eager": Kernel(rowsum=True, normalised=True, stored=EAGER),
    }
    case = make_case("flat and far", "F16", e=16, d=16, j=160)
    for stricter, looser in pairwise(kernels):
        own = excess(case, kernels[looser], PROFILES[looser])
        before = excess(case, kernels[looser], PROFILES[stricter])
        assert max(own.values()) <= 1
        assert max(before.values()) > 1, (stricter, looser)


def test_tf32_operands_exceed_the_strict_budget():
    ratios = excess(make_case(), Kernel(dot=tf32), PROFILES["strict"])
    assert min(ratios[n] for n in ("scores", "output", "dq", "dk", "dv")) > 1


def test_what_must_be_exact_has_no_room():
    case = make_case("masked")
    want = expected(case)
    bounds = budget(case, want, PROFILES["eager"])
    assert not bounds["weights"][~want.visible].any()
    assert not bounds["masked"][~want.visible].any()
    assert not bounds["output"][:, :, 3].any()
    assert not bounds["lse"][:, :, 3].any()
    assert not bounds["dq"][:, :, 3].any()
    assert not bounds["dk"][:, :, 5].any()
    assert not bounds["dv"][:, :, 5].any()
    assert (bounds["scores"][~want.visible] == np.inf).all()


def test_nan_in_what_is_never_attended_leaves_every_bound_as_it_was():
    clean = make_case("masked")
    arrays = {n: clean.inputs[n].copy() for n in ("q", "k", "v", "d_out")}
    for name, at in {"q": 3, "d_out": 3, "k": 5, "v": 5}.items():
        arrays[name][:, :, at] = np.nan
    poisoned = replace(clean, inputs=dict(clean.inputs) | arrays)
    want = budget(clean, expected(clean), PROFILES["strict"])
    got = budget(poisoned, expected(poisoned), PROFILES["strict"])
    for name in want:
        assert np.array_equal(got[name], want[name]), name


# ----------------------------------------------------------------- void and profiles


def test_scores_too_large_for_the_accumulator_make_a_case_void():
    case = make_case()
    arrays = dict(case.inputs) | {"q": case.inputs["q"] * np.float32(1e5)}
    case = replace(case, inputs=arrays)
    want = expected(case)
    reason = is_void(case, want, budget(case, want, PROFILES["strict"]))
    assert "ill-conditioned" in reason


def test_a_gradient_that_overflows_its_storage_makes_a_case_void():
    case = make_case("normal", "F16")
    arrays = dict(case.inputs)
    arrays |= {n: (a * 200).astype(np.float16) for n, a in arrays.items() if n in "v"}
    arrays["d_out"] = (arrays["d_out"] * 1000).astype(np.float16)
    case = replace(case, inputs=arrays)
    want = expected(case)
    for profile, void in {"strict": False, "tensor-core": True}.items():
        reason = is_void(case, want, budget(case, want, PROFILES[profile]))
        assert (reason is not None) == void


def test_projections_too_large_for_the_accumulator_make_a_case_void():
    case = multi_head_case()
    case = replace(case, inputs=case.inputs | {"x": case.inputs["x"] * np.float32(1e6)})
    want = expected(case)
    reason = is_void(case, want, budget(case, want, PROFILES["strict"]))
    assert "ill-conditioned" in reason


def test_an_ordinary_case_is_not_void():
    for kind in ("normal", "subnormal values", "uniform"):
        case = make_case(kind)
        want = expected(case)
        assert is_void(case, want, budget(case, want, PROFILES["strict"])) is None


def test_a_profile_that_allows_more_has_nowhere_a_smaller_bound():
    order = ["strict", "tensor-core", "tensor-core+dP", "eager"]
    case = make_case("everything", "BF16")
    want = expected(case)
    bounds = [budget(case, want, PROFILES[name]) for name in order]
    for tight, loose in pairwise(bounds):
        assert all((tight[n] <= loose[n]).all() for n in tight)


def test_heads_stored_before_their_sum_have_to_be_declared():
    """Equal weights need no rounding themselves: what is left is that of each head."""
    case = make_case("uniform", "F16", h=1, g=7, j=3, i=5)
    kernel = Kernel(stored=frozenset({"scores"}))
    want, declared = expected(case), Profile(d_heads="storage")
    with np.errstate(all="ignore"):
        got = {"dv": run(case, kernel)["dv"]}
    for profile, fits in {PROFILES["strict"]: False, declared: True}.items():
        bounds = budget(case, want, profile)
        assert (_excess(case, want, bounds, got, "dv") <= 1) == fits


def test_a_declared_exponential_widens_the_log_sum_exp():
    case = make_case("normal", "BF16")
    want = expected(case)
    exact = budget(case, want, PROFILES["strict"])["lse"]
    fast = budget(case, want, Profile(exp=2.0**-13))["lse"]
    assert (fast >= exact + 2.0**-13 - 4 * 2.0**-24).all()


# ---------------------------------------------------------------------- multi-head


def multi_head_case(dtype="F32", **inputs):
    rng = np.random.default_rng(7)
    b, n, h, i, j, d, e, c, m = 2, 4, 2, 5, 19, 4, 3, 12, 10
    shapes = {
        "x": (b, i, c),
        "context": (b, j, m),
        "w_q": (c, n, d),
        "w_k": (m, h, d),
        "w_v": (m, h, e),
        "w_o": (n, e, c),
        "b_q": (n, d),
        "b_k": (h, d),
        "b_v": (h, e),
        "b_o": (c,),
    }
    arrays = {k: rng.standard_normal(s) / s[0] ** 0.5 for k, s in shapes.items()}
    arrays["x"], arrays["context"] = 2 * arrays["x"], 2 * arrays["context"]
    arrays = {k: a.astype(DTYPES[dtype]) for k, a in arrays.items()}
    arrays["mask"] = rng.random((b, 1, i, j)) < 0.7
    return Case(id="mha", clauses=(), why="", dtype=dtype, inputs=arrays | inputs)


def run_multi_head(case, kernel, *, gain=1.0):
    """Projections and merge in the accumulator, rounded once, at the end."""
    acc = case.accumulation
    a = {n: x.astype(acc) for n, x in case.inputs.items() if n != "mask"}

    def project(x, kind):
        w, bias = a[f"w_{kind}"], a[f"b_{kind}"]
        flat = np.stack([kernel.dot(row, w.reshape(len(w), -1).T) for row in x])
        return (
            flat.reshape(*x.shape[:2], *w.shape[1:]).transpose(0, 2, 1, 3)
            + bias[:, None]
        )

    sizes = case.sizes
    q, k = project(a["x"], "q"), project(a["context"], "k")
    v = project(a["context"], "v") * acc.type(gain)
    inner = replace(
        case,
        dtype="F64" if case.dtype == "F64" else "F32",
        inputs={
            "q": q,
            "k": k,
            "v": v,
            "mask": case.inputs["mask"],
            "d_out": np.zeros((*q.shape[:3], sizes["e"]), acc),
        },
    )
    got = run(inner, kernel)
    heads = got["output"].transpose(0, 2, 1, 3).reshape(sizes["b"], sizes["i"], -1)
    w_o = a["w_o"].reshape(-1, sizes["c"])
    merged = np.stack([kernel.dot(row, w_o.T) for row in heads]) + a["b_o"]
    names = ("scores", "logits", "masked", "weights", "lse")
    return {n: got[n] for n in names} | {
        "output": merged.astype(output_dtype(case, "output"))
    }


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kernel", STRICT_KERNELS, ids=str)
def test_a_legal_multi_head_stays_inside(dtype, kernel):
    case = multi_head_case(dtype)
    want = expected(case)
    bounds = budget(case, want, PROFILES["strict"])
    assert is_void(case, want, bounds) is None
    got = run_multi_head(case, STRICT_KERNELS[kernel])
    for name in got:
        assert _excess(case, want, bounds, got, name) <= 1, name
    wrong = run_multi_head(case, STRICT_KERNELS[kernel], gain=1.02)
    assert _excess(case, want, bounds, wrong, "output") > 1


# ------------------------------------------------------------------------ rounding


@pytest.mark.parametrize("dtype", [np.dtype(np.float16), np.dtype(np.float32)])
def test_nearest_is_the_cast_of_numpy(dtype):
    rng = np.random.default_rng(0)
    info = np.finfo(dtype)
    values = rng.standard_normal(4000) * 2.0 ** rng.uniform(
        info.minexp - 30, info.maxexp + 3, 4000
    )
    values = np.concatenate([values, [0.0, -0.0, np.inf, -np.inf, float(info.max)]])
    with np.errstate(over="ignore"):
        want = values.astype(dtype).astype(np.float64)
    assert np.array_equal(nearest(values, dtype), want)


def test_bfloat16_is_rounded_once():
    """Against the two neighbours, compared exactly in float64."""
    rng = np.random.default_rng(1)
    ties = 1 + rng.integers(0, 128, 200) * 2.0**-7 + 2.0**-8
    values = np.concatenate([ties + 2.0**-40, ties - 2.0**-40, ties])
    got = nearest(values, BF16)
    below = np.floor(values * 128) / 128
    above = below + 2.0**-7
    even = np.where((below * 128) % 2 == 0, below, above)
    nearer = np.where(values - below < above - values, below, above)
    want = np.where(values - below == above - values, even, nearer)
    assert np.array_equal(got, want)
    assert got[0] != values.astype(BF16).astype(np.float64)[0]


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_half_an_ulp_is_half_the_distance_to_the_next_number(dtype):
    info = ml_dtypes.finfo(dtype)
    # Half of float64's smallest number is no float64.
    small = [] if dtype == np.float64 else [0.0, float(info.smallest_subnormal)]
    values = np.array([*small, float(info.smallest_normal), 0.75, 1.0, 1.5, 96.0])
    following = np.nextafter(values.astype(dtype), dtype.type(np.inf))
    distance = following.astype(np.float64) - values
    assert np.array_equal(half_ulp(values, dtype), distance / 2)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_an_interval_of_no_room_is_the_rounded_value(dtype):
    values = np.array([1 + 2.0**-30, -np.inf, 0.0, 3.0])
    low, high = interval(values, np.zeros(4), dtype)
    assert np.array_equal(low, high)
    assert np.array_equal(low, nearest(values, dtype))
    low, high = interval(values, np.full(4, 0.25), dtype)
    assert (low[2:] == [-0.25, 2.75]).all()
    assert (high[2:] == [0.25, 3.25]).all()

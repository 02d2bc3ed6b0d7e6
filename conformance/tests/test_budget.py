"""The budget holds for legal implementations, and does not for wrong ones.

The implementations are those of `soundness/kernels.py`: plain NumPy with one
accumulator type, whose intermediates can be rounded as a profile allows, or broken.
"""

import os
from dataclasses import replace
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

from ..soundness.kernels import (
    EAGER,
    TENSOR_CORE,
    WITH_DP,
    Kernel,
    run,
    sequential,
    tf32,
)

BF16 = np.dtype(ml_dtypes.bfloat16)

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

STRICT_KERNELS = {
    "naive": Kernel(rowsum=True),
    "naive, normalised before": Kernel(normalised=True),
    "sequential": Kernel(dot=sequential),
    "online, tiles of 16": Kernel(tile=16, base=2),
    "online, flushing": Kernel(tile=16, base=2, flush=True, dot=sequential),
    "split": Kernel(split=True),
}
LEGAL = [
    *[("strict", "F32", k) for k in STRICT_KERNELS.values()],
    *[("strict", "F64", k) for k in STRICT_KERNELS.values()],
    *[("strict", t, STRICT_KERNELS["naive"]) for t in ("BF16", "F16")],
    *[("strict", t, STRICT_KERNELS["online, tiles of 16"]) for t in ("BF16", "F16")],
    *[
        ("tensor-core", t, Kernel(tile=16, base=2, stored=TENSOR_CORE))
        for t in ("BF16", "F16")
    ],
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
    ("tf32", "F32", Kernel(dot=tf32, tile=16, base=2)),
]


def excess(case, kernel, profile):
    """name → the greatest |got − expected| / (bound + half an ulp), +∞ where it fails.

    None where the case can say nothing.
    """
    want = expected(case)
    bounds = budget(case, want, profile)
    if is_void(case, want, bounds):
        return None
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


@pytest.mark.parametrize(("dtype", "widens"), [("F32", False), ("BF16", True)])
def test_an_exponential_may_be_declared_for_16_bits_alone(dtype, widens):
    case = make_case("normal", dtype)
    want = expected(case)
    exact, fast = (
        budget(case, want, Profile(exp_in_16_bits=exp))["lse"]
        for exp in (None, 2.0**-13)
    )
    assert bool((fast > exact).all()) == widens
    assert bool((fast == exact).all()) != widens


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


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kernel", STRICT_KERNELS, ids=str)
def test_a_legal_multi_head_stays_inside(dtype, kernel):
    case = multi_head_case(dtype)
    want = expected(case)
    bounds = budget(case, want, PROFILES["strict"])
    assert is_void(case, want, bounds) is None
    got = run(case, STRICT_KERNELS[kernel])
    for name in got:
        assert _excess(case, want, bounds, got, name) <= 1, name
    wrong = run(case, replace(STRICT_KERNELS[kernel], gain=1.02))
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

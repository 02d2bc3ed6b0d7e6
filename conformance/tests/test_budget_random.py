"""Independent roundings: their deviations, and where they are not independent.

Deviations are compared with those of attention in float64 whose every operation of one
source is given an error that is drawn, uniform in [−u, u].
"""

from dataclasses import replace

import numpy as np
import pytest

from attncheck.budget import (
    PROFILES,
    Profile,
    budget,
    derive,
    deviations_allowed,
    half_ulp,
)
from attncheck.budget.bounds import assemble
from attncheck.budget.problem import Problem
from attncheck.budget.profile import units
from attncheck.budget.quadrature import RANDOM
from attncheck.budget.randomness import why_dependent
from attncheck.case import DTYPES, INTERMEDIATES, Case
from attncheck.definition import expected

DRAWS = 600
UNIT = 2.0**-16
"""Small enough for errors of the second order not to count."""


def make_case(dtype="F32", *, i=7, j=31, d=6, e=5, softcap=None):
    rng = np.random.default_rng(0)
    arrays = {
        "q": 1.5 * rng.standard_normal((1, 1, i, d)),
        "k": 0.5 + rng.standard_normal((1, 1, j, d)),
        "v": 1 + rng.standard_normal((1, 1, j, e)),
        "d_out": rng.standard_normal((1, 1, i, e)),
        "bias": rng.standard_normal((1, 1, 1, j)),
    }
    arrays = {n: a.astype(DTYPES[dtype]) for n, a in arrays.items()}
    arrays["mask"] = rng.random((1, 1, i, j)) < 0.8
    options = {"scale": 0.4, "softcap": softcap}
    return Case(id="x", clauses=(), why="", dtype=dtype, inputs=arrays, **options)


class Noise:
    """Errors drawn for the operations of attention; the first axis is the draw."""

    def __init__(self, unit, seed=0):
        self.unit, self.rng = unit, np.random.default_rng(seed)

    def rounded(self, x, u):
        return x * (1 + u * self.rng.uniform(-1, 1, (DRAWS, *x.shape[1:])))

    def summed(self, terms, u):
        """One after the other along the last axis, products and sums with errors."""
        total = np.zeros((DRAWS, *terms.shape[1:-1]))
        for n in range(terms.shape[-1]):
            total = self.rounded(total + self.rounded(terms[..., n], u), u)
        return total

    def product(self, a, b, u):
        """a bᵀ over the last axis of both, the operands rounded."""
        a, b = (self.rounded(x, self.unit.operand) for x in (a, b))
        return self.summed(a[:, :, None] * b[:, None], u)

    def attention(self, case):
        """Results of a single head, each with an axis of draws in front."""
        unit, cap = self.unit, case.softcap
        q, k, v, d_out, bias = (
            case.inputs[n][0, :1].astype(float)
            for n in ("q", "k", "v", "d_out", "bias")
        )
        seen, scale = case.inputs["mask"][0, 0], case.scale_value
        x = scale * self.product(q, k, unit.dot)
        tanh = np.zeros_like(x) if cap is None else np.tanh(x / cap)
        logits = np.where(seen, (x if cap is None else cap * tanh) + bias, -np.inf)
        shifted = np.exp(logits - logits[:1].max(axis=-1, keepdims=True))
        total = self.summed(shifted, unit.sum)[..., None]
        lse = np.log(total) + logits[:1].max(axis=-1, keepdims=True)
        used = self.rounded(shifted, unit.p)
        out = self.product(used, np.swapaxes(v, 1, 2), unit.sum) / total

        p = np.exp(logits - lse)
        quantum = np.exp2(np.floor(np.log2(np.abs(out[:1])))) * unit.o
        stored = out + quantum * self.rng.uniform(-1, 1, out.shape)
        mean = self.summed(d_out * stored, unit.sum)[..., None]
        dp = self.rounded(self.product(d_out, v, unit.sum), unit.dp)
        ds = p * (dp - mean)
        dx = scale * self.rounded(ds * (1 - tanh**2), unit.ds)
        dq = self.product(dx, np.swapaxes(k, 1, 2), unit.sum)
        dk = self.product(*(np.swapaxes(a, 1, 2) for a in (dx, q)), unit.sum)
        used = np.swapaxes(self.rounded(p, unit.p), 1, 2)
        dv = self.product(used, np.swapaxes(d_out, 1, 2), unit.sum)
        stored = np.swapaxes(self.rounded(ds, unit.ds), 1, 2)
        dbias = self.summed(stored, unit.sum)[:, None]
        results = {"output": out, "lse": lse[..., 0], "dq": dq, "dk": dk, "dv": dv}
        return results | {"dbias": dbias}

    def multi_head(self, case):
        """Likewise of multi-head attention, one batch element, without bias or cap."""
        unit, a = self.unit, {n: x[0] for n, x in case.inputs.items() if n[:2] != "w_"}
        w = {n: x.astype(float) for n, x in case.inputs.items() if n[:2] == "w_"}
        x, context = (a[n][None].astype(float) for n in ("x", "context"))

        def project(x, w):
            """`h j d`, an axis of draws in front."""
            flat = self.product(x, w.reshape(len(w), -1).T[None], unit.sum)
            return np.moveaxis(flat.reshape(*flat.shape[:2], *w.shape[1:]), 2, 1)

        q, k, v = (
            project(context if n in "kv" else x, w[f"w_{n}"]) for n in ("q", "k", "v")
        )
        heads, lses = [], []
        for n in range(q.shape[1]):
            h = n // case.sizes["g"]
            logits = case.scale_value * self.product(q[:, n], k[:, h], unit.dot)
            top = logits[:1].max(axis=-1, keepdims=True)
            shifted = np.exp(logits - top)
            total = self.summed(shifted, unit.sum)[..., None]
            used = np.swapaxes(v[:, h], 1, 2)
            used = self.product(self.rounded(shifted, unit.p), used, unit.sum)
            heads.append(used / total)
            lses.append((np.log(total) + top)[..., 0])
        merged = np.concatenate(heads, axis=-1)
        w_o = w["w_o"].reshape(merged.shape[-1], -1)
        output = self.product(merged, w_o.T[None], unit.sum)
        return {"output": output, "lse": np.stack(lses, axis=1)}


def only(case, *letters):
    """Units of which only those named are not 0; the output's is that of storage."""
    unit = units(case, PROFILES["strict"])
    off = {n: 0.0 for n in unit._fields if n != "stored"}
    on = {n: UNIT for n in letters if n != "o"}
    return unit._replace(**off | on | ({"o": unit.o} if "o" in letters else {}))


def shares(case, *letters):
    """name → root mean square of drawn errors over deviation/√3, by element."""
    want = expected(case)
    unit = only(case, *letters)
    deviation = assemble(Problem(case, want, unit), None).deviation
    noise = Noise(unit)
    run = noise.attention if case.op == "attention" else noise.multi_head
    drawn = run(case)
    found = {}
    for name, values in drawn.items():
        error = values - getattr(want, name)[0]
        rms = np.sqrt((error**2).mean(axis=0))
        allowed = deviation[name][0] / 3**0.5
        with np.errstate(invalid="ignore"):
            found[name] = np.where(rms < 1e-14, 0.0, rms / np.maximum(allowed, 1e-300))
    return found


@pytest.mark.parametrize("softcap", [None, 1.5])
@pytest.mark.parametrize("letters", [*[(n,) for n in RANDOM], RANDOM], ids=str)
def test_drawn_errors_deviate_no_more_than_is_derived(letters, softcap):
    """Of 600 draws a root mean square is within 3 % of its own; 4.5 of those."""
    case = make_case(softcap=softcap)
    for name, share in shares(case, *letters).items():
        assert share.max() < 1 + 4.5 / np.sqrt(2 * DRAWS), name


def multi_head_case(dtype="F32", *, i=5, j=26, h=2, g=2, d=6, e=5, c=9, m=11):
    rng = np.random.default_rng(1)
    n = h * g
    arrays = {
        "x": rng.standard_normal((1, i, c)),
        "context": 0.5 + rng.standard_normal((1, j, m)),
        "w_q": rng.standard_normal((c, n, d)) / c**0.5,
        "w_k": rng.standard_normal((m, h, d)) / m**0.5,
        "w_v": rng.standard_normal((m, h, e)) / m**0.5,
        "w_o": rng.standard_normal((n, e, 7)) / (n * e) ** 0.5,
    }
    arrays = {n: a.astype(DTYPES[dtype]) for n, a in arrays.items()}
    return Case(id="x", clauses=(), why="", dtype=dtype, inputs=arrays, scale=0.8)


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("letters", [("dot",), ("sum",), ("p",), ("dot", "sum", "p")])
def test_drawn_errors_of_projected_heads_deviate_no_more_than_is_derived(
    letters, group
):
    case = multi_head_case(g=group)
    for name, share in shares(case, *letters).items():
        assert share.max() < 1 + 4.5 / np.sqrt(2 * DRAWS), name


@pytest.mark.parametrize(
    ("letter", "names"),
    {"p": ("output", "dv"), "ds": ("dq", "dk", "dbias"), "dp": ("dk",)}.items(),
)
def test_deviations_of_what_storage_rounds_are_no_more_than_twice_those_drawn(
    letter, names
):
    found = shares(make_case(), letter)
    for name in names:
        assert np.median(found[name]) > 0.5, name


def test_of_intermediates_there_are_bounds_alone():
    case = make_case()
    found = derive(case, expected(case), PROFILES["strict"])
    assert found.random
    assert set(INTERMEDIATES) < set(found.bounds)
    results = set(found.bounds) - set(INTERMEDIATES)
    assert set(found.linear) == set(found.deviation) == results


def test_deviations_of_a_float64_case_count_the_rounding_of_what_is_expected():
    plain, wide = make_case("F32"), make_case("F64")
    wide = replace(wide, inputs=plain.inputs)
    ratio = 2.0**-53 / 2.0**-24
    wants = [expected(case) for case in (plain, wide)]
    parts = [
        derive(case, want, PROFILES["strict"]).deviation["output"]
        for case, want in zip((plain, wide), wants, strict=True)
    ]
    rounding = half_ulp(wants[1].output, np.float64)
    both = np.hypot(ratio * parts[0], rounding)
    assert np.allclose(parts[1], both, rtol=1e-3, atol=0)


# ------------------------------------------------------------- what is independent


def test_the_deviations_allowed_keep_the_chance_of_a_false_alarm():
    """N · 2 exp(−λ²/(2/3)) = δ: Hoeffding's bound for sub-Gaussian errors."""
    for entries, chance in [(1, 0.5), (10**6, 1e-6), (10**8, 1e-6)]:
        factor = deviations_allowed(entries, chance)
        assert entries * 2 * np.exp(-1.5 * factor**2) == pytest.approx(chance)
    assert deviations_allowed(10**6, 1e-6) == pytest.approx(4.35, abs=0.01)


def edited(case, **changes):
    arrays = dict(case.inputs)
    for name, change in changes.items():
        array = arrays[name].astype(np.float64)
        arrays[name] = change(array).astype(arrays[name].dtype)
    return replace(case, inputs=arrays)


def repeated(array):
    return array[..., np.arange(array.shape[-2]) % 5, :]


def near(array):
    return array[..., :1, :] + 1e-3 * array


def with_nan(array):
    array = array.copy()
    array[..., 0, 0] = np.nan
    return array


DEPENDENT = {
    "equal keys": ({"k": repeated}, "scores of one query are equal"),
    "equal queries": ({"q": repeated}, "scores of one key are equal"),
    "keys that differ little": ({"k": near}, "are nearly equal"),
    "queries that differ little": ({"q": near}, "weights of one key are nearly equal"),
    "values that repeat": (
        {"v": repeated},
        "gradients of weights of one query are equal",
    ),
    "values of two signs": ({"v": np.sign}, "v has few distinct values"),
    "a query of NaN": ({"q": with_nan}, "not finite"),
    "channels that differ little": (
        {"v": lambda v: v[..., :1] + 0.02 * v},
        "channels of one output are nearly equal",
    ),
}


def random_case(**sizes):
    case = make_case("BF16", **({"i": 40, "j": 60, "d": 16, "e": 32} | sizes))
    return replace(case, inputs={n: a for n, a in case.inputs.items() if n != "mask"})


@pytest.mark.parametrize("kind", DEPENDENT)
def test_roundings_that_may_coincide_are_not_put_in_quadrature(kind):
    changes, reason = DEPENDENT[kind]
    case, tensor_core = random_case(), PROFILES["tensor-core"]
    assert derive(case, expected(case), tensor_core).random
    case = edited(case, **changes)
    found = derive(case, expected(case), tensor_core)
    assert reason in found.dependent
    assert not found.random


def test_few_keys_may_be_near_each_other():
    """Of n ≤ λ² equal roundings, Σ|x| ≤ √n (Σx²)^½ ≤ λ (Σx²)^½."""
    case = edited(random_case(j=20, i=3), k=near)
    assert derive(case, expected(case), PROFILES["tensor-core"]).random


def test_few_keys_may_not_be_equal():
    """The error of a score has many roundings: it may be more than one deviation."""
    case = edited(random_case(j=20, i=3), k=repeated)
    assert derive(case, expected(case), PROFILES["tensor-core"]).dependent


def tied(case, first, second):
    """The case with the same weights for two projections."""
    return replace(case, inputs=case.inputs | {second: case.inputs[first]})


def with_equal_heads(case):
    names = ("w_q", "w_k", "w_v")
    w = {
        n: np.broadcast_to(x[:, :1], x.shape)
        for n, x in case.inputs.items()
        if n in names
    }
    return replace(case, inputs=case.inputs | w)


def without_context(case):
    """Self-attention whose queries and keys are projected by the same weights."""
    arrays = {n: x for n, x in case.inputs.items() if n != "context"}
    arrays["x"] = case.inputs["context"]
    arrays |= {"w_q": arrays["w_k"], "w_o": arrays["w_o"][:2]}
    return replace(case, inputs=arrays)


def with_equal_tokens(case):
    context = case.inputs["context"].copy()
    context[:, ::2] = context[:, 1::2]
    return replace(case, inputs=case.inputs | {"context": context})


DEPENDENT_HEADS = {
    "keys that are values": (
        lambda case: tied(case, "w_k", "w_v"),
        "channels of a projected key and value are equal",
    ),
    "equal heads": (with_equal_heads, "scores of one position are equal"),
    "queries that are keys": (without_context, "projected position are equal"),
    "equal tokens": (with_equal_tokens, "scores of one query are equal"),
    "weights of two signs": (
        lambda case: edited(case, w_o=np.sign),
        "w_o has few distinct values",
    ),
}


@pytest.mark.parametrize("kind", DEPENDENT_HEADS)
def test_what_heads_have_in_common_is_not_put_in_quadrature(kind):
    change, reason = DEPENDENT_HEADS[kind]
    case = multi_head_case("BF16", e=6)
    assert derive(case, expected(case), PROFILES["tensor-core"]).random
    case = change(case)
    assert reason in derive(case, expected(case), PROFILES["tensor-core"]).dependent


def test_an_operand_that_all_heads_share_is_not_put_in_quadrature():
    case = multi_head_case()
    want = expected(case)
    assert "common to all heads" in derive(case, want, PROFILES["tf32"]).dependent
    assert derive(case, want, PROFILES["strict"]).random


@pytest.mark.parametrize(
    "profile",
    [
        PROFILES["eager"],
        Profile(operands=2.0**-10),
        Profile(weights=2.0**-7),
        Profile(d_logits=2.0**-4),
    ],
)
def test_a_profile_whose_roundings_have_a_bias_is_not_put_in_quadrature(profile):
    case = random_case()
    assert derive(case, expected(case), profile).dependent


def test_a_user_profile_that_equals_a_named_one_gives_the_same_budget():
    case = random_case()
    want = expected(case)
    named = budget(case, want, PROFILES["tensor-core"])
    own = budget(case, want, Profile(weights="storage", d_logits=2.0**-8))
    assert all(np.array_equal(named[n], own[n]) for n in named)
    fast = Profile(exp=2.0**-13, weights="storage", d_logits="storage")
    looser = budget(case, want, fast)
    assert (looser["lse"] >= named["lse"] + 2.0**-14).all()


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_bound_is_the_smaller_of_both(profile, dtype):
    case = make_case(dtype)
    want = expected(case)
    problem = Problem(case, want, units(case, PROFILES[profile]))
    certain = assemble(problem, "not asked").bounds
    found = assemble(problem, why_dependent(problem))
    for name, bound in found.bounds.items():
        assert (bound <= certain[name]).all()
        if found.random:
            likely = found.linear[name] + deviations_allowed() * found.deviation[name]
            assert np.array_equal(bound, np.minimum(likely, certain[name]))


def test_quadrature_tells_more_the_more_keys_there_are():
    """√n against n: with 16 times the keys it is 4 times sharper."""
    ratio = {}
    for keys in (128, 2048):
        case = make_case("BF16", i=3, j=keys, d=16, e=16)
        case = replace(case, scale=0.05)
        want = expected(case)
        problem = Problem(case, want, units(case, PROFILES["tensor-core"]))
        found, certain = assemble(problem, None), assemble(problem, "not asked")
        ratio[keys] = np.median(found.bounds["output"] / certain.bounds["output"])
    assert 3 < ratio[128] / ratio[2048] < 5


@pytest.mark.parametrize("order", ["rising", "falling", "drawn"])
def test_rescales_are_counted_from_either_end(order):
    """A maximum that rises all the way changes with every block of 16 keys."""
    case = make_case(i=1, j=320, d=1)
    keys = np.random.default_rng(5).standard_normal(320)
    keys = {"rising": np.sort(keys), "falling": -np.sort(-keys), "drawn": keys}[order]
    arrays = {"q": np.full((1, 1, 1, 1), 2.0), "k": keys[None, None, :, None]}
    arrays = {n: a.astype(np.float32) for n, a in arrays.items()}
    others = {n: case.inputs[n] for n in ("v", "d_out")}
    case = replace(case, inputs=arrays | others)
    want = expected(case)
    problem = Problem(case, want, units(case, PROFILES["strict"]), random=True)
    records = max(len(set(np.maximum.accumulate(k))) for k in (keys, keys[::-1]))
    assert problem.changes[0, 0, 0, 0] == min(records, 20)
    assert (records > 20) == (order != "drawn")
    step = problem.unit.exp + 2 * problem.unit.a
    linear = derive(case, want, PROFILES["strict"]).linear["lse"][0, 0, 0]
    assert linear > min(records, 20) * step

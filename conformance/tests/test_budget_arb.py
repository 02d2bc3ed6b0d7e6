"""The deterministic bound against interval arithmetic, on tiny cases.

One plain algorithm is run on balls of 128 bits (Arb): with exact operations, which
encloses the true values, and with every operation widened to all that the model of
rounding allows, (a ∘ b)(1 + e) + f, |e| ≤ u, |f| ≤ tiny, which encloses all that the
algorithm may give.  The distance of the two must lie inside the bound.
"""

from dataclasses import replace

import numpy as np
import pytest
from flint import arb, ctx

from attncheck.budget import PROFILES, Profile, half_ulp
from attncheck.budget.bounds import assemble
from attncheck.budget.problem import Problem
from attncheck.budget.profile import units
from attncheck.case import DTYPES, Case
from attncheck.definition import expected

ROOM = 2.0**-60
"""Far below every rounding of float32, far above 128 bits."""


@pytest.fixture(autouse=True)
def precision():
    before, ctx.prec = ctx.prec, 128
    yield
    ctx.prec = before


def ball(radius):
    return arb(0, radius)


class Arithmetic:
    """Operations on balls, as wrong as units allow; all exact without units."""

    def __init__(self, unit=None, *, reads=None):
        self.unit = unit
        # The type of the stored output that D is made of, if it is.
        self.reads = reads

    def widened(self, x, u):
        if self.unit is None or x.is_zero():
            return x
        return x * (1 + ball(u)) + ball(self.unit.tiny)

    def op(self, x):
        return self.widened(x, self.unit and self.unit.a)

    def function(self, x, name):
        return self.widened(getattr(x, name)(), self.unit and getattr(self.unit, name))

    def stored(self, x, letter):
        """Rounded to storage, if the unit says so."""
        if self.unit is None or x.is_zero() or letter not in self.unit.stored:
            return x
        return x * (1 + ball(getattr(self.unit, letter))) + ball(self.unit.eta)

    def mean(self, p, dp, d_out, out):
        """D, from a sum over the keys or from the stored output."""
        if self.reads is None:
            return self.dot(p, dp)
        halves = [half_ulp(np.array(float(abs(o).upper())), self.reads) for o in out]
        stored = [o + ball(float(h)) for o, h in zip(out, halves, strict=True)]
        return self.dot(d_out, stored)

    def summed(self, terms):
        total = arb(0)
        for term in terms:
            total = self.op(total + term)
        return total

    def dot(self, xs, ys):
        return self.summed(self.op(x * y) for x, y in zip(xs, ys, strict=True))


def balls(array):
    return [[arb(float(x)) for x in row] for row in array]


def columns(rows):
    return [list(column) for column in zip(*rows, strict=True)]


def attention(case, run):
    """Results of one head: a shift that is given, weights normalised at the end."""
    q, k, v, d_out = (balls(case.inputs[n][0, 0]) for n in ("q", "k", "v", "d_out"))
    bias = balls(case.inputs["bias"][0, 0])
    seen = case.inputs["mask"][0, 0]
    # The scale is what the algorithm has, correctly rounded from the true one.
    scale = run.op(arb(case.scale_value))
    cap = None if case.softcap is None else arb(case.softcap)
    rows = [
        row(run, *each, scale, cap, k, v)
        for each in zip(q, d_out, bias * (len(q) // len(bias)), seen, strict=True)
    ]
    found = {name: [r[name] for r in rows] for name in ("output", "lse", "dq")}
    found["dbias"] = [r["ds"] for r in rows]
    dx, used = (columns([r[name] for r in rows]) for name in ("dx", "used"))
    q, d_out = columns(q), columns(d_out)
    found["dk"] = [[run.op(scale * run.dot(x, c)) for c in q] for x in dx]
    found["dv"] = [[run.dot(p, c) for c in d_out] for p in used]
    return found


def row(run, q, d_out, bias, seen, scale, cap, k, v):
    """One query, over the keys that it may see; its results, 0 where it may not."""
    keys = np.flatnonzero(seen)
    x = [run.op(run.dot(q, k[j]) * scale) for j in keys]
    tanh = [arb(0)] * len(x)
    if cap is not None:
        tanh = [run.function(run.op(y / cap), "tanh") for y in x]
        x = [run.op(cap * t) for t in tanh]
    logits = [run.op(y + bias[j]) for y, j in zip(x, keys, strict=True)]
    shift = arb(max(float(y.mid()) for y in logits))
    p = [run.function(run.op(y - shift), "exp") for y in logits]
    used = [run.stored(y, "p") for y in p]
    total = run.summed(used if run.unit and run.unit.row_sum else p)
    values = columns([v[j] for j in keys])
    out = [run.op(run.dot(used, column) / total) for column in values]
    lse = run.op(shift + run.function(total, "log"))

    p = [run.function(run.op(y - lse), "exp") for y in logits]
    dp = [run.stored(run.dot(d_out, v[j]), "dp") for j in keys]
    mean = run.mean(p, dp, d_out, out)

    def gradient(mean):
        ds = [run.op(a * run.op(b - mean)) for a, b in zip(p, dp, strict=True)]
        slope = [run.op(1 - run.op(t * t)) for t in tanh]
        dx = ds
        if cap is not None:
            dx = [run.op(a * b) for a, b in zip(ds, slope, strict=True)]
        return [run.stored(y, "ds") for y in ds], [run.stored(y, "ds") for y in dx]

    def dq(mean):
        _, dx = gradient(mean)
        columns_of_k = columns([k[j] for j in keys])
        return [run.op(scale * run.dot(dx, c)) for c in columns_of_k]

    # dq is affine in the row's D, so the ends of its ball make up all of it: balls of
    # every term's own would forget that it is one number.
    ends = [dq(arb(mean.lower())), dq(arb(mean.upper()))]
    ds, dx = gradient(mean)
    used = [run.stored(y, "p") for y in p]
    spread = {"ds": ds, "dx": dx, "used": used}
    for name, values in spread.items():
        full = [arb(0)] * len(seen)
        for j, y in zip(keys, values, strict=True):
            full[j] = y
        spread[name] = full
    joined = [a.union(b) for a, b in zip(*ends, strict=True)]
    return spread | {"output": out, "lse": [lse], "dq": joined}


def make_case(dtype, kind, seed=0):
    rng = np.random.default_rng(seed)
    i, j, d, e = 3, 6, 4, 3
    factor = {"large scores": 5.0, "softcap": 2.0}.get(kind, 1.0)
    arrays = {
        "q": factor * rng.standard_normal((1, 1, i, d)),
        "k": rng.standard_normal((1, 1, j, d)),
        "v": rng.standard_normal((1, 1, j, e)) + 8 * (kind == "far from zero"),
        "d_out": rng.standard_normal((1, 1, i, e)) + 8 * (kind == "far from zero"),
        "bias": rng.standard_normal((1, 1, i, j)) * (kind == "bias"),
    }
    if kind == "small values":
        arrays["v"] *= 2.0**-12
    arrays = {n: a.astype(DTYPES[dtype]) for n, a in arrays.items()}
    arrays["mask"] = np.ones((1, 1, i, j), bool)
    if kind == "masked":
        arrays["mask"][0, 0] = np.tril(arrays["mask"][0, 0], 2)
    case = Case(id=kind, clauses=(), why="", dtype=dtype, inputs=arrays)
    return replace(case, softcap=1.3 if kind == "softcap" else None)


KINDS = [
    "normal",
    "masked",
    "bias",
    "softcap",
    "large scores",
    "far from zero",
    "small values",
]
PAIRS = [
    ("F64", "strict"),
    ("F32", "strict"),
    ("BF16", "strict"),
    ("BF16", "tensor-core"),
    ("F16", "tensor-core"),
    ("F16", "tensor-core+dP"),
    ("BF16", "sum of rounded weights"),
]
DECLARED = PROFILES | {
    "sum of rounded weights": Profile(weights="storage", row_sum_of_rounded=True)
}


def each(found, want):
    """(name, index, ball) of every element that is expected."""
    for name, rows in found.items():
        shape = getattr(want, name).shape
        flat = [ball for row in rows for ball in row]
        for index, value in zip(np.ndindex(*shape), flat, strict=True):
            yield name, index, value


def shares(case, profile):
    """name → the greatest share of the bound that the algorithm may use."""
    want, unit = expected(case), units(case, DECLARED[profile])
    bounds = assemble(Problem(case, want, unit), "not asked").bounds
    runs = [Arithmetic(unit), Arithmetic(unit, reads=DTYPES[case.dtype])]
    true, *rounded = (attention(case, run) for run in (Arithmetic(), *runs))
    greatest = {}
    for (name, index, a), *others in zip(
        each(true, want), *(each(found, want) for found in rounded), strict=True
    ):
        reach = max(float(abs(a - b).upper()) for _, _, b in others)
        bound = float(bounds[name][index])
        if reach <= ROOM * abs(float(a.mid())):
            continue
        greatest[name] = max(greatest.get(name, 0.0), reach / bound)
    return greatest


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("dtype", "profile"), PAIRS)
def test_the_bound_covers_all_that_the_model_allows(dtype, profile, kind):
    found = shares(make_case(dtype, kind), profile)
    assert set(found) == {"output", "lse", "dq", "dk", "dv", "dbias"}
    assert max(found.values()) <= 1, found
    # And is no fantasy: part of it is needed.
    assert max(found.values()) > 0.1, found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["F32", "BF16", "F16"])
def test_float64_is_good_enough_for_what_is_expected(dtype, kind):
    """It lies within a thousandth of the strictest bound from the true values."""
    case = make_case(dtype, kind)
    want = expected(case)
    bounds = assemble(Problem(case, want, units(case, PROFILES["strict"])), "").bounds
    for name, index, true in each(attention(case, Arithmetic()), want):
        assert true.rad() <= ROOM * (abs(true) + 1)
        error = abs(float((true - arb(float(getattr(want, name)[index]))).mid()))
        assert error <= 1e-3 * bounds[name][index], (name, index)


@pytest.mark.parametrize("kind", KINDS)
def test_float64_cases_expect_what_is_true_rounded_once(kind):
    case = make_case("F64", kind)
    want = expected(case)
    bounds = assemble(Problem(case, want, units(case, PROFILES["strict"])), "").bounds
    for name, index, true in each(attention(case, Arithmetic()), want):
        value = float(getattr(want, name)[index])
        error = abs(float((true - arb(value)).mid()))
        rounding = half_ulp(np.array(abs(value)), np.float64)
        room = 1e-3 * bounds[name][index] + rounding
        assert error <= room, (name, index)

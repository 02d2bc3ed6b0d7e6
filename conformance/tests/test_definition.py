"""The definition against closed forms, high precision and finite differences."""

import mpmath
import numpy as np
import pytest

from attncheck.case import Case
from attncheck.definition import expected

GRADIENTS = {"q": "dq", "k": "dk", "v": "dv", "bias": "dbias"}


def make_case(
    seed=0, b=1, h=1, g=1, i=3, j=4, d=2, e=3, *, scale=None, softcap=None, **inputs
):
    """A float64 case of normal values; `inputs` join q, k, v or replace them."""
    rng = np.random.default_rng(seed)
    arrays = {
        "q": rng.standard_normal((b, h * g, i, d)),
        "k": rng.standard_normal((b, h, j, d)),
        "v": rng.standard_normal((b, h, j, e)),
        "d_out": rng.standard_normal((b, h * g, i, e)),
    }
    rate = inputs.pop("dropout_rate", 0.0)
    arrays = {n: a for n, a in (arrays | inputs).items() if a is not None}
    return Case(
        id="test",
        clauses=(),
        why="",
        dtype="F64",
        inputs=arrays,
        scale=scale,
        softcap=softcap,
        dropout_rate=rate,
    )


# ------------------------------------------------------------------ high precision


def mp_results(case, arrays):
    """Output and log-sum-exp with 50 digits, by the sums of the formulas."""
    sizes, full = case.sizes, np.ones([case.sizes[a] for a in "bnij"])
    mask = np.broadcast_to(case.inputs.get("mask", True), full.shape)
    keep = np.broadcast_to(case.inputs.get("dropout_keep", True), full.shape)
    bias = np.broadcast_to(arrays.get("bias", np.zeros((1, 1, 1, 1))), full.shape)
    out = np.full([sizes[a] for a in "bnie"], mpmath.mpf(0))
    lse = np.full([sizes[a] for a in "bni"], mpmath.mpf("-inf"))
    for b, n, i in np.ndindex(*full.shape[:3]):
        q, h = arrays["q"][b, n, i], n // sizes["g"]
        terms = {}
        for j in np.flatnonzero(mask[b, n, i]):
            x = mpmath.mpf(case.scale_value) * (q @ arrays["k"][b, h, j])
            if case.softcap:
                x = case.softcap * mpmath.tanh(x / case.softcap)
            terms[j] = mpmath.exp(x + bias[b, n, i, j])
        total = sum(terms.values())
        if not total:
            continue
        lse[b, n, i] = mpmath.log(total)
        for j, term in terms.items():
            if keep[b, n, i, j]:
                p = term / total / (1 - mpmath.mpf(case.dropout_rate))
                out[b, n, i] = out[b, n, i] + p * arrays["v"][b, h, j]
    return out, lse


def to_mp(array):
    return np.vectorize(mpmath.mpf, otypes=[object])(array)


def mp_loss(case, arrays):
    out, lse = mp_results(case, arrays)
    loss = mpmath.mpf(0)
    if "d_out" in case.inputs:
        loss += (out * to_mp(case.inputs["d_out"])).sum()
    if "d_lse" in case.inputs:
        finite = np.vectorize(mpmath.isfinite, otypes=[bool])(lse)
        loss += (lse * to_mp(case.inputs["d_lse"]))[finite].sum()
    return loss


def mp_gradient(case, name, step="1e-15"):
    """Central differences; with 50 digits their error is of the order of step²."""
    arrays = {n: to_mp(case.inputs[n]) for n in GRADIENTS if n in case.inputs}
    step = mpmath.mpf(step)
    gradient = np.zeros(case.inputs[name].shape)
    for index in np.ndindex(*gradient.shape):
        centre, ends = arrays[name][index], []
        for sign in (1, -1):
            arrays[name][index] = centre + sign * step
            ends.append(mp_loss(case, arrays))
        arrays[name][index] = centre
        gradient[index] = (ends[0] - ends[1]) / (2 * step)
    return gradient


def rounding(case):
    """The relative error of a weight in float64, to first order, and magnitudes.

    A logit errs by (d + 8)u of the magnitudes in it, an exponential by that and 3u of
    its argument, a sum over the row by another j + e roundings.
    """
    sizes, u = case.sizes, 2.0**-53
    top = {n: np.abs(a).max(initial=0.0) for n, a in case.inputs.items()}
    score = abs(case.scale_value) * sizes["d"] * top["q"] * top["k"] + top.get(
        "bias", 0
    )
    exponent = u * ((sizes["d"] + 8) * score + 6 * score + 8)
    relative = 2 * exponent + (sizes["j"] + sizes["e"] + 8) * u
    d_out, factor = top.get("d_out", 0), 1 / (1 - case.dropout_rate)
    ds = 2 * factor * sizes["e"] * d_out * top["v"] + top.get("d_lse", 0)
    rows = sizes["b"] * sizes["n"] * sizes["i"]
    slope = 1 + score / (case.softcap or np.inf)
    relative *= 4 * slope
    sigma = abs(case.scale_value)
    return {
        "output": relative * factor * top["v"],
        "lse": relative * (1 + score),
        "dq": relative * sigma * ds * top["k"],
        "dk": relative * sigma * ds * top["q"] * rows,
        "dv": relative * factor * d_out * rows,
        "dbias": relative * ds * rows,
    }


EMPTY_ROW = np.array([[1, 0, 1, 1], [0, 0, 0, 0], [1, 1, 0, 0]], dtype=bool)[None, None]
RNG = np.random.default_rng(5)
BIAS = RNG.standard_normal((1, 1, 1, 4))
KEEP = RNG.random((1, 2, 3, 4)) < 0.6
D_LSE = RNG.standard_normal((1, 2, 3))

CASES = {
    "plain": make_case(),
    "softcap": make_case(softcap=0.7, scale=1.0),
    "bias that broadcasts": make_case(bias=BIAS),
    "bias per query": make_case(bias=RNG.standard_normal((1, 1, 3, 4))),
    "dropout": make_case(dropout_keep=KEEP[:, :1], dropout_rate=0.4),
    "log-sum-exp too": make_case(d_lse=D_LSE[:, :1]),
    "log-sum-exp alone": make_case(d_lse=D_LSE[:, :1], d_out=None),
    "grouped heads": make_case(h=2, g=2),
    "negative scale": make_case(scale=-0.8),
    "scale 0": make_case(scale=0.0),
    "empty row": make_case(mask=EMPTY_ROW),
    "all at once": make_case(
        g=2,
        scale=-1.3,
        softcap=1.5,
        bias=BIAS,
        mask=EMPTY_ROW,
        dropout_keep=KEEP,
        dropout_rate=0.4,
        d_lse=D_LSE,
    ),
}


@pytest.fixture(params=CASES, ids=str)
def case(request):
    with mpmath.workdps(50):
        yield CASES[request.param]


def test_output_and_lse_are_those_of_fifty_digits(case):
    arrays = {n: to_mp(a) for n, a in case.inputs.items() if n in GRADIENTS}
    output, lse = mp_results(case, arrays)
    got, allowed = expected(case), rounding(case)
    np.testing.assert_array_less(
        np.abs(got.output - output).astype(float), allowed["output"]
    )
    finite = lse.astype(float) > -np.inf
    assert np.array_equal(finite, got.lse > -np.inf)
    error = np.abs(got.lse[finite] - lse[finite]).astype(float)
    np.testing.assert_array_less(error, allowed["lse"])


def test_gradients_are_finite_differences(case):
    got, allowed = expected(case), rounding(case)
    for name, gradient in GRADIENTS.items():
        if name not in case.inputs:
            assert getattr(got, gradient) is None
            continue
        want = mp_gradient(case, name)
        assert want.shape == getattr(got, gradient).shape
        error = np.abs(getattr(got, gradient) - want)
        assert (error <= allowed[gradient] + 1e-25).all(), gradient


# -------------------------------------------------------------------- closed forms


def test_equal_scores_give_the_mean_of_the_values():
    case = make_case(q=np.zeros((1, 1, 3, 2)), v=np.arange(12.0).reshape(1, 1, 4, 3))
    result = expected(case)
    assert np.array_equal(result.output[0, 0], np.tile([4.5, 5.5, 6.5], (3, 1)))
    assert np.array_equal(result.weights, np.full((1, 1, 3, 4), 0.25))
    assert (result.lse == np.log(4)).all()


def test_identity_values_read_the_weights_out():
    result = expected(make_case(v=np.eye(4)[None, None], d_out=None))
    assert np.array_equal(result.output, result.weights)
    assert result.dq is None


def test_one_key_gives_its_value_and_its_logit():
    case = make_case(j=1, scale=0.5)
    result = expected(case)
    assert np.array_equal(
        result.output, np.broadcast_to(case.inputs["v"], (1, 1, 3, 3))
    )
    assert np.array_equal(result.lse, result.logits[..., 0])
    assert not result.dq.any()
    assert not result.dk.any()


def test_the_steps_follow_from_one_another():
    case = make_case(scale=0.5, softcap=2.0, bias=BIAS, mask=EMPTY_ROW)
    result = expected(case)
    seen = np.broadcast_to(EMPTY_ROW, result.visible.shape)
    assert np.array_equal(result.visible, seen)
    capped = 2.0 * np.tanh(0.5 * result.scores / 2.0) + BIAS
    assert np.array_equal(result.logits, capped, equal_nan=True)
    assert np.isnan(result.scores[~seen]).all()
    assert (result.masked[~seen] == -np.inf).all()
    assert (result.weights[~seen] == 0).all()


def test_no_keys_make_every_row_empty():
    result = expected(make_case(j=0))
    assert not result.output.any()
    assert (result.lse == -np.inf).all()
    assert not result.dq.any()
    assert result.dk.shape == (1, 1, 0, 2)


def test_a_blocked_key_counts_as_removed():
    mask = np.array([True, False, True, False])[None, None, None]
    whole = make_case(mask=mask, bias=BIAS)
    left = {n: whole.inputs[n][:, :, ::2] for n in ("k", "v")}
    removed = make_case(**left, bias=BIAS[..., ::2])
    with_mask, without = expected(whole), expected(removed)
    for name in ("output", "lse", "dq"):
        assert np.array_equal(getattr(with_mask, name), getattr(without, name))
    for name in ("dk", "dv"):
        full = getattr(with_mask, name)
        assert np.array_equal(full[:, :, ::2], getattr(without, name))
        assert not full[:, :, 1::2].any()
    assert not with_mask.dbias[..., 1::2].any()


def test_grouped_heads_share_keys_in_order_h_g():
    case = make_case(h=2, g=3)
    result = expected(case)
    for n in range(6):
        alone = make_case(
            q=case.inputs["q"][:, n : n + 1],
            k=case.inputs["k"][:, n // 3 : n // 3 + 1],
            v=case.inputs["v"][:, n // 3 : n // 3 + 1],
            d_out=case.inputs["d_out"][:, n : n + 1],
        )
        assert np.array_equal(result.output[:, n], expected(alone).output[:, 0])


def test_a_multi_head_case_with_identity_projections_is_attention():
    d, n = 2, 3
    case = make_case(h=n, d=d, e=d, j=3, d_out=None)
    heads = {name: case.inputs[name] for name in ("q", "k")}
    eye = np.eye(n * d).reshape(n * d, n, d)
    x, context = (
        array.transpose(0, 2, 1, 3).reshape(1, 3, n * d) for array in heads.values()
    )
    whole = Case(
        id="test",
        clauses=(),
        why="",
        dtype="F64",
        inputs={
            "x": x,
            "context": context,
            "w_q": eye,
            "w_k": eye,
            "w_v": 2 * eye,
            "b_v": np.ones((n, d)),
            "w_o": eye.transpose(1, 2, 0),
            "b_o": np.full(n * d, -1.0),
        },
    )
    got = expected(whole)
    alone = expected(make_case(**heads, v=heads["k"], d_out=None))
    # Values 2 k + 1 give 2 o + 1, up to the rounding of weights that sum to 1.
    merged = alone.output.transpose(0, 2, 1, 3).reshape(1, 3, n * d)
    room = 16 * 2.0**-53 * (2 * np.abs(context).max() + 1)
    assert (np.abs(got.output - 2 * merged) <= room).all()
    assert np.array_equal(got.lse, alone.lse)


# --------------------------------------------------------------- NaN and infinities


def test_what_an_empty_row_holds_reaches_nothing():
    clean = make_case(mask=EMPTY_ROW, bias=RNG.standard_normal((1, 1, 3, 4)))
    arrays = {n: clean.inputs[n].copy() for n in ("q", "d_out", "bias")}
    for array in arrays.values():
        array[:, :, 1] = np.nan
    poisoned = expected(make_case(mask=EMPTY_ROW, **arrays))
    assert_same(poisoned, expected(clean))


def test_what_a_never_attended_key_holds_reaches_nothing():
    mask = np.array([True, True, False, True])[None, None, None]
    clean = make_case(mask=mask)
    for poison in (np.nan, np.inf):
        arrays = {n: clean.inputs[n].copy() for n in ("k", "v")}
        for array in arrays.values():
            array[:, :, 2] = poison
        assert_same(expected(make_case(mask=mask, **arrays)), expected(clean))


@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_a_visible_nan_shows(name):
    clean = make_case()
    array = clean.inputs[name].copy()
    array[0, 0, 1] = np.nan
    output = expected(make_case(**{name: array})).output
    rows = np.isnan(output).all(axis=-1)[0, 0]
    assert rows.tolist() == ([False, True, False] if name == "q" else [True] * 3)


def test_a_bias_of_minus_infinity_is_weight_0_and_gradient_0():
    bias = np.array([0.5, -np.inf, 0.0, 1.0])[None, None, None]
    result = expected(make_case(bias=bias))
    mask = np.isfinite(bias)
    without = make_case(bias=np.where(mask, bias, 0.0), mask=mask)
    blocked, allowed = expected(without), rounding(without)
    for name in allowed:
        # Both err, by sums of three or four terms.
        error = np.abs(getattr(result, name) - getattr(blocked, name))
        assert (error <= 2 * allowed[name]).all(), name
    assert np.array_equal(result.weights, blocked.weights)
    for name in ("dk", "dv"):
        assert not getattr(result, name)[:, :, 1].any()
    assert result.dbias[..., 1] == 0
    key = make_case().inputs["k"].copy()
    key[0, 0, 1] = np.nan
    assert np.isnan(expected(make_case(bias=bias, k=key)).output).all()


def test_a_row_of_only_minus_infinity_is_empty():
    bias = np.where(EMPTY_ROW.any(axis=-1, keepdims=True), 0.0, -np.inf)
    result = expected(make_case(bias=bias))
    assert not result.output[0, 0, 1].any()
    assert result.lse[0, 0, 1] == -np.inf
    assert not result.weights[0, 0, 1].any()
    assert not result.dq[0, 0, 1].any()
    assert result.dbias[0, 0, 1] == 0


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_a_bias_of_plus_infinity_or_nan_gives_nan(value):
    bias = np.zeros((1, 1, 3, 4))
    bias[0, 0, 2, 1] = value
    result = expected(make_case(bias=bias))
    assert np.isnan(result.output[0, 0, 2]).all()
    assert np.isnan(result.lse[0, 0]).tolist() == [False, False, True]


def assert_same(got, want):
    for name in ("output", "lse", "weights", "dq", "dk", "dv", "dbias"):
        if getattr(want, name) is not None:
            assert np.array_equal(getattr(got, name), getattr(want, name)), name

"""What many elements show together, on outputs that are made by hand."""

from dataclasses import replace

import numpy as np
import pytest

from attncheck.budget import PROFILES, derive, nearest, output_dtype, pool, sample
from attncheck.budget.rounding import gamma
from attncheck.budget.statistics import Pooled
from attncheck.case import DTYPES, Case
from attncheck.definition import expected

PROFILE = PROFILES["tensor-core"]


def make_case(seed, dtype="BF16", *, i=64, j=96, d=16):
    rng = np.random.default_rng(seed)
    shapes = {"q": (1, 2, i, d), "k": (1, 2, j, d), "v": (1, 2, j, d)}
    arrays = {
        n: rng.standard_normal(s).astype(DTYPES[dtype]) for n, s in shapes.items()
    }
    return Case(id=f"case {seed}", clauses=(), why="", dtype=dtype, inputs=arrays)


def output(
    case, *, gain=1.0, truncate=False, cut_weights=False, excess=0.0, of_maximum=1.0
):
    """float64 attention with rounded weights, rounded once at the end."""
    q, k, v = (case.inputs[n].astype(np.float64) for n in "qkv")
    storage = DTYPES[case.dtype]
    s = q @ np.swapaxes(k, -1, -2) * case.scale_value
    p = np.exp(s - s.max(axis=-1, keepdims=True))
    used = nearest(p, storage)
    used = (
        np.where(used > p, nearest(p * (1 - 2.0**-8), storage), used)
        if (cut_weights)
        else used
    )
    summed = np.where(p == 1, of_maximum, p)
    out = gain * (used @ v) / summed.sum(axis=-1, keepdims=True)
    noise = np.random.default_rng(0).standard_normal(out.shape)
    out = out * (1 + excess * 2.0**-8 * noise)
    rounded = nearest(out, storage)
    if truncate:
        step = np.spacing(np.abs(out).astype(np.float32)) * 2.0**16
        rounded = np.sign(out) * np.floor(np.abs(out) / step) * step
    return rounded


def one_sample(seed, dtype="BF16", profile=PROFILE, j=96, **fault):
    case = make_case(seed, dtype, j=j)
    want = expected(case)
    budget = derive(case, want, profile)
    return sample(case, want, budget, profile, output(case, **fault))


def pooled(seeds, dtype="BF16", **fault):
    return pool([one_sample(seed, dtype, **fault) for seed in seeds])


@pytest.mark.parametrize("dtype", ["BF16", "F16"])
def test_a_correct_kernel_passes(dtype):
    found = pooled(range(8), dtype)
    assert found.rows == 8 * 2 * 64
    assert found.judged
    assert found.passes
    assert 0.5 < found.rms <= 1.0


def test_a_gain_far_below_the_bound_of_any_element_is_found():
    gain = 1 + 2.0**-10
    found = pooled(range(8), gain=gain)
    assert found.rms < 1.15
    assert not found.passes
    assert found.gain == pytest.approx(gain - 1, abs=found.gain_error * 4)


def test_an_error_of_exp_at_the_maximum_is_a_gain_that_a_coarse_exp_may_have():
    """In the row sum alone, as rounding takes it out of the weight of 1."""
    error = 2.0**-13
    coarse = PROFILES["tensor-core+exp"]
    given = {"dtype": "F16", "j": 16, "of_maximum": 1 - error}
    assert pooled(range(16), profile=coarse, **given).passes
    found = pooled(range(16), **given)
    assert found.gain > found.gain_limit
    too_much = given | {"of_maximum": 1 - 256 * error}
    assert not pooled(range(16), profile=coarse, **too_much).passes


def test_an_output_that_is_cut_off_instead_of_rounded_has_a_gain():
    """The mean of the digits that are cut off is half a unit in the last place."""
    found = pooled(range(8), truncate=True)
    assert found.gain < -found.gain_limit
    assert not found.passes


def merged_heads(seed):
    rng = np.random.default_rng(seed)
    n, h, d, c = 4, 2, 8, 24
    arrays = {
        "x": rng.standard_normal((1, 96, c)),
        "w_q": rng.standard_normal((c, n, d)) / c**0.5,
        "w_k": rng.standard_normal((c, h, d)) / c**0.5,
        "w_v": rng.standard_normal((c, h, d)) / c**0.5,
        "w_o": rng.standard_normal((n, d, c)) / (n * d) ** 0.5,
    }
    arrays = {n: a.astype(DTYPES["BF16"]) for n, a in arrays.items()}
    return Case(id=f"{seed}", clauses=(), why="", dtype="BF16", inputs=arrays)


@pytest.mark.parametrize("cut", [False, True])
def test_merged_heads_that_are_cut_off_have_a_gain(cut):
    samples = []
    for case in map(merged_heads, range(8)):
        want = expected(case)
        got = nearest(want.output, DTYPES["BF16"])
        if cut:
            bits = want.output.astype(np.float32).view(np.uint32)
            got = (bits & np.uint32(0xFFFF0000)).view(np.float32)
        budget = derive(case, want, PROFILE)
        samples.append(sample(case, want, budget, PROFILE, got))
    found = pool(samples)
    assert found.rows == 8 * 96
    assert found.passes == (not cut)
    assert (found.gain < -found.gain_limit) == cut


def test_a_long_case_does_not_excuse_the_gain_of_short_ones():
    """Each case allows its own γ; of all together their mean, by what they weigh."""
    small, large = (
        replace(made, gain=gain)
        for made, gain in zip(map(one_sample, (0, 1)), (1e-6, 1e-3), strict=True)
    )
    large = replace(large, expected=large.expected * 1e-6)
    found = pool([small, large])
    assert found.gain_limit - 6 * found.gain_error == pytest.approx(1e-6, rel=1e-3)
    alike = pool([small, replace(large, gain=1e-6)])
    assert found.gain == alike.gain


def test_weights_that_are_cut_off_while_their_sum_is_not_have_a_gain():
    assert not pooled(range(8), cut_weights=True).passes


def test_noise_in_excess_is_found_by_its_size():
    found = pooled(range(8), excess=1.0)
    assert found.rms > 1.15
    assert not found.passes


def test_too_few_rows_are_not_judged():
    found = pooled(range(2), gain=1.5)
    assert found.rows == 256
    assert not found.judged
    assert found.passes


def test_nothing_pools_to_nothing():
    found = pool([])
    assert (found.rows, found.rms, found.gain) == (0, 0.0, 0.0)


def test_the_gain_is_that_of_weighted_least_squares():
    """Against numpy's least squares, and rows as clusters written out."""
    case = make_case(1)
    want = expected(case)
    one = sample(case, want, derive(case, want, PROFILE), PROFILE, output(case))
    weight = np.sqrt(1 / (one.variance + one.linear**2))
    y, e = (weight * one.expected).ravel(), (weight * one.error).ravel()
    slope = np.linalg.lstsq(y[:, None], e, rcond=None)[0][0]
    rows = ((e - slope * y) * y).reshape(one.error.shape).sum(axis=1)
    error = np.sqrt((rows**2).sum()) / (y**2).sum()
    found = pool([one])
    assert found.gain == pytest.approx(slope)
    assert found.gain_error == pytest.approx(error)
    assert found.gain_limit == pytest.approx(gamma(104, 2.0**-24) + 6 * error)


def test_rows_that_attend_nothing_are_not_counted():
    case = make_case(0)
    mask = np.ones((1, 2, 64, 96), bool)
    mask[:, :, ::2] = False
    case = replace(case, inputs=case.inputs | {"mask": mask})
    want = expected(case)
    got = want.output.astype(output_dtype(case, "output"))
    found = pool([sample(case, want, derive(case, want, PROFILE), PROFILE, got)])
    assert found.rows == 64


def test_a_case_whose_roundings_coincide_has_no_sample():
    case = make_case(0)
    case = replace(case, inputs=case.inputs | {"k": 0 * case.inputs["k"]})
    want = expected(case)
    with pytest.raises(ValueError, match="case 0: k has few distinct values"):
        sample(case, want, derive(case, want, PROFILE), PROFILE, output(case))


def test_rows_that_share_a_rounding_have_no_gain():
    """A row's greatest weight is 1: times the factor of dropout, one number."""
    case = make_case(0)
    keep = np.random.default_rng(0).random((1, 2, 64, 96)) < 0.7
    dropped = replace(
        case, inputs=case.inputs | {"dropout_keep": keep}, dropout_rate=0.3
    )
    tf32 = PROFILES["tf32"]
    for one, profile, name in [
        (dropped, PROFILE, "output"),
        (make_case(0, "F32"), tf32, "output"),
        (case, PROFILE, "lse"),
    ]:
        want = expected(one)
        budget = derive(one, want, profile)
        found = sample(one, want, budget, profile, getattr(want, name), name=name)
        assert found.gain is None
        assert pool([found]).gain == 0


@pytest.mark.parametrize(
    ("rows", "limit"), {1: 2.84, 60: 1.383, 105: 1.3, 106: 1.3, 5000: 1.3}.items()
)
def test_a_case_is_noisy_beyond_five_deviations_of_its_rows_or_1_3(rows, limit):
    for rms, noisy in [(limit - 0.01, False), (limit + 0.01, True)]:
        assert Pooled(rows, rms, 0.0, 0.0, 0.0).is_noisy == noisy

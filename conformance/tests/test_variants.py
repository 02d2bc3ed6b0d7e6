"""Variants: the model is right, and every variant of it is wrong somewhere."""

import re
from dataclasses import replace

import numpy as np
import pytest

from attncheck.case import DTYPES
from attncheck.exchange import Result
from attncheck.judging import Judge
from attncheck.suite import cases
from attncheck.variants import BY_NAME, FAULTS, VARIANTS, Variant
from attncheck.variants.model import Model
from attncheck.verdict import judge
from attnref.spec import Conventions

JUDGE = Judge()
F32 = cases("smoke", ["F32"])
MODEL = Variant("model", "It is right.", Model)


def verdict(variant, case, profile="strict", *, stores=False):
    result = Result(case.id, "done", arrays=variant.run(case, stores=stores))
    bounds = JUDGE.budget(case, profile).bounds
    return judge(case, JUDGE.expected(case), bounds, result)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_model_is_right(dtype):
    is_half = DTYPES[dtype].itemsize == 2
    profile = "tensor-core" if is_half else "strict"
    for case in cases("smoke", [dtype]):
        assert verdict(MODEL, case, profile, stores=is_half).status == "pass", case.id


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: v.name)
def test_a_variant_computes_something_else(variant):
    def changed(case):
        right = MODEL.results(case)
        return any(
            not np.array_equal(right[name], wrong, equal_nan=True)
            for name, wrong in variant.results(case).items()
            if name in case.wants
        )

    every = F32 + [case for d in ("F64", "BF16") for case in cases("smoke", [d])]
    assert any(changed(case) for case in every)


CHANGED = [
    "softmax-base-two",
    "softmax-plus-one",
    "softmax-plus-one-in-output",
    "dropout-before-softmax",
    "dropout-before-softmax-rescaled",
]
"""Other formulas, of which the gradients are those of what they compute."""

F64 = {case.id.partition("/")[0]: case for case in cases("smoke", ["F64"])}


@pytest.mark.parametrize("of", ["q", "k", "v", "bias"])
@pytest.mark.parametrize("case", ["lse-gradient-causal", "softcap-bias", "dropout"])
@pytest.mark.parametrize("name", CHANGED)
def test_gradients_are_the_slopes_of_another_formula(name, case, of):
    case, variant = F64[case], BY_NAME[name]
    if of not in case.inputs:
        pytest.skip(f"the case has no {of}")
    rng = np.random.default_rng(7)
    way = rng.standard_normal(case.inputs[of].shape)

    def loss(step):
        moved = case.inputs[of] + step * way
        found = variant.results(replace(case, inputs=case.inputs | {of: moved}))
        lse = np.where(found["lse"] == -np.inf, 0.0, found["lse"])
        d_lse = case.inputs.get("d_lse", np.zeros_like(lse))
        return (found["output"] * case.inputs["d_out"]).sum() + (lse * d_lse).sum()

    # Central differences at h and 2 h: what is left is of order h^4, about 1e-12 of the
    # loss, and its rounding over h, about 1e-12 as well.
    h = 1e-3
    slope = (8 * (loss(h) - loss(-h)) - (loss(2 * h) - loss(-2 * h))) / (12 * h)
    along = (variant.results(case)[f"d{of}"] * way).sum()
    assert along == pytest.approx(slope, rel=1e-6, abs=1e-8)


def test_float64_in_float32_is_what_numpy_makes_in_float32():
    """The errors are as large as those of the plain steps in float32."""
    case = F64["bias-large"]
    found = BY_NAME["float-64-in-float-32"].results(case)["output"]
    right = MODEL.results(case)["output"]
    q, k, v, bias = (case.inputs[n].astype(np.float32) for n in ("q", "k", "v", "bias"))
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    x = q @ k.swapaxes(2, 3) * np.float32(case.scale_value) + bias
    x = np.where(case.inputs.get("mask", True), x, np.float32(-np.inf))
    p = np.exp(x - x.max(axis=3, keepdims=True))
    plain = p / p.sum(axis=3, keepdims=True) @ v
    assert plain.dtype == np.float32
    ours, theirs = (np.sqrt(np.mean((y - right) ** 2)) for y in (found, plain))
    assert theirs / 2 < ours < theirs * 2


def test_names_and_sentences():
    assert len(BY_NAME) == len(FAULTS)
    assert len(VARIANTS) >= 60
    for variant in BY_NAME.values():
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", variant.name), variant.name
        assert variant.sentence.endswith("."), variant.name
        assert re.fullmatch(r"([\w.-]+/[\w.-]+#\d+)?", variant.reference), variant.name


def test_a_changed_convention_is_a_value_of_its_field():
    for variant in VARIANTS:
        if variant.convention is not None:
            assert Conventions(**dict([variant.convention])).differences()

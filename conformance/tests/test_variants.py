"""Variants: the model is right, and every variant of it is wrong somewhere."""

import re

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

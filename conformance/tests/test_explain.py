"""Diagnosis: a mistake is named by what it makes of the cases, or nothing is."""

from dataclasses import replace

import numpy as np
import pytest

from attncheck.exchange import Result
from attncheck.explain import Evidence, explain
from attncheck.judging import Judge
from attncheck.report import words
from attncheck.report.summary import diagnosis_record
from attncheck.suite import cases
from attncheck.variants import BY_NAME, Variant, together
from attncheck.variants.model import Model
from attncheck.variants.readings import hidden_first, sized
from attncheck.verdict import judge

JUDGE = Judge()
F32 = cases("smoke", ["F32"])
"""Of one type, to be quick."""


def evidence(call, chosen=F32, profile="strict"):
    """What is known of an implementation, `call(case)` → arrays by name."""
    found = []
    for case in chosen:
        got, want = call(case), JUDGE.expected(case)
        bounds = JUDGE.budget(case, profile).bounds
        verdict = judge(case, want, bounds, Result(case.id, "done", arrays=got))
        found.append(Evidence(verdict, got, want, bounds))
    return found


@pytest.mark.parametrize(
    "name",
    [
        "mask-inverted",
        "causal-upper-left",
        "window-left-exclusive",
        "fill-ten-thousand",
        "scale-by-model-width",
        "softcap-before-scale",
        "bias-of-next-head",
        "output-not-rescaled",
        "lse-base-two",
        "heads-tiled",
        "heads-unsplit",
        "delta-omitted",
        "scores-rounded",
    ],
)
def test_a_mistake_is_named(name):
    (found,) = explain(evidence(BY_NAME[name].run))
    assert found.names == (name,)
    assert found.causes[0].cases == found.failing


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("output-not-rescaled", sized(BY_NAME["output-not-rescaled"].model, tile=32)),
        (
            "splits-averaged",
            sized(BY_NAME["splits-averaged"].model, parts=3, counts_empty=False),
        ),
        ("lse-of-last-part", sized(BY_NAME["lse-of-last-part"].model, parts=4)),
        ("keys-of-first-batch", hidden_first(BY_NAME["keys-of-first-batch"].model)),
    ],
)
def test_a_mistake_is_named_in_other_readings(name, model):
    (found,) = explain(evidence(replace(BY_NAME[name], model=model).run))
    assert found.names == (name,)


def test_gradients_of_nan_under_right_results_need_no_name():
    """The way in which a program takes a gradient is not what is wrong with it."""

    def call(case):
        if case.id == "softcap/F32":
            right = Variant("model", "It is right.", Model).run(case)
            return right | {"dq": np.full_like(right["dq"], np.nan)}
        return BY_NAME["softcap-before-scale"].run(case)

    (found,) = explain(evidence(call))
    assert found.names == ("softcap-before-scale",)
    assert "softcap/F32" in found.failing
    assert "softcap/F32" not in found.causes[0].cases


def test_two_mistakes_at_once_are_both_named():
    both = together([BY_NAME["scale-by-width"], BY_NAME["blocked-value-leaks"]])
    (found,) = explain(evidence(both.run))
    assert found.names == ("scale-by-width", "blocked-value-leaks")


def test_what_no_case_tells_apart_is_said():
    plain = [case for case in F32 if case.id == "plain/F32"]
    (found,) = explain(evidence(BY_NAME["scale-missing"].run, plain))
    alike = [variant.name for variant in found.causes[0].alike]
    assert {"scale-missing", *found.names, *alike} == {*found.names, *alike}
    assert not alike or "or, no case" in "".join(
        words.diagnosis(diagnosis_record(found))
    )


def test_the_same_mistake_in_several_types_is_one_diagnosis():
    small = [c for c in cases("smoke") if c.id.startswith(("plain/", "scale-"))]
    (found,) = explain(evidence(BY_NAME["scale-twice"].run, small, "tensor-core"))
    assert set(found.dtypes) == {"F32", "F64", "BF16", "F16"}
    assert found.names == ("scale-twice",)


def test_nothing_is_named_that_is_not_known():
    def odd(case):
        right = {
            n: a.copy() for n, a in together([BY_NAME["nan-hidden"]]).run(case).items()
        }
        out = right["output"]
        right["output"] = (out + np.sin(np.arange(out.size)).reshape(out.shape)).astype(
            out.dtype
        )
        return right

    (found,) = explain(evidence(odd))
    assert found.names == ()
    assert words.diagnosis(diagnosis_record(found))[0].startswith(
        "nothing known explains"
    )


def test_a_passing_case_contradicts():
    wrong = BY_NAME["mask-inverted"]

    def only_one(case):
        name = "mask-inverted" if case.id == "mask-random/F32" else "nan-hidden"
        return (wrong if name == "mask-inverted" else BY_NAME["lse-after-dropout"]).run(
            case
        )

    chosen = [c for c in F32 if "mask" in c.inputs and "dropout_keep" not in c.inputs]
    (found,) = explain(evidence(only_one, chosen))
    assert "mask-inverted" not in found.names


def test_no_failure_no_diagnosis():
    assert explain(evidence(BY_NAME["float-64-in-float-32"].run)) == []

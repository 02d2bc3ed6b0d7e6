"""The expected values are certified, and the certificate is one of today's cases."""

import json
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from flint import arb, ctx, fmpq

from attncheck import certify, definition
from attncheck.case import DTYPES, Case

EVIDENCE = Path(__file__).parents[2] / "docs" / "evidence" / "certification.json"
SMOKE = {case.id: case for case in certify.chosen("smoke")}

HANDFUL = (
    "plain",
    "softcap-saturated",
    "bias-shared-by-keys",
    "bias-minus-inf-row",
    "bias-plus-inf",
    "blocked-key-nan",
    "empty-rows-nan",
    "inf-value",
    "nan-query",
    "dropout",
    "queries-subnormal",
    "no-keys",
    "scores-falling",
)


# ------------------------------------------------------------------ the evidence


@pytest.fixture(scope="module")
def evidence():
    return json.loads(EVIDENCE.read_text(encoding="utf-8"))


def test_the_evidence_is_of_the_smoke_set_as_it_is_today(evidence):
    again = "run `nox -s certify`"
    assert evidence["set"] == "smoke"
    assert set(evidence["shares"]) == set(SMOKE), again
    assert evidence["sha256"] == certify.digest(list(SMOKE.values())), again


def test_the_evidence_shows_that_everything_holds(evidence):
    assert evidence["limit"] == certify.LIMIT == 1e-3
    assert max(evidence["shares"].values()) <= evidence["limit"]


def test_the_evidence_has_every_result_that_a_case_wants(evidence):
    wanted = {(case.dtype, name) for case in SMOKE.values() for name in case.wants}
    worst = evidence["worst"]
    assert wanted == {(dtype, name) for dtype in worst for name in worst[dtype]}


def test_other_cases_have_another_digest():
    first, second, *_ = SMOKE.values()
    assert certify.digest([first, second]) == certify.digest([second, first])
    renamed = replace(first, id="renamed")
    changed = replace(first, inputs=dict(first.inputs) | {"q": -first.inputs["q"]})
    for other in (renamed, changed):
        assert certify.digest([other]) != certify.digest([first])


def test_judging_needs_no_arb():
    code = """
import sys
sys.modules["flint"] = None
import attncheck.cli
from attncheck import certify, definition
from attncheck.suite import cases
definition.expected(cases("smoke", ["F64"])[0])
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# ------------------------------------------------------------------ the proof


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [*HANDFUL, "multi-head"])
def test_cases_are_certified(name, dtype):
    if name == "multi-head":
        name = next(
            case.id.split("/")[0]
            for case in SMOKE.values()
            if case.op == "multi_head_attention"
        )
    case = SMOKE[f"{name}/{dtype}"]
    proofs = certify.certify(case)
    assert set(proofs) == set(case.wants)
    assert all(proof.holds for proof in proofs.values()), proofs


@pytest.fixture
def wrong(monkeypatch):
    """Certifies a case of which one element of what is expected is edited."""

    def run(edit, name, case="blocked-value-nan/F32"):
        case = SMOKE[case]
        want = definition.expected(case)
        values = getattr(want, name).copy()
        edit(values, certify.budget(case, want, certify.PROFILES["strict"])[name])
        monkeypatch.setattr(
            certify, "expected", lambda case: replace(want, **{name: values})
        )
        return certify.certify(case)

    return run


def nudge(by):
    def edit(values, bounds):
        at = np.unravel_index(bounds.argmax(), bounds.shape)
        values[at] += by * bounds[at]

    return edit


@pytest.mark.parametrize("name", ["output", "lse", "dq", "dk", "dv"])
def test_a_value_that_is_off_by_more_than_the_limit_is_not_certified(wrong, name):
    assert wrong(nudge(0.9e-3), name)[name].holds
    proofs = wrong(nudge(-1.1e-3), name)
    assert not proofs[name].holds
    assert all(proof.holds for other, proof in proofs.items() if other != name)


def test_what_must_be_exact_is_certified_only_if_it_is(wrong):
    def edit(weights, bounds):
        weights[tuple(np.argwhere(bounds == 0)[0])] = 1e-300

    assert wrong(edit, "weights")["weights"].share == np.inf


@pytest.mark.parametrize(
    ("case", "name", "value"),
    [
        ("plain/F32", "output", np.nan),
        ("plain/F32", "output", np.inf),
        ("nan-query/F32", "output", 0.0),
        ("inf-value/F32", "output", 1e38),
        ("inf-value/F32", "output", -np.inf),
        ("empty-rows/F32", "lse", -1e300),
    ],
)
def test_nan_and_infinities_are_certified_only_where_they_must_be(
    wrong, case, name, value
):
    def edit(values, bounds):
        special = ~np.isfinite(values)
        values[special if special.any() else ...] = value

    assert wrong(edit, name, case)[name].share == np.inf


# ------------------------------------------------------------------ the balls


def small_case(dtype="F32", **inputs):
    """Keys and values of small integers, so that closed forms are exact."""
    arrays = {
        "q": np.array([[[[2.0, 3.0]]]]),
        "k": np.array([[[[1.0, 4.0]]]]),
        "v": np.array([[[[5.0, -7.0, 0.5]]]]),
    } | inputs
    arrays = {name: array.astype(DTYPES[dtype]) for name, array in arrays.items()}
    return Case("small", (), "", dtype, arrays, scale=0.1)


def test_one_key_has_weight_1_and_the_scale_is_the_float64_one():
    true = certify.enclose(small_case())
    logit = Fraction(0.1) * 14
    assert true["scores"].item() == 14
    with ctx.workprec(2 * certify.BITS):
        assert true["lse"].item().contains(fmpq(logit.numerator, logit.denominator))
    for ball, want in zip(true["output"].ravel(), (5, -7, 0.5), strict=True):
        assert ball.contains(want)


def test_equal_keys_share_the_weight():
    keys = np.array([[[[1.0, 4.0], [4.0, 2.0]]]])
    values = np.array([[[[5.0, -7.0, 0.5], [1.0, 1.0, 1.0]]]])
    true = certify.enclose(small_case(k=keys, v=values))
    with ctx.workprec(2 * certify.BITS):
        lse = arb(14) * arb(0.1) + arb(2).log()
        assert true["lse"].item().contains(lse)
    for ball, want in zip(true["output"].ravel(), (3, -3, 0.75), strict=True):
        assert ball.contains(want)


def test_balls_are_far_smaller_than_what_they_decide():
    true = certify.enclose(SMOKE["scores-large/F32"])
    for name in ("output", "lse", "dq", "dk", "dv"):
        balls = true[name].ravel()
        largest = max(abs(float(ball)) for ball in balls)
        assert max(float(ball.rad()) for ball in balls) < 2.0**-100 * largest


# ------------------------------------------------------------------ the command


def test_the_command_writes_the_evidence(tmp_path):
    chosen = [SMOKE["plain/F64"], SMOKE["plain/F32"]]
    out = f"--out={tmp_path / 'new' / 'evidence.json'}"
    assert certify.main(["--case=plain/F[36]*", out]) == 0
    record = json.loads((tmp_path / "new" / "evidence.json").read_text("utf-8"))
    assert record["cases"] == 2
    assert list(record["shares"]) == ["plain/F64", "plain/F32"]
    assert record["sha256"] == certify.digest(chosen)
    elements = [
        getattr(definition.expected(chosen[0]), n).size for n in chosen[0].wants
    ]
    assert record["elements"] == 2 * sum(elements)


def test_a_case_that_there_is_not_is_an_error(capsys):
    with pytest.raises(SystemExit):
        certify.main(["--case=plane"])
    assert "no case matches 'plane'" in capsys.readouterr().err


def test_without_a_file_the_evidence_is_printed(monkeypatch, capsys):
    monkeypatch.setattr(certify, "chosen", lambda *_: [SMOKE["no-keys/F16"]])
    assert certify.main(["--set", "full"]) == 0
    assert json.loads(capsys.readouterr().out)["set"] == "full"


def test_there_is_no_evidence_if_something_is_not_proven(monkeypatch, capsys):
    monkeypatch.setattr(certify, "chosen", lambda *_: [SMOKE["plain/F32"]])
    monkeypatch.setattr(certify, "LIMIT", 1e-20)
    assert certify.main([]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "plain/F32 output: not proven" in err

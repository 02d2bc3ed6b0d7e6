"""A failing case is cut down to a small one, and printed as lines that run."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from attncheck.exchange import Result
from attncheck.explain import Evidence
from attncheck.judging import Judge
from attncheck.report.snippet import literal, snippet
from attncheck.shrink import shrink
from attncheck.suite import cases
from attncheck.variants import BY_NAME
from attncheck.verdict import Run, judge

from .test_explain import F32, JUDGE

SUBJECT = {"name": "mine.py:attention", "framework": "numpy", "profile": "strict"}


def known(variant, chosen):
    """What is known of a variant on cases, by id."""
    found = {}
    for case in chosen:
        got, want = variant.run(case), Judge().expected(case)
        bounds = JUDGE.budget(case, "strict").bounds
        verdict = judge(case, want, bounds, Result(case.id, "done", arrays=got))
        found[case.id] = Evidence(verdict, got, want, bounds)
    return found


def minimal(name, chosen=F32):
    variant = BY_NAME[name]
    verdicts = [one.verdict for one in known(variant, chosen).values()]
    run = Run(SUBJECT, verdicts)
    return shrink(run, lambda some: known(variant, some), "mine.py:attention")


@pytest.mark.parametrize(
    "name",
    [
        "mask-inverted",
        "causal-strict",
        "scale-by-width",
        "heads-tiled",
        "delta-omitted",
        "softcap-before-scale",
        "bias-of-next-head",
        "dropout-inverted",
        "lse-base-two",
        "output-not-rescaled",
        "heads-unsplit",
    ],
)
def test_a_small_case_fails_in_the_same_result(name):
    found = minimal(name)
    assert found.scores <= 32
    (one,) = known(BY_NAME[name], [found.case]).values()
    assert one.verdict.first_failure.name == found.finding.name


def test_what_the_mistake_does_not_need_is_left_out():
    chosen = [case for case in F32 if case.id == "bias-full/F32"]
    found = minimal("scale-by-width", chosen)
    assert set(found.case.inputs) == {"q", "k", "v"}
    assert found.case.predicate == {}


def test_nothing_to_shrink_where_nothing_fails():
    assert minimal("float-64-in-float-32") is None


def test_a_snippet_runs_without_the_judge(tmp_path):
    found = minimal("causal-strict")
    (tmp_path / "mine.py").write_text(
        "def attention(q, k, v, mask=None, scale=None):\n    return v\n", "utf-8"
    )
    text = snippet(found, "numpy", plain=True)
    assert "attncheck" not in text
    command = [sys.executable, "-c", text]
    ended = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert ended.stdout.startswith("got")
    assert "expected" in ended.stdout


def test_a_snippet_calls_an_option_as_the_function_does(tmp_path):
    found = minimal("causal-strict")
    (tmp_path / "mine.py").write_text(
        "def attention(q, k, v, allowed, scale=None):\n    return allowed\n", "utf-8"
    )
    text = snippet(found, "numpy", plain=True, words={"mask": "allowed"})
    command = [sys.executable, "-c", text]
    ended = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "got      [[[[ True" in ended.stdout


def test_a_snippet_of_a_built_in_subject_runs():
    found = replace(minimal("causal-strict"), target="attnref.numpy")
    command = [sys.executable, "-c", snippet(found, "numpy", plain=False)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "expected" in ended.stdout


@pytest.mark.parametrize("dtype", ["F64", "F32", "BF16", "F16"])
def test_literals_give_the_array_again(dtype):
    (case,) = (c for c in cases("smoke", [dtype]) if c.id.startswith("plain/"))
    array = case.inputs["q"]
    again = np.array(json.loads(literal(array))).astype(array.dtype)
    assert np.array_equal(again, array)
    assert all(len(line) <= 88 for line in literal(array).splitlines())


def test_what_json_cannot_hold():
    text = literal(np.array([np.nan, np.inf, -np.inf, 0.5], np.float32))
    assert text == '[float("nan"), float("inf"), -float("inf"), 0.5]'

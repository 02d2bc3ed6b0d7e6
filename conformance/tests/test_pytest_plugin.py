"""`pytest --pyargs attncheck --attn-subject …`: the cases as items of any pytest."""

import re
import subprocess
import sys
import tomllib
from dataclasses import fields
from importlib.metadata import entry_points
from pathlib import Path
from xml.etree import ElementTree

import pytest

from attncheck import __main__ as command
from attncheck import conformance, minilm
from attncheck.config import KEYS
from attncheck.pytest_plugin import OPTIONS
from attncheck.waivers import Waiver

pytest_plugins = ["pytester"]

PLUGIN = conformance.__name__.replace("conformance", "pytest_plugin")
IS_INSTALLED = any(e.value == PLUGIN for e in entry_points(group="pytest11"))
# Its assertions are not rewritten in a pytest within pytest, which warns of it.
LOAD = ("-W", "ignore::pytest.PytestAssertRewriteWarning")
LOAD += () if IS_INSTALLED else ("-p", PLUGIN)

SUBJECTS = """
import os
import time
import numpy as np
from attncheck.subject import Subject
from attnref.numpy import attention

open("imported", "w").close()

def right(q, k, v, *, mask=None):
    with open("calls", "a") as calls:
        calls.write("call\\n")
    k, v = (np.repeat(x, q.shape[1] // k.shape[1], axis=1) for x in (k, v))
    scores = q @ k.swapaxes(-1, -2) * q.dtype.type(q.shape[-1] ** -0.5)
    scores = scores if mask is None else np.where(mask, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v

def wrong(q, k, v, *, mask=None):
    return right(q, k, v) + (mask is not None)

def refuses(q, k, v, *, mask=None):
    if mask is None:
        return right(q, k, v)
    raise NotImplementedError("no mask yet")

def dies(q, k, v, *, mask=None):
    return right(q, k, v) if mask is None else os._exit(7)

def hangs(q, k, v, *, mask=None):
    return right(q, k, v) if mask is None else time.sleep(1e6)

def plain(q, k, v):
    return right(q, k, v)

def subtle(q, k, v, *, mask=None):
    return attention(q, k, v, mask=mask) * np.float32(1 + 6e-6)

unknown = Subject(
    call=right, framework="numpy", name="it", accepts=set(), profile="loose"
)
"""

CHOSEN = ("--attn-dtype", "F32", "--attn-case", "[cp]*a[iu]*[ne]/*")
PLAIN, *MASKED = NAMES = ["plain/F32", "causal-square/F32", "causal-decode/F32"]
"""All that are chosen; `law:` and `pooled` items need other cases."""


@pytest.fixture
def ask(pytester, monkeypatch):
    """Asks pytest about a function of `subjects.py`, without the real model."""
    monkeypatch.setattr(minilm, "available", lambda: "left out by the test")
    pytester.makepyfile(subjects=SUBJECTS)

    def run(name, *arguments, how=pytester.runpytest_inprocess):
        subject = ("--attn-subject", f"subjects.py:{name}") if name else ()
        return how(*LOAD, "--pyargs", "attncheck", *subject, *arguments)

    return run


def outcomes(ended):
    """Outcome → number, without what warnings there are."""
    return {k: n for k, n in ended.parseoutcomes().items() if k != "warnings"}


def number_of_calls(pytester):
    return (pytester.path / "calls").read_text("utf-8").count("\n")


def test_loading_the_plugin_imports_nothing_that_is_not_there_already():
    program = (
        "import sys, tempfile, pytest\n"
        "before = set(sys.modules)\n"
        f"import {PLUGIN}\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    run = (sys.executable, "-c", program)
    loaded = subprocess.run(run, check=True, capture_output=True, text=True)
    assert loaded.stdout.split() == ["attncheck", PLUGIN]


def test_the_plugin_is_silent_unless_it_is_asked(pytester):
    pytester.makepyprojecttoml("[tool.attncheck]\nx = 1\n")
    pytester.makepyfile(
        "import sys\n"
        "def test():\n"
        f"    assert {PLUGIN!r} in sys.modules\n"
        "    loaded = {name.partition('.')[0] for name in sys.modules}\n"
        "    assert not loaded & {'numpy', 'torch', 'jax', 'typer', 'rich'}\n"
    )
    ended = pytester.runpytest_subprocess(*LOAD, "-p", "no:hypothesispytest")
    ended.assert_outcomes(passed=1)
    said = re.sub("^plugins: .*$", "", ended.stdout.str(), flags=re.MULTILINE)
    assert "attn" not in said.replace(str(pytester.path), "")


def test_collecting_shows_readable_ids_and_does_not_run_the_subject(ask, pytester):
    ended = ask("right", *CHOSEN, "--collect-only", "-q")
    found = [line for line in ended.outlines if "::" in line]
    prefix = "attncheck.conformance::subjects.py:right::"
    assert found[: len(NAMES)] == [prefix + name for name in NAMES]
    assert found[len(NAMES) :] == [prefix + "pooled/F32", prefix + "clauses"]
    assert not (pytester.path / "imported").exists()


def test_a_right_subject_passes_and_what_does_not_apply_says_why(ask):
    ended = ask("plain", *CHOSEN, "-rs")
    # Beside the cases: clauses, and statistics, which need more of them.
    assert outcomes(ended) == {"passed": 2, "skipped": 3}
    assert ended.ret == 0
    ended.stdout.fnmatch_lines(
        [
            "attncheck: no real cases: left out by the test",
            "SKIPPED [[]2] *: not applicable: takes no `mask`",
            "SKIPPED * not judged: too few random errors",
        ]
    )


def test_a_failure_is_the_verdict_in_words_without_a_traceback(ask):
    ended = ask("wrong", *CHOSEN)
    assert outcomes(ended) == {"failed": 2, "passed": 2, "skipped": 1}
    ended.stdout.fnmatch_lines(
        [
            f"*subjects.py:wrong {MASKED[0]}*",
            "output[[]b=*]: got *, expected * (* ulps, * the budget)",
            "the budget there: *",
            "this case is there for: *",
            f"FAILED attncheck.conformance::subjects.py:wrong::{MASKED[0]} - output*",
        ]
    )
    assert "Error" not in ended.stdout.str()
    assert ".py:" not in ended.stdout.str().replace("subjects.py:", "")


def test_what_a_subject_does_to_its_process_is_a_verdict(ask):
    ended = ask("dies", *CHOSEN, "-k", f"{MASKED[0]} or {PLAIN}")
    assert outcomes(ended) == {"passed": 1, "failed": 1, "deselected": 3}
    ended.stdout.fnmatch_lines(["crash: the process ended itself with exit status 7"])
    ended = ask("hangs", *CHOSEN, "-k", MASKED[0], "--attn-timeout", "3")
    ended.stdout.fnmatch_lines(["timeout: no result within 3 s"])


def test_refusals_are_skipped_unless_nothing_else_shows_a_clause(ask):
    ended = ask("refuses", *CHOSEN, "-rs")
    ended.stdout.fnmatch_lines(
        [
            "clauses of which every case is refused: causal",
            "SKIPPED [[]2] *: refused: no mask yet",
        ]
    )
    assert outcomes(ended) == {"failed": 1, "passed": 1, "skipped": 3}


def test_where_nothing_applies_the_run_fails(ask):
    ended = ask("plain", "--attn-case", MASKED[0])
    assert outcomes(ended) == {"failed": 1, "skipped": 2}
    ended.stdout.fnmatch_lines(["nothing was judged: *"])


def test_items_are_selected_as_all_are(ask, pytester):
    assert outcomes(ask("wrong", *CHOSEN, "-x")) == {"passed": 1, "failed": 1}
    ended = ask("wrong", *CHOSEN, "--lf")
    assert outcomes(ended) == {"failed": 1, "deselected": 4}
    pytester.path.joinpath("calls").unlink()
    case = f"attncheck.conformance::subjects.py:wrong::{MASKED[0]}"
    given = ("--attn-subject", "subjects.py:wrong", "-q")
    ended = pytester.runpytest_inprocess(*LOAD, "--pyargs", case, *given)
    assert outcomes(ended) == {"failed": 1}
    assert number_of_calls(pytester) == 1  # no other case was run
    ended = ask("wrong", *CHOSEN, "-k", "head-order", "--collect-only", "-q")
    assert [line for line in ended.outlines if "::" in line] == [
        f"attncheck.conformance::subjects.py:wrong::{PLAIN}"  # by its clause
    ]


def test_properties_are_there_for_junit(ask, pytester):
    ask("wrong", *CHOSEN, "--junitxml=junit.xml")
    found = {}
    for element in ElementTree.parse(pytester.path / "junit.xml").iter("testcase"):
        properties = {p.get("name"): p.get("value") for p in element.iter("property")}
        found[element.get("name")] = properties
        assert element.get("classname") == "attncheck.conformance.subjects.py:wrong"
    assert found[PLAIN]["attncheck.profile"] == "tensor-core"
    assert 0 <= float(found[PLAIN]["attncheck.used.output"]) < 1
    assert float(found[PLAIN]["attncheck.seconds"]) >= 0
    assert float(found[MASKED[0]]["attncheck.used.output"]) > 1
    ask("right", "--attn-profile=strict", *CHOSEN, "--junitxml=junit.xml")
    assert 'value="strict"' in (pytester.path / "junit.xml").read_text("utf-8")


def test_two_xdist_workers_run_every_case_once(ask, pytester):
    chosen = ("--attn-dtype=F32", "--attn-case=[!r]*a*")
    ended = ask("right", *chosen, "-n", "2", how=pytester.runpytest_subprocess)
    shared, calls = outcomes(ended), number_of_calls(pytester)
    (pytester.path / "calls").unlink()
    assert shared == outcomes(ask("right", *chosen))
    assert shared["passed"] > 30
    # What a worker is at when the one that started it has no more items is run again.
    assert 0 <= calls - number_of_calls(pytester) <= 4


def test_laws_are_items(ask):
    ended = ask("right", "--attn-dtype=F32", "-k", "law:ones or law:repeat", "-v")
    ended.stdout.fnmatch_lines(["*::law:ones/F32 FAILED*"])
    ended.stdout.fnmatch_lines(["*::law:repeat/F32 PASSED*"])
    ended.stdout.fnmatch_lines(
        [
            "the law is broken: Values of 1 give 1, and an empty row 0.",
            "  law-ones/empty-rows/F32 output",
        ]
    )


def test_the_statistics_of_all_cases_are_an_item(ask):
    pooled = ("--attn-dtype=F32", "-k", "pooled", "-rsf")
    ended = ask("subtle", *pooled)
    ended.stdout.fnmatch_lines(
        [
            "all cases together: F32 output: *a gain of 6.0e-06 *",
            "FAILED *::subjects.py:subtle::pooled/F32 - *",
        ]
    )
    ended = ask(None, *pooled, "--attn-subject=attnref.numpy")
    assert outcomes(ended)["passed"] == 1
    ended = ask("right", *pooled)
    ended.stdout.fnmatch_lines(["SKIPPED * not judged: single cases say more"])


WAIVERS = """
[[waiver]]
case = "causal*"
dtype = "F32"
subject = "*:wrong"
reason = "masks are added"
issue = "https://example.org/1"
"""


def test_a_waived_failure_is_expected(ask, pytester):
    pytester.path.joinpath("w.toml").write_text(WAIVERS, "utf-8")
    ended = ask("wrong", *CHOSEN, "--attn-waivers=w.toml", "-rx")
    assert outcomes(ended) == {"xfailed": 2, "passed": 2, "skipped": 1}
    ended.stdout.fnmatch_lines([f"XFAIL *{MASKED[0]} - masks are added (https://*1)"])
    ended = ask("wrong", *CHOSEN, "--attn-waivers=w.toml", "--runxfail")
    assert outcomes(ended) == {"failed": 2, "passed": 2, "skipped": 1}


def test_what_is_waived_and_passes_fails(ask, pytester):
    text = WAIVERS.replace('"causal*"', '"plain*"').replace("*:wrong", "*:right")
    pytester.path.joinpath("w.toml").write_text(text, "utf-8")
    ended = ask("right", *CHOSEN, "--attn-waivers=w.toml", "-k", "plain")
    assert outcomes(ended) == {"failed": 1, "deselected": 4}
    ended.stdout.fnmatch_lines(
        ["waived but passes: delete the waiver: masks are added (https://*1)"]
    )


def test_a_waiver_about_no_case_warns(ask, pytester):
    text = WAIVERS.replace('"causal*"', '"causl*"')
    pytester.path.joinpath("w.toml").write_text(text, "utf-8")
    ended = ask("right", *CHOSEN, "--attn-waivers=w.toml", "-k", "plain")
    ended.stdout.fnmatch_lines(["*PytestWarning: w.toml: no case matches 'causl[*]'"])


def test_pyproject_says_what_to_judge(ask, pytester):
    pytester.path.joinpath("w.toml").write_text(WAIVERS, "utf-8")
    pytester.makepyprojecttoml(
        "[tool.attncheck]\nsubject = 'subjects.py:wrong'\ndtype = 'F32'\n"
        "waivers = 'w.toml'\n"
    )
    assert outcomes(ask(None, "--attn-case=causal*", "-x"))["xfailed"] > 1
    inner = pytester.mkdir("inner")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(inner)
        ended = ask(None, "--attn-case=plain/*", "-q")
    assert outcomes(ended)["passed"] >= 1


WRONG = {
    "no subject": (None, (), "", "say what to judge: --attn-subject my.module:f*"),
    "profile": ("right", ("--attn-profile=strikt",), "", "*did you mean 'strict'?"),
    "case": ("right", ("--attn-case=zzz",), "", "*no case of the set smoke matches*"),
    "waivers": (
        "right",
        ("--attn-waivers=none.toml",),
        "",
        "*no file of waivers 'none.toml'",
    ),
    "key": ("right", (), "profil = 'strict'", "*did you mean 'profile'?"),
}


@pytest.mark.parametrize(("name", "more", "table", "says"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_in_what_is_asked_is_one_sentence(
    ask, pytester, name, more, table, says
):
    if table:
        pytester.makepyprojecttoml(f"[tool.attncheck]\n{table}\n")
    ended = ask(name, *more)
    assert ended.ret == pytest.ExitCode.INTERRUPTED
    ended.stdout.fnmatch_lines([f"attncheck: {says}"])
    assert "Traceback" not in ended.stdout.str()
    assert not (pytester.path / "imported").exists()


def test_what_is_not_installed_is_named_with_how_to_install_it(ask, monkeypatch):
    monkeypatch.setattr(command, "NEEDS", ("typer", "no_such_module"))
    ended = ask("right")
    assert ended.ret == pytest.ExitCode.INTERRUPTED
    ended.stdout.fnmatch_lines(["attncheck needs no_such_module: pip install *"])
    assert "Traceback" not in ended.stdout.str()


def test_a_subject_without_pyargs_is_wrong_usage(ask, pytester):
    ended = pytester.runpytest_inprocess(*LOAD, "--attn-subject=subjects.py:right")
    assert ended.ret == pytest.ExitCode.USAGE_ERROR
    ended.stderr.fnmatch_lines(["*--attn-subject needs --pyargs attncheck beside it*"])


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("absent", "'subjects.py' has no 'absent'; it has *"),
        ("unknown", "*: profile is one of strict, *, not 'loose'"),
    ],
)
def test_what_cannot_be_judged_fails_once_and_is_skipped_from_then_on(ask, name, says):
    ended = ask(name, *CHOSEN, "-rs")
    assert outcomes(ended) == {"failed": 1, "skipped": 4}
    ended.stdout.fnmatch_lines([says, f"SKIPPED * not run: {says}"])


def test_the_page_has_every_option_every_setting_and_every_key():
    page = (Path(__file__).parents[2] / "docs" / "pytest.md").read_text("utf-8")
    assert set(re.findall(r"`--attn-(\w+)`", page)) == set(OPTIONS)
    blocks = re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    waivers, table = map(tomllib.loads, blocks)
    assert set(table["tool"]["attncheck"]) == set(KEYS)
    assert {key for entry in waivers["waiver"] for key in entry} == {
        field.name for field in fields(Waiver)
    }


def test_several_subjects_are_judged_beside_other_tests(ask, pytester):
    pytester.makepyfile(test_own="def test():\n    pass\n")
    ended = ask("right", "test_own.py", *CHOSEN, "--attn-subject=attnref.numpy", "-v")
    ended.stdout.fnmatch_lines(["test_own.py::test PASSED *"])
    ended.stdout.fnmatch_lines([f"*::subjects.py:right::{PLAIN} PASSED*"])
    ended.stdout.fnmatch_lines([f"*::attnref.numpy::{PLAIN} PASSED*"])

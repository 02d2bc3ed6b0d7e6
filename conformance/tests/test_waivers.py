"""A failure is expected where a file says so and why, and only as long as it fails."""

from dataclasses import replace

import numpy as np
import pytest

from attncheck.case import Case
from attncheck.definition import expected
from attncheck.exchange import Result
from attncheck.judging import Folder, Judge
from attncheck.suite import cases
from attncheck.verdict import Finding, Run, Verdict, Waived
from attncheck.waivers import Waiver, WaiverError, read, unmatched, waive

ONE = np.zeros((1, 1, 1, 1), np.float32)
CASE = Case("plain/F32", ("scores",), "Why.", "F32", {"q": ONE, "k": ONE, "v": ONE})
NAMES = ("my.py:f",)


def verdict(status, **results) -> Verdict:
    """A verdict of this status, with a finding for each result: pass or fail."""
    found = tuple(Finding(name, word) for name, word in results.items())
    return Verdict(CASE, status, findings=found)


def waiver(case="plain*", reason="known", **more) -> Waiver:
    return Waiver(case=case, reason=reason, **more)


FAILS = verdict("fail", output="fail", dq="pass", dk="not judged")
PASSES = verdict("pass", output="pass", dk="not judged")

EXPECTED = {
    "the case without its dtype": (FAILS, [waiver("plain")]),
    "the case": (FAILS, [waiver()]),
    "its dtype": (FAILS, [waiver(dtype="F32")]),
    "its subject": (FAILS, [waiver(subject="*my.py:*")]),
    "the result that fails": (FAILS, [waiver(result="output")]),
    "both that fail": (
        verdict("fail", output="fail", lse="fail"),
        [waiver(result="output"), waiver(result="lse")],
    ),
    "a crash": (verdict("crash"), [waiver()]),
    "a refusal": (verdict("refused"), [waiver()]),
}


@pytest.mark.parametrize(("found", "waivers"), EXPECTED.values(), ids=EXPECTED)
def test_a_failure_that_a_waiver_is_about_is_waived(found, waivers):
    after = waive(found, NAMES, waivers)
    assert after.waived is not None
    assert "known" in after.waived.reason
    assert after.outcome == "waived"
    assert after.status == found.status  # what happened is still said


UNTOUCHED = {
    "another case": (FAILS, [waiver("softcap*")]),
    "another dtype": (FAILS, [waiver(dtype="BF16")]),
    "another subject": (FAILS, [waiver(subject="theirs*")]),
    "another result": (FAILS, [waiver(result="lse")]),
    "one result of two": (
        verdict("fail", output="fail", lse="fail"),
        [waiver(result="output")],
    ),
    "a crash, where a result may fail": (verdict("crash"), [waiver(result="output")]),
    "not applicable": (verdict("not applicable"), [waiver()]),
    "a result that is not judged": (PASSES, [waiver(result="dk")]),
    "none": (FAILS, []),
}


@pytest.mark.parametrize(("found", "waivers"), UNTOUCHED.values(), ids=UNTOUCHED)
def test_no_waiver_is_about_more_than_it_says(found, waivers):
    assert waive(found, NAMES, waivers) == found


STALE = {
    "the case": (PASSES, [waiver()]),
    "the result": (PASSES, [waiver(result="output")]),
    "a result of a case that fails elsewhere": (FAILS, [waiver(result="dq")]),
    "one of two": (FAILS, [waiver(result="dq", reason="known"), waiver()]),
}


@pytest.mark.parametrize(("found", "waivers"), STALE.values(), ids=STALE)
def test_what_is_waived_and_passes_is_no_pass(found, waivers):
    after = waive(found, NAMES, waivers)
    assert after.waived == Waived("known", passes=True)
    assert after.outcome == "waived but passes"
    assert not Run({}, [after, replace(PASSES)]).conforms


def test_what_may_pass_is_waived_where_it_fails_and_passes_where_it_passes():
    sometimes = [waiver(may_pass=True)]
    assert waive(FAILS, NAMES, sometimes).outcome == "waived"
    assert waive(PASSES, NAMES, sometimes) == PASSES


def test_a_reason_is_given_with_its_issue():
    issue = "https://example.org/1"
    after = waive(FAILS, NAMES, [waiver(issue=issue), waiver(reason="second")])
    assert after.waived == Waived(f"known ({issue}); second")


def test_a_run_conforms_where_every_failure_is_waived_and_something_passes():
    waived = waive(FAILS, NAMES, [waiver()])
    assert Run({}, [PASSES, waived]).conforms
    assert Run({}, [PASSES, waived]).waived == {CASE.id}
    assert not Run({}, [waived]).conforms
    assert not Run({}, [PASSES, waived, FAILS]).conforms


def test_what_all_cases_show_together_leaves_out_what_is_waived():
    repeated = "law-repeat/plain/F32"
    ids = ("plain/F32", repeated, "decode/F32")
    chosen = [case for case in cases(dtypes=("F32",)) if case.id in ids]
    outputs = {case.id: expected(case).output for case in chosen}
    outputs[repeated] = outputs[repeated] + 1
    subject = {"name": "a", "profile": "strict"}
    results = {
        id: Result(id, "done", arrays={"output": array.astype(np.float32)})
        for id, array in outputs.items()
    }
    folder = Folder(chosen, results, subject)
    bare = Judge().run(folder)
    assert not bare.conforms
    assert bare.measured == {"F32": None}
    assert [holding.broken for holding in bare.laws if holding.broken]
    waived = Judge().run(folder, waivers=[waiver(repeated)])
    assert waived.conforms
    assert waived.measured == {"F32": "strict"}
    assert not [holding.broken for holding in waived.laws if holding.broken]


FILE = """
[[waiver]]
case = "no-keys*"
dtype = "F32"
result = "lse"
subject = "*my*"
reason = "no keys is an error"
issue = "https://example.org/1"
may_pass = true

[[waiver]]
case = "plain/F32"
reason = "why not"
"""


def test_a_file_is_read(tmp_path):
    path = tmp_path / "w.toml"
    path.write_text(FILE, "utf-8")
    assert read(path) == [
        Waiver(
            case="no-keys*",
            dtype="F32",
            result="lse",
            subject="*my*",
            reason="no keys is an error",
            issue="https://example.org/1",
            may_pass=True,
        ),
        Waiver(case="plain/F32", reason="why not"),
    ]
    path.write_text("", "utf-8")
    assert read(path) == []


WRONG = {
    "no reason": ("[[waiver]]\ncase = 'a'", "waiver 1 has no reason"),
    "no case": ("[[waiver]]\nreason = 'a'", "waiver 1 has no case"),
    "empty": ("[[waiver]]\ncase = 'a'\nreason = ' '", "reason is a string, not ' '"),
    "number": ("[[waiver]]\ncase = 1", "case is a string, not 1"),
    "no word": ("[[waiver]]\ncase='a'\nmay_pass='yes'", "may_pass is true or false"),
    "key": ("[[waiver]]\nreson = 'a'", "did you mean 'reason'?"),
    "dtype": ("[[waiver]]\ncase='a'\nreason='a'\ndtype='FP32'", "you mean 'F32'?"),
    "result": ("[[waiver]]\ncase='a'\nreason='a'\nresult='ouput'", "mean 'output'?"),
    "single": ("[waiver]\ncase = 'a'", "write [[waiver]], in double brackets"),
    "list": ("waiver = ['a']", "write [[waiver]], in double brackets"),
    "table": ("[[waivers]]\ncase = 'a'", "not 'waivers': did you mean 'waiver'?"),
    "toml": ("[[waiver", "Expected ']]'"),
}


@pytest.mark.parametrize(("text", "says"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_in_a_file_is_named_with_its_place(tmp_path, text, says):
    path = tmp_path / "w.toml"
    path.write_text(text, "utf-8")
    with pytest.raises(WaiverError) as caught:
        read(path)
    assert says in str(caught.value)
    assert str(caught.value).startswith(str(path))


def test_an_entry_about_no_case_of_any_set_is_unmatched():
    gone = waiver("causl*")
    assert unmatched([waiver("causal-square*"), gone]) == [gone]
    only_full = next(c for c in cases("full") if "@" in c.id)
    assert unmatched([waiver(only_full.id)]) == []
    assert unmatched([waiver("plain/F32", dtype="F16")]) != []

"""The JSON document says everything, and the other documents say what it says."""

import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from rich.console import Console

from attncheck.agreement import Agreement, ModelCheck
from attncheck.budget import Pooled
from attncheck.case import Case
from attncheck.explain import Cause, Diagnosis
from attncheck.report import as_html, print_text, summary
from attncheck.report.words import (
    amount,
    counted,
    counts,
    element,
    outcome,
    percent,
    share,
)
from attncheck.variants import BY_NAME
from attncheck.verdict import Finding, Noisy, Run, Verdict, Worst

EVIL = "<b>&\"'[red]"


def make_case(name, dtype="F32", clauses=("scores",), size=2) -> Case:
    inputs = {
        "q": np.zeros((1, 1, size, 1), np.float32),
        "k": np.zeros((1, 1, 2, 1), np.float32),
        "v": np.zeros((1, 1, 2, 1), np.float32),
    }
    return Case(f"{name}/{dtype}", clauses, f"Why {name} {EVIL}.", dtype, inputs)


SPLIT = {"weights": 0.75, "sums": 0.245, "underflow": 0.005}


def failing(name, result="logits", used=3.0, size=2, **worst) -> Verdict:
    place = Worst(
        {"b": 0, "n": 1}, **{"got": 1.5, "expected": 0.5, "ulps": 7.0} | worst
    )
    findings = (
        Finding("scores", "pass", 0.25),
        Finding(result, "fail", used, place, split=SPLIT),
        Finding("dq", "not judged"),
    )
    return Verdict(make_case(name, size=size), "fail", "", findings, 0.5)


def passing(name, dtype="F32", used=0.5) -> Verdict:
    findings = (Finding("scores", "pass", used), Finding("dq", "not judged"))
    return Verdict(make_case(name, dtype), "pass", "", findings, 0.25)


SUBJECT = {
    "name": f"mine.py:{EVIL}",
    "version": "numpy 2",
    "profile": "strict",
    "conventions": {"fill": -1e4},
}
GOOD = Run(
    SUBJECT | {"name": "good"},
    [passing("a"), passing("b", "BF16", 0.125)],
    measured={"F32": "strict", "BF16": "strict"},
)
BAD = Run(
    SUBJECT,
    [
        passing("fine"),
        failing("large", size=9),
        failing("small"),
        failing("unbounded", "output", np.inf, got=np.nan, ulps=np.nan),
        Verdict(make_case("gone", clauses=("dq",)), "crash", f"SIGSEGV {EVIL}"),
        Verdict(make_case("cut"), "not judged", "the subject left no result"),
        Verdict(make_case("other"), "not applicable", "takes no `bias`"),
    ],
    measured={"F32": None, "BF16": "eager"},
    damage=[f"results.jsonl:{line}: is no JSON {EVIL}" for line in range(1, 6)],
)
NOISY = Pooled(rows=600, rms=1.5, gain=2e-3, gain_error=1e-5, gain_limit=1e-4)
QUIET = Pooled(rows=600, rms=0.9, gain=0.0, gain_error=1e-5, gain_limit=1e-4)
EXCESSIVE = Run(
    SUBJECT | {"name": "excessive"},
    [passing("a")],
    measured={"F32": "strict"},
    pooled={("F32", "output"): NOISY, ("F32", "dq"): QUIET},
    warnings=[Noisy(f"a{EVIL}/F32", "output", 1.5 - n / 10) for n in range(5)],
)
AGREE = Agreement("good", "mine", "F32", 3, 0.995, 0.5, "a/F32 output")
MODEL = ModelCheck("good", "mine", 2e-6, 1e-6)


def text(report) -> str:
    """What the terminal shows, as one line with single spaces."""
    file = io.StringIO()
    print_text(report, Console(file=file, width=200, highlight=False))
    return " ".join(file.getvalue().split())


class Words(HTMLParser):
    """The words of a page, and its tags."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.data = [], []
        self.feed(page)
        self.text = " ".join(" ".join(self.data).split())

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)

    def handle_data(self, data):
        self.data.append(data)


@pytest.fixture(scope="module")
def report():
    return summary([GOOD, BAD], [AGREE], [MODEL])


def test_the_document_is_strict_json(report):
    assert json.loads(json.dumps(report, allow_nan=False)) == report


def test_the_document_has_these_keys(report):
    assert report.keys() == {
        "schema",
        "conforms",
        "clauses",
        "subjects",
        "agreement",
        "model",
        "model_missing",
    }
    assert report["schema"] == "attncheck-report/1"
    for subject in report["subjects"]:
        assert subject.keys() == SUBJECT.keys() | {
            "conforms",
            "laws",
            "counts",
            "dtypes",
            "clauses",
            "measured",
            "pooled",
            "warnings",
            "not_applicable",
            "results_not_judged",
            "diagnoses",
            "minimal",
            "clauses_failing",
            "clauses_not_judged",
            "failures",
            "damage",
            "seconds",
        }


def test_a_subjects_numbers_add_up(report):
    good, bad = report["subjects"]
    assert good["counts"] == {"pass": 2}
    assert bad["counts"] == {
        "pass": 1,
        "fail": 3,
        "crash": 1,
        "not judged": 1,
        "not applicable": 1,
    }
    assert (good["conforms"], bad["conforms"]) == (True, False)
    assert bad["seconds"] == 0.25 + 3 * 0.5
    assert good["dtypes"]["BF16"] == {
        "counts": {"pass": 1},
        "used": 0.125,
        "used_by": "b/BF16 scores",
    }
    assert bad["dtypes"]["F32"]["used"] == "inf"
    assert bad["dtypes"]["F32"]["used_by"] == "unbounded/F32 output"


def test_what_was_never_given_is_listed(report):
    assert [s["results_not_judged"] for s in report["subjects"]] == [["dq"], ["dq"]]
    assert [s["clauses_not_judged"] for s in report["subjects"]] == [[], ["dq"]]


def test_what_was_lost_of_the_files_is_said_in_every_document(report):
    assert [len(subject["damage"]) for subject in report["subjects"]] == [0, 5]
    shown = text(report)
    for line in (1, 2, 3):
        assert f"lost results.jsonl:{line}: is no JSON {EVIL}" in shown
    assert "lost 2 more lines; all: --format json" in shown
    page = Words(as_html(report))
    for line in range(1, 6):
        assert f"Lost: results.jsonl:{line}: is no JSON {EVIL}" in page.text


def test_why_cases_do_not_apply_is_said_in_every_document_the_most_first(report):
    assert [s["not_applicable"] for s in report["subjects"]] == [
        {},
        {"takes no `bias`": 1},
    ]
    whys = [f"{EVIL} {n}" for n in range(6) for _ in range(6 - n)]
    left = [Verdict(make_case("x"), "not applicable", why) for why in whys]
    report = summary([replace(GOOD, verdicts=[*GOOD.verdicts, *left])])
    (subject,) = report["subjects"]
    assert subject["not_applicable"] == {f"{EVIL} {n}": 6 - n for n in range(6)}
    said = "; ".join(f"{EVIL} {n} ({6 - n})" for n in range(4))
    assert f"not applicable: {said}; … and 2 more reasons" in text(report)
    page = Words(as_html(report)).text
    assert "21 cases not applicable" in page
    assert f"{EVIL} 0: 6 cases." in page
    assert f"{EVIL} 5: 1 case." in page


def test_a_diagnosis_says_which_failing_cases_it_does_not_count():
    """Three kinds of failing cases: by themselves, of laws, and not to be compared."""
    law = replace(failing("law"), case=replace(make_case("law"), law="ones", twin="a"))
    shape = Verdict(make_case("b"), "fail", "", (Finding("output", "fail", np.inf),))
    other = replace(failing("c"), case=make_case("c", "BF16"))
    verdicts = [failing("a"), failing("d"), law, shape, other]
    ids = ("a/F32", "d/F32")
    causes = tuple(Cause(BY_NAME[n], ids[:1]) for n in ("scale-twice", "empty-row-nan"))
    run = Run(SUBJECT, verdicts, diagnoses=[Diagnosis(("F32",), ids, causes)])
    (found,) = summary([run])["subjects"][0]["diagnoses"]
    assert found["failing"] == 2
    assert found["not_counted"] == {"of laws": 1, "of another shape or type": 1}
    left = "F32; not counted: 1 of laws, 1 of another shape or type"
    for said, of in ((causes, "all 2"), (causes[:1], "1 of 2"), ((), "the 2")):
        run = replace(run, diagnoses=[Diagnosis(("F32",), ids, said)])
        assert re.search(
            rf"{of} failing cases (pass )?\({left}\)", text(summary([run]))
        )
    lone = (causes[0], replace(causes[1], cases=()))
    run = replace(run, diagnoses=[Diagnosis(("F32",), ids, lone)])
    assert f"explain 1 of 2 failing cases ({left})" in text(summary([run]))


def test_one_failing_case_passes_and_a_name_without_version_has_no_gap():
    one = Diagnosis(("F32",), ("a/F32",), (Cause(BY_NAME["scale-twice"], ("a/F32",)),))
    subject = {"name": "a", "profile": "strict"}
    report = summary([Run(subject, [failing("a")], diagnoses=[one])])
    assert "1 of 1 failing case passes (F32)" in text(report)
    shown = io.StringIO()
    print_text(report, Console(file=shown))
    assert shown.getvalue().startswith("a  profile strict")


LEFT = {
    "ignored": ["attn_mask", f"rate{EVIL}", "sm_scale", "is_causal", "dropout_p"],
    "accepts": {"bias": "added"},
}


def test_what_is_never_given_is_said_in_every_document():
    report = summary([replace(GOOD, subject=GOOD.subject | LEFT)])
    lines = (
        f"eft at their defaults: {', '.join(LEFT['ignored'])}",
        "attn_mask may be the spec's mask, sm_scale may be the spec's scale: "
        "--accepts mask=attn_mask,scale=sm_scale,bias=added; "
        "True in a mask = may attend",
        "a causal mask or a window comes as a mask",
    )
    assert " ".join(lines) in text(report)
    assert " ".join(lines) in Words(as_html(report)).text
    assert "defaults" not in text(summary([GOOD]))


def test_everything_that_does_not_pass_is_a_failure_the_simplest_first(report):
    good, bad = report["subjects"]
    assert good["failures"] == []
    names = [failure["case"].partition("/")[0] for failure in bad["failures"]]
    assert set(names) == {"small", "large", "unbounded", "gone", "cut"}
    assert names.index("small") < names.index("large")


def test_a_failure_says_all_that_is_known(report):
    (failure,) = (f for f in report["subjects"][1]["failures"] if "small" in f["case"])
    assert failure == {
        "case": "small/F32",
        "dtype": "F32",
        "clauses": ["scores"],
        "why": f"Why small {EVIL}.",
        "status": "fail",
        "waived": None,
        "message": "",
        "step": "scale",
        "results": ["logits"],
        "first": {
            "name": "logits",
            "used": 3.0,
            "message": "",
            "split": SPLIT,
            "worst": {
                "index": {"b": 0, "n": 1},
                "got": 1.5,
                "expected": 0.5,
                "ulps": 7.0,
            },
        },
        "kind": 2,
        "cause": None,
        "heat": None,
    }


def test_failures_that_are_alike_are_of_one_kind(report):
    kinds = {f["case"]: f["kind"] for f in report["subjects"][1]["failures"]}
    assert kinds["small/F32"] == kinds["large/F32"]
    assert len(set(kinds.values())) == 4
    assert list(kinds.values()) == sorted(kinds.values())


def test_every_clause_has_a_cell_for_every_dtype(report):
    assert report["clauses"].keys() == {"scores", "dq"}
    good, bad = report["subjects"]
    assert good["clauses"]["scores"].keys() == {"F32", "BF16"}
    assert bad["clauses"]["dq"]["F32"] == {
        "counts": {"crash": 1},
        "used": 0.0,
        "used_by": None,
    }
    assert bad["clauses"]["scores"]["F32"]["used"] == "inf"


def test_what_was_measured_and_pooled_is_in_the_document():
    (subject,) = summary([EXCESSIVE])["subjects"]
    assert subject["measured"] == {"F32": "strict"}
    assert not subject["conforms"]
    assert subject["pooled"] == [
        {"dtype": "F32", "result": name, "passes": passes, **vars(pooled)}
        for name, passes, pooled in (("output", False, NOISY), ("dq", True, QUIET))
    ]


def test_warnings_are_in_every_document_and_conform():
    run = replace(GOOD, warnings=EXCESSIVE.warnings)
    assert run.conforms
    report = summary([run])
    (subject,) = report["subjects"]
    assert subject["warnings"][0] == {
        "case": f"a{EVIL}/F32",
        "result": "output",
        "rms": 1.5,
    }
    shown = f"a{EVIL}/F32 output: errors of {{:.2f}} times the expected size"
    for rms in (1.5, 1.4, 1.3, 1.2, 1.1):
        words = shown.format(rms)
        assert (f"warning {words}" in text(report)) == (rms > 1.25)
        assert f"Warning: {words}" in Words(as_html(report)).text
    assert "and 2 more warnings" in text(report)


def test_the_terminal_and_the_page_show_the_split_of_a_failure(report):
    shown = "weights 75 %, sums 24 %"
    assert f"the budget there: {shown}" in text(report)
    assert f"The budget there: {shown}." in Words(as_html(report)).text
    assert "underflow" not in text(report)


def test_the_terminal_and_the_page_show_another_measured_precision(report):
    assert "declared strict, measured: BF16 eager" in text(report)
    assert text(report).count("declared strict") == 1
    rows = "dtype declared measured F32 strict none BF16 strict eager"
    assert rows in Words(as_html(report)).text


def test_the_terminal_and_the_page_show_the_excess_of_all_cases_together():
    report = summary([EXCESSIVE])
    excess = (
        "F32 output: errors of 1.50 times the expected size (at most 1.15), "
        "a gain of 2.0e-03 (at most 1.0e-04)"
    )
    for shown in (text(report), Words(as_html(report)).text):
        assert excess in shown
        assert "F32 dq" not in shown


def test_numbers_that_json_lacks_are_strings(report):
    failures = report["subjects"][1]["failures"]
    (first,) = (f["first"] for f in failures if "unbounded" in f["case"])
    assert (first["used"], first["worst"]["got"]) == ("inf", "nan")


WORSE = AGREE.__class__(**vars(AGREE) | {"worst": 1.5})
MODEL_PASSES = ModelCheck("good", "mine", 1e-7, 1e-6)


@pytest.mark.parametrize(
    ("runs", "agreement", "model", "conforms"),
    [
        ([GOOD], [], [], True),
        ([GOOD], [AGREE], [MODEL_PASSES], True),
        ([GOOD, BAD], [], [], False),
        ([GOOD], [WORSE], [], False),
        ([GOOD], [], [MODEL], False),
    ],
    ids=["one", "all", "subject", "agreement", "model"],
)
def test_the_whole_conforms_where_every_part_does(runs, agreement, model, conforms):
    report = summary(runs, agreement, model)
    assert report["conforms"] is conforms
    said = Words(as_html(report)).text
    assert ("judged: conforms" in said) is conforms
    assert ("judged: does not conform" in said) is not conforms


def test_the_page_holds_every_failure(report):
    words = Words(as_html(report)).text
    for failure in report["subjects"][1]["failures"]:
        for key in ("case", "why", "message"):
            assert " ".join(failure[key].split()) in words
        if failure["first"] and failure["first"]["worst"]:
            assert element(failure["first"]) in words
    assert "The first step that diverges is scale ." in words
    assert "Differs from the spec: fill = -10000.0" in words
    assert "Clauses of which no case was judged: dq" in words


def test_the_terminal_shows_the_simplest_of_alike_failures(report):
    shown = text(report)
    assert "fail small/F32 (and 1 more case)" in shown
    assert "large/F32" not in shown
    assert "first step that diverges: scale" in shown
    assert (
        "logits[b=0, n=1]: got 1.5, expected 0.5 (7 ulps, 300.0 % of the budget)"
        in shown
    )
    assert "output[b=0, n=1]: got nan, expected 0.5" in shown
    assert f"crash gone/F32 SIGSEGV {EVIL}" in shown
    assert "not judged cut/F32 the subject left no result" in shown
    assert f"this case is there for: Why small {EVIL}." in shown
    assert "clauses without a judged case: dq" in shown
    assert "differs from the spec: fill = -10000.0" in shown


def test_the_terminal_ends_with_what_it_comes_to(report):
    counted = "1 pass, 3 fail, 1 crash, 1 not judged, 1 not applicable"
    shown = text(report)
    assert shown.endswith(
        f"good conforms: 2 pass {SUBJECT['name']} does not conform: {counted}"
    )


def test_each_verdict_is_one_line_however_narrow_the_console():
    name = "a/very/long/folder/of/a/kernel/" * 4 + "mine.py:attention"
    file = io.StringIO()
    run = replace(BAD, subject=SUBJECT | {"name": name})
    print_text(summary([run]), Console(file=file, width=80, highlight=False))
    counted = "1 pass, 3 fail, 1 crash, 1 not judged, 1 not applicable"
    (*_, last) = file.getvalue().splitlines()
    assert last == f"{name} does not conform: {counted}"


def test_the_terminal_shows_a_table_of_subjects_and_of_pairs(report):
    shown = text(report)
    assert "good 1 of 1 1 of 1 not run 50.0 % 12.5 %" in shown
    assert "1 of 6 — not run ∞ ×" in shown
    assert "good 50.0 %, 99 %" in shown
    assert "good mine 2.0e-06 1.0e-06 FAIL" in shown


def test_a_single_subject_has_a_table_of_dtypes():
    shown = text(summary([GOOD]))
    assert "F32 1 of 1 50.0 % a/F32 scores BF16 1 of 1 12.5 % b/BF16 scores" in shown


def test_a_model_that_was_not_run_is_said_to_be_missing():
    report = summary([GOOD], model_missing="no tokenizers")
    assert "real model: not run: no tokenizers" in text(report)
    assert "Not run: no tokenizers" in Words(as_html(report)).text


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        (share(0.3704), "37.0 %"),
        (share("inf"), "∞ ×"),
        (share(810000.0), "8.1e+05 ×"),
        (percent(0.9999), "99 %"),
        (percent(1.0), "100 %"),
        (amount(3.21e-7), "3.2e-07"),
        (counted(1, "more case"), "1 more case"),
        (counted(2, "more case"), "2 more cases"),
        (counts({"counts": {"pass": 3, "fail": 1, "not applicable": 5}}), "3 of 4"),
        (counts({"counts": {"not judged": 2}}), "0 of 2"),
        (outcome({"counts": {"pass": 2}, "used": 0.37}), ("pass", "37.0 %")),
        (outcome({"counts": {"pass": 2, "fail": 1}, "used": 81.0}), ("FAIL", "81 ×")),
        (
            outcome({"counts": {"fail": 2, "crash": 1}, "used": 9.0}),
            ("crash", "1 of 3"),
        ),
        (outcome({"counts": {"waived": 1, "not applicable": 4}}), ("waived", "1 of 1")),
        (outcome({"counts": {"not applicable": 4}}), ("not applicable", "4 of 4")),
    ],
)
def test_numbers_as_words(shown, words):
    assert shown == words


def test_an_element_that_must_be_exact_says_so():
    worst = {"index": {"b": 0}, "got": 1e-30, "expected": 0.0, "ulps": "inf"}
    finding = {"name": "weights", "used": "inf", "worst": worst}
    assert element(finding) == "weights[b=0]: got 1e-30, expected 0 (must be exact)"

"""What passes, what fails, and what is said about it: all numbers made by hand."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from attncheck.case import DTYPES, INTERMEDIATES, RESULTS, Case
from attncheck.definition import Expected
from attncheck.exchange import Result
from attncheck.records import STATUSES
from attncheck.verdict import Run, Verdict, judge

SHAPES = dict.fromkeys(INTERMEDIATES, (1, 1, 2, 3)) | {
    "output": (1, 1, 2, 4),
    "lse": (1, 1, 2),
    "dq": (1, 1, 2, 5),
    "dk": (1, 1, 3, 5),
    "dv": (1, 1, 3, 4),
    "dbias": (1, 1, 1, 3),
}
"""b n h = 1, i = 2, j = 3, e = 4, d = 5."""


def make_case(dtype="F32", wants=("output",), clauses=("scores",), **options) -> Case:
    inputs = {
        "q": np.zeros((1, 1, 2, 5), DTYPES[dtype]),
        "k": np.zeros((1, 1, 3, 5), DTYPES[dtype]),
        "v": np.zeros((1, 1, 3, 4), DTYPES[dtype]),
    }
    inputs |= options.pop("inputs", {})
    return Case("made/x", clauses, "", dtype, inputs, wants=wants, **options)


def verdict(case, got, want=None, bound=None) -> Verdict:
    """The verdict; what is not given is 0, and must be."""
    wide = {name: np.zeros(shape) for name, shape in SHAPES.items()}
    visible = np.ones(SHAPES["scores"], bool)
    expected = Expected(visible=visible, heads=wide["output"], **wide)
    expected = replace(expected, **(want or {}))
    return judge(
        case, expected, wide | (bound or {}), Result(case.id, "done", arrays=got)
    )


def zeros(*names, dtype=np.float32):
    return {name: np.zeros(SHAPES[name], dtype) for name in names}


def one(case, number, want, bound=0.0) -> Verdict:
    """The verdict about an output that holds one number everywhere."""
    shape = SHAPES["output"]
    return verdict(
        case,
        {"output": np.full(shape, number, DTYPES[case.dtype])},
        {"output": np.full(shape, want, np.float64)},
        {"output": np.full(shape, bound, np.float64)},
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_element_passes_to_the_rounded_ends_of_its_interval_and_no_further(dtype):
    """1 ± 3.25u, where numbers are u apart below 1 and 2u above: from −3u to +4u."""
    case, u = make_case(dtype), 2.0 ** -(ml_dtypes.finfo(DTYPES[dtype]).nmant + 1)
    for steps, status in [(-4, "fail"), (-3, "pass"), (4, "pass"), (6, "fail")]:
        assert one(case, 1 + steps * u, 1, 3.25 * u).status == status, steps


@pytest.mark.parametrize("dtype", ["F32", "BF16", "F16"])
def test_without_a_bound_only_the_rounded_number_passes(dtype):
    case, u = make_case(dtype), 2.0 ** -(ml_dtypes.finfo(DTYPES[dtype]).nmant + 1)
    assert one(case, 1, 1 + u / 2).status == "pass"
    assert one(case, 1 + 2 * u, 1 + u / 2).status == "fail"
    assert one(case, 1 - u, 1 + u / 2).status == "fail"


def test_a_number_beyond_the_type_rounds_to_infinity():
    case = make_case("F16")
    assert one(case, np.inf, 70000).status == "pass"
    assert one(case, 65504, 70000).status == "fail"


NOT_FINITE = [
    (np.nan, np.nan, "pass"),
    (np.nan, 0, "fail"),
    (0, np.nan, "fail"),
    (np.inf, np.nan, "fail"),
    (np.nan, np.inf, "fail"),
    (np.inf, np.inf, "pass"),
    (-np.inf, np.inf, "fail"),
    (np.finfo(np.float32).max, np.inf, "fail"),
    (np.inf, 1, "fail"),
    (-0.0, 0.0, "pass"),
]


@pytest.mark.parametrize(("number", "want", "status"), NOT_FINITE)
def test_nan_and_infinity_pass_only_where_they_are_expected(number, want, status):
    found = one(make_case(), number, want, 0.5)
    assert found.status == status
    assert found.used == (0 if status == "pass" else np.inf)


def test_an_infinite_bound_allows_any_number_but_no_nan():
    for number in (0, -1e30, np.inf):
        assert one(make_case(), number, 1, np.inf).status == "pass"
    assert one(make_case(), np.nan, 1, np.inf).status == "fail"


def test_used_is_the_error_as_a_share_of_bound_and_final_rounding():
    # 2⁻²⁰ off, where 3·2⁻²² and half a unit in the last place, 2⁻²⁴, are allowed.
    found = one(make_case(), 1 + 2.0**-20, 1, 3 * 2.0**-22)
    assert found.status == "fail"
    assert found.used == 16 / 13


def test_what_fails_uses_more_than_its_budget():
    # Half a unit off for a number that must be exact: all of the final rounding.
    found = one(make_case(), 1 + 2.0**-23, 1 + 2.0**-24)
    assert found.status == "fail"
    assert found.used > 1


def test_the_worst_element_is_named_by_its_axes():
    got = zeros("output")
    got["output"][0, 0, 1, 2] = 1 + 3 * 2.0**-23
    got["output"][0, 0, 0, 1] = 2.0**-140
    want = np.zeros(SHAPES["output"])
    want[0, 0, 1, 2] = 1
    (finding,) = verdict(make_case(), got, {"output": want}).findings
    assert finding.status == "fail"
    # An error of 2⁻¹⁴⁰ where 0 is due is 512 units of the smallest numbers.
    assert finding.worst.index == {"b": 0, "n": 0, "i": 0, "e": 1}
    assert (finding.worst.got, finding.worst.expected) == (2.0**-140, 0)
    assert finding.worst.ulps == 2**9
    got["output"][0, 0, 0, 1] = 0
    (finding,) = verdict(make_case(), got, {"output": want}).findings
    assert finding.worst.index == {"b": 0, "n": 0, "i": 1, "e": 2}
    assert finding.worst.ulps == 3


@pytest.mark.parametrize("name", RESULTS)
def test_every_result_has_a_letter_for_each_of_its_axes(name):
    inputs = {"bias": np.zeros(SHAPES["dbias"], np.float32)}
    case = make_case(wants=(name,), inputs=inputs)
    got = {name: np.ones(SHAPES[name], np.float32)}
    (finding,) = verdict(case, got).findings
    sizes = case.sizes | ({"i": 1} if name == "dbias" else {})
    assert tuple(sizes[axis] for axis in finding.worst.index) == SHAPES[name]


def test_a_wrong_shape_is_a_failure_that_shows_both():
    got = {"output": np.zeros((1, 2, 1, 4), np.float32)}
    (finding,) = verdict(make_case(), got).findings
    assert (finding.status, finding.used) == ("fail", np.inf)
    assert finding.message == "is float32 (1, 2, 1, 4), must be float32 (1, 1, 2, 4)"


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.int32, np.complex64])
def test_a_wrong_type_is_a_failure_that_shows_both(dtype):
    (finding,) = verdict(make_case(), zeros("output", dtype=dtype)).findings
    assert finding.status == "fail"
    must = "must be float32 (1, 1, 2, 4)"
    assert finding.message == f"is {np.dtype(dtype)} (1, 1, 2, 4), {must}"


@pytest.mark.parametrize(("dtype", "wide"), [("BF16", "float32"), ("F64", "float64")])
def test_steps_and_lse_are_in_the_accumulation_type(dtype, wide):
    case = make_case(dtype, wants=("weights", "output", "lse"))
    got = zeros("weights", "lse", dtype=wide) | zeros("output", dtype=DTYPES[dtype])
    assert verdict(case, got).status == "pass"
    for name in got:
        bad = got | {name: got[name].astype(np.float16)}
        assert verdict(case, bad).first_failure.name == name


def test_a_blocked_key_has_no_score_and_no_logit_but_is_masked():
    case, names = make_case(wants=("scores", "logits", "masked")), INTERMEDIATES[:3]
    visible = np.ones(SHAPES["scores"], bool)
    visible[0, 0, 1, 2] = False
    hidden = np.where(visible, 0, np.nan)
    masked = np.where(visible, 0, -np.inf)
    want = dict(zip(names, (hidden, hidden, masked), strict=True)) | {
        "visible": visible
    }
    for number in (0, 7, np.nan, np.inf):
        got = zeros("scores", "logits") | {"masked": masked.astype(np.float32)}
        got["scores"][~visible] = got["logits"][~visible] = number
        assert verdict(case, got, want).status == "pass"
    got["masked"] = np.where(visible, 0, -1e30).astype(np.float32)
    assert verdict(case, got, want).first_failure.name == "masked"


def test_an_empty_result_passes_where_it_must_be_empty():
    case = make_case()
    none = np.zeros((1, 1, 0, 4))
    found = verdict(
        case, {"output": none.astype(np.float32)}, {"output": none}, {"output": none}
    )
    assert found.status == "pass"
    assert found.findings[0].worst is None


BIAS = {"inputs": {"bias": np.zeros((1, 1, 1, 3), np.float32)}}
KEEP = {"inputs": {"dropout_keep": np.ones((1, 1, 1, 1), bool)}, "dropout_rate": 0.5}
FIRST = [
    ("scores", {}, "scores"),
    ("logits", {}, "scale"),
    ("logits", {"softcap": 2.0}, "scale or softcap"),
    ("logits", BIAS, "scale or bias"),
    ("masked", {}, "mask"),
    ("weights", {}, "softmax"),
    ("output", {}, "attend"),
    ("output", KEEP, "dropout or attend"),
    ("lse", {}, "softmax"),
    ("dq", {}, None),
]


@pytest.mark.parametrize(("name", "options", "step"), FIRST)
def test_the_first_wrong_result_names_the_step(name, options, step):
    names = [n for n in RESULTS if n != "dbias"]
    case = make_case(wants=tuple(reversed(names)), **options)
    got = zeros(*names)
    for later in names[names.index(name) :]:
        got[later] += 1
    found = verdict(case, got)
    assert found.first_failure.name == name
    assert found.step == step


def test_steps_before_a_result_are_all_named_where_none_between_is_shown():
    case = make_case(wants=RESULTS[:6])
    wrong = {"weights": np.ones(SHAPES["weights"], np.float32)}
    assert verdict(case, wrong).step == "scores or scale or mask or softmax"
    assert verdict(case, zeros("logits") | wrong).step == "mask or softmax"


def test_a_subject_that_shows_no_steps_is_told_none():
    case = make_case(wants=RESULTS[:6])
    found = verdict(case, {"output": np.ones(SHAPES["output"], np.float32)})
    assert found.first_failure.name == "output"
    assert found.step is None


def test_what_is_not_given_is_not_judged():
    found = verdict(make_case(wants=("output", "lse", "dq")), zeros("output"))
    assert found.status == "pass"
    statuses = {finding.name: finding.status for finding in found.findings}
    assert statuses == {"output": "pass", "lse": "not judged", "dq": "not judged"}


def test_what_is_not_wanted_is_not_looked_at():
    wrong = {"lse": np.ones(SHAPES["lse"], np.float32)}
    assert verdict(make_case(), zeros("output") | wrong).status == "pass"


@pytest.mark.parametrize("status", [status for status in STATUSES if status != "done"])
def test_a_case_that_was_not_done_keeps_its_status_and_message(status):
    case = make_case()
    found = judge(case, None, {}, Result(case.id, status, "why", seconds=0.5))
    assert (found.status, found.message, found.seconds) == (status, "why", 0.5)


def test_a_result_that_is_missing_or_empty_is_not_judged():
    case = make_case()
    assert judge(case, None, {}, None).status == "not judged"
    found = verdict(case, zeros("lse"))
    assert found.status == "not judged"
    assert found.message == "the result holds nothing that the case wants"


def run(*statuses, clauses=("scores",)) -> Run:
    case = make_case(clauses=clauses)
    return Run({"name": "mine"}, [Verdict(case, status) for status in statuses])


def test_a_run_conforms_where_all_that_applies_passes():
    assert run("pass").conforms
    assert run("pass", "not applicable", "pass").conforms


NEVER = ["fail", "refused", "not judged", "error", "crash", "timeout"]


@pytest.mark.parametrize("status", NEVER)
def test_a_run_does_not_conform_with_a_single(status):
    assert not run("pass", status, "pass").conforms


def test_a_run_of_which_nothing_was_judged_does_not_conform():
    assert not run().conforms
    assert not run("not applicable").conforms


def test_clauses_of_which_no_case_was_judged_are_listed():
    cases = {
        "pass": make_case(clauses=("scores", "bias")),
        "fail": make_case(clauses=("softmax",)),
        "refused": make_case(clauses=("scale-zero", "scores")),
        "not judged": make_case(clauses=("dq",)),
        "not applicable": make_case(clauses=("softcap",)),
    }
    found = Run({}, [Verdict(case, status) for status, case in cases.items()])
    assert found.unjudged == ["dq", "scale-zero"]
    assert not found.conforms

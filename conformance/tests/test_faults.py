"""The kill table is of today's faults and cases, and faults are found as it says."""

import importlib.util
import json
import tomllib
from pathlib import Path

import numpy as np
import pytest

from attncheck.certify import digest
from attncheck.exchange import Result
from attncheck.judging import Judge
from attncheck.suite import cases
from attncheck.variants import BY_NAME, VARIANTS
from attncheck.verdict import judge

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "conformance" / "faults"
EVIDENCE = json.loads((ROOT / "docs" / "evidence" / "faults.json").read_text("utf-8"))
PAGE = (ROOT / "docs" / "faults.md").read_text("utf-8")
README = (ROOT / "README.md").read_text("utf-8")
FAULTS = EVIDENCE["faults"]
OURS = "attncheck"
SMOKE = {case.id: case for case in cases("smoke")}
AGAIN = "run `nox -s faults`"
JUDGE = Judge()


def load(name):
    """A module of the folder, which is no package."""
    spec = importlib.util.spec_from_file_location(
        f"faults_{name}", FOLDER / f"{name}.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


rules = load("rules")


# ------------------------------------------------------------------ the evidence


def test_the_evidence_is_of_the_faults_and_cases_as_they_are_today():
    known = {variant.name: variant.sentence for variant in VARIANTS}
    assert {name: one["sentence"] for name, one in FAULTS.items()} == known, AGAIN
    assert EVIDENCE["sha256"] == digest(list(SMOKE.values())), AGAIN
    assert EVIDENCE["cases"]["smoke"] == len(SMOKE), AGAIN
    described = {rule.name: rule.sentence for rule in rules.RULES}
    assert EVIDENCE["rules"] == described, AGAIN


@pytest.mark.parametrize(("dtype", "goal"), [("BF16", 0.97), ("F16", 0.97)])
def test_in_16_bits_nearly_every_fault_is_found(dtype, goal):
    summary = EVIDENCE["summary"][dtype]
    found = summary["rules"][OURS]["smoke"]["found"]
    assert found >= goal * summary["changing"]


def test_in_float32_every_fault_beyond_rounding_is_found():
    summary = EVIDENCE["summary"]["F32"]
    assert summary["beyond_found"] == summary["beyond"] > 150


@pytest.mark.parametrize("dtype", EVIDENCE["summary"])
def test_the_summary_counts_the_faults(dtype):
    summary = EVIDENCE["summary"][dtype]
    changing = [
        one["dtypes"][dtype]
        for one in FAULTS.values()
        if one["dtypes"][dtype]["changes"] != "nothing"
    ]
    assert summary["changing"] == len(changing)
    for rule, places in summary["rules"].items():
        for where, counts in places.items():
            found = [bool(one["kills"][rule][where]) for one in changing]
            assert counts["found"] == sum(found)
    by_us = [bool(one["by"]) for one in changing]
    assert by_us == [bool(one["kills"][OURS]["smoke"]) for one in changing]


def test_nothing_correct_is_called_wrong_by_our_rule():
    for summary in EVIDENCE["summary"].values():
        for where in ("usual", "smoke"):
            ours = summary["rules"][OURS][where]
            assert ours["alarms"] == 0 < ours["checks"]


def test_every_survivor_is_explained_and_nothing_else():
    surviving = {
        (name, dtype)
        for name, one in FAULTS.items()
        for dtype, here in one["dtypes"].items()
        if here["changes"] != "nothing" and not here["by"]
    }
    read = tomllib.loads((FOLDER / "survivors.toml").read_text("utf-8"))
    explained = {
        (name, dtype.strip()): why
        for name, some in read.items()
        for dtypes, why in some.items()
        for dtype in dtypes.split(",")
    }
    assert set(explained) == surviving
    listed = {(s["fault"], s["dtype"]): s["why"] for s in EVIDENCE["survivors"]}
    assert listed == explained
    assert all(why and why in " ".join(PAGE.split()) for why in explained.values())


def test_the_smoke_set_holds_the_smallest_set_of_cases_that_finds_all():
    small = EVIDENCE["smallest"]
    assert small["optimal"]
    assert not small["lost"]
    stems = {id.rpartition("/")[0] for id in SMOKE}
    assert set(small["cases"]) <= stems
    assert all(f"`{case}`" in PAGE for case in small["cases"])


FOUND = [
    name
    for name, one in FAULTS.items()
    if any(here["by"] == "elements" for here in one["dtypes"].values())
]


@pytest.mark.parametrize("name", FOUND)
def test_a_fault_is_still_found_by_the_case_that_is_recorded(name):
    """In float32, or in the first type in which it is found at all."""
    dtypes = FAULTS[name]["dtypes"]
    order = sorted(dtypes, key=lambda dtype: dtype != "F32")
    dtype = next(d for d in order if dtypes[d]["by"] == "elements")
    case, profile = SMOKE[dtypes[dtype]["case"]], EVIDENCE["profiles"][dtype]
    arrays = BY_NAME[name].run(case, stores=profile == "tensor-core")
    shown = {n: array for n, array in arrays.items() if n in rules.RESULTS}
    bounds = JUDGE.budget(case, profile).bounds
    found = judge(
        case, JUDGE.expected(case), bounds, Result(case.id, "done", arrays=shown)
    )
    assert found.status == "fail"


# ------------------------------------------------------------------ what pages say


def row(rule):
    """What the table says of a rule: usual test, our cases, false alarms there."""
    cells = []
    for summary in EVIDENCE["summary"].values():
        one = summary["rules"].get(rule)
        if one is None:
            cells.append("–")
            continue
        alarms = one["smoke"]["alarms"] / one["smoke"]["checks"]
        share = f"{alarms:.1%}".replace("%", " %") if alarms else "0"
        cells.append(f"{one['usual']['found']}, {one['smoke']['found']}, {share}")
    return " | ".join(cells)


@pytest.mark.parametrize("rule", EVIDENCE["rules"])
@pytest.mark.parametrize("text", [PAGE, README], ids=["page", "README"])
def test_pages_show_the_table(text, rule):
    assert f"| {row(rule)} |" in text


def test_pages_say_how_many_faults_there_are_and_how_many_are_found():
    assert f"{len(VARIANTS)} known\nmistakes" in PAGE
    assert f"{len(VARIANTS)} known mistakes" in README
    small, beyond = EVIDENCE["smallest"], EVIDENCE["summary"]["F32"]["beyond"]
    assert f"{len(small['cases'])} of the {small['of']} smoke cases find" in PAGE
    assert f"all {beyond} are found" in PAGE


def test_the_table_says_of_how_many():
    changing = [str(one["changing"]) for one in EVIDENCE["summary"].values()]
    for text in (PAGE, README):
        assert " | ".join(changing) + " |" in text


# ------------------------------------------------------------------ the rules


def given(dtype, want, naive=None):
    case = SMOKE[f"plain/{dtype}"]
    want = {"output": np.asarray(want, np.float64)}
    return rules.Given(case, want, None, {"output": np.asarray(naive or 0.0)})


RULE = {rule.name: rule for rule in rules.RULES}


def flags(name, got, **about):
    return RULE[name].flags(given(**about), {"output": np.asarray(got)}) == {"output"}


@pytest.mark.parametrize(
    ("name", "rtol", "atol"),
    [
        ("assert_allclose", 1e-7, 0.0),
        ("allclose 1e-3", 1e-3, 1e-3),
        ("allclose 1e-2", 1e-2, 1e-2),
        ("assert_close", 1e-7, 1e-7),
    ],
)
def test_tolerances_are_those_of_numpy(name, rtol, atol):
    want = np.array([1.0, -250.0, 0.0, 1e-9])
    for error in (1e-10, 3e-8, 5e-6, 8e-4, 5e-3, 1.0):
        got = want * (1 + error)
        close = np.allclose(got, want, rtol=rtol, atol=atol)
        assert flags(name, got, dtype="F64", want=want) != close


def test_twice_the_error_of_pytorch_is_the_last_that_passes():
    about = {"dtype": "F64", "want": [1.0, 2.0], "naive": [1.0, 2.25]}
    assert not flags("2 × PyTorch", [1.5, 2.0], **about)
    assert flags("2 × PyTorch", [1.0, 1.4375], **about)


@pytest.mark.parametrize("name", [name for name in RULE if rules.ELEMENTS not in name])
def test_nan_and_infinity_are_right_only_where_they_are_expected(name):
    want = [np.nan, np.inf, 1.0]
    assert not flags(name, want, dtype="F64", want=want, naive=want)
    for got in ([0.0, np.inf, 1.0], [np.nan, 1e300, 1.0], [np.nan, np.inf, np.nan]):
        assert flags(name, got, dtype="F64", want=want, naive=want)


def test_another_shape_is_wrong():
    assert flags("allclose 1e-2", [[1.0]], dtype="F64", want=[1.0])


# ------------------------------------------------------------------ the smallest set


def test_the_smallest_set_is_smaller_than_a_greedy_one():
    pytest.importorskip("scipy", reason="only the session `faults` installs scipy")
    cover = load("cover")
    finds = {
        "greedy": {2, 3, 5, 6},  # the largest, which then needs two more
        "upper": {1, 2, 3},
        "lower": {4, 5, 6},
        "other lower": {4, 5, 6},
        "nothing": set(),
    }
    found = cover.smallest(finds, preferred={"other lower"})
    assert found == (["other lower", "upper"], True)

"""The kill table is of today's faults and cases, and faults are found as it says."""

import importlib.util
import json
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from attncheck.certify import digest
from attncheck.exchange import Result
from attncheck.judging import Judge
from attncheck.operations import OPERATIONS
from attncheck.suite import cases, operation_cases
from attncheck.variants import BY_NAME, CONVERTERS, FAULTS, OPERATION_VARIANTS, VARIANTS
from attncheck.verdict import judge

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "conformance" / "faults"
EVIDENCE = json.loads((ROOT / "docs" / "evidence" / "faults.json").read_text("utf-8"))
PAGE = (ROOT / "docs" / "faults.md").read_text("utf-8")
README = (ROOT / "README.md").read_text("utf-8")
FOUND = EVIDENCE["faults"]
OURS = "attncheck"
SMOKE = {case.id: case for case in (*cases("smoke"), *operation_cases("smoke"))}
KINDS = {
    "attention": VARIANTS,
    "other operations": OPERATION_VARIANTS,
    "weights carried over": CONVERTERS,
}
KIND = {variant.name: kind for kind, some in KINDS.items() for variant in some}
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


def of_kinds():
    """Kind, storage type and summary; of all kinds together the kind is nothing."""
    by_kind = {"": EVIDENCE["summary"], **EVIDENCE["kinds"]}
    return [
        pytest.param(kind, dtype, summary, id=f"{kind or 'all'}, {dtype}")
        for kind, by_dtype in by_kind.items()
        for dtype, summary in by_dtype.items()
    ]


# ------------------------------------------------------------------ the evidence


def test_the_evidence_is_of_the_faults_and_cases_as_they_are_today():
    known = {v.name: (v.sentence, KIND[v.name]) for v in FAULTS}
    kept = {name: (one["sentence"], one["kind"]) for name, one in FOUND.items()}
    assert kept == known, AGAIN
    assert EVIDENCE["sha256"] == digest(list(SMOKE.values())), AGAIN
    assert EVIDENCE["cases"]["smoke"] == len(SMOKE), AGAIN
    described = {rule.name: rule.sentence for rule in rules.RULES}
    assert EVIDENCE["rules"] == described, AGAIN


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["BF16", "F16"])
def test_in_16_bits_nearly_every_fault_is_found(kind, dtype):
    summary = EVIDENCE["kinds"][kind][dtype]
    found = summary["rules"][OURS]["smoke"]["found"]
    assert found >= 0.97 * summary["changing"]


@pytest.mark.parametrize("kind", KINDS)
def test_in_float32_every_fault_beyond_rounding_is_found(kind):
    summary = EVIDENCE["kinds"][kind]["F32"]
    assert summary["beyond_found"] == summary["beyond"] > 0.95 * len(KINDS[kind])


@pytest.mark.parametrize(("kind", "dtype", "summary"), of_kinds())
def test_the_summary_counts_the_faults(kind, dtype, summary):
    changing = [
        one["dtypes"][dtype]
        for name, one in FOUND.items()
        if kind in ("", KIND[name]) and one["dtypes"][dtype]["changes"] != "nothing"
    ]
    assert summary["changing"] == len(changing)
    for rule, places in summary["rules"].items():
        for where, counts in places.items():
            found = [bool(one["kills"][rule][where]) for one in changing]
            assert counts["found"] == sum(found)
    by_us = [bool(one["by"]) for one in changing]
    assert by_us == [bool(one["kills"][OURS]["smoke"]) for one in changing]


@pytest.mark.parametrize(("kind", "dtype", "summary"), of_kinds())
def test_nothing_correct_is_called_wrong_by_our_rule(kind, dtype, summary):
    for where in ("usual", "smoke"):
        ours = summary["rules"][OURS][where]
        assert ours["alarms"] == 0 < ours["checks"]


def test_every_survivor_is_explained_and_nothing_else():
    surviving = {
        (name, dtype)
        for name, one in FOUND.items()
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


SEEN = [
    name
    for name, one in FOUND.items()
    if any(here["by"] == "elements" for here in one["dtypes"].values())
]


@pytest.mark.parametrize("name", SEEN)
def test_a_fault_is_still_found_by_the_case_that_is_recorded(name):
    """In float32, or in the first type in which it is found at all."""
    dtypes = FOUND[name]["dtypes"]
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


def row(rule, by_dtype=EVIDENCE["summary"]):
    """What the table says of a rule: usual test, our cases, false alarms there."""
    cells = []
    for summary in by_dtype.values():
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


@pytest.mark.parametrize("rule", EVIDENCE["rules"])
@pytest.mark.parametrize("kind", ["attention", "other operations"])
def test_the_page_shows_the_tables_of_both_kinds_of_operations(kind, rule):
    _, _, after = PAGE.partition(f"Of {kind}:\n\n")
    text, _, _ = after.partition("\n\n")
    assert f"| {rule} | {row(rule, EVIDENCE['kinds'][kind])} |" in text


def test_pages_say_how_many_faults_there_are_and_how_many_are_found():
    for text in (PAGE, README):
        assert f"{len(FAULTS)} known mistakes" in " ".join(text.split())
    for variants in KINDS.values():
        assert f"{len(variants)} " in PAGE
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


@pytest.fixture
def naive(monkeypatch):
    pytest.importorskip("torch", reason="the yardstick is of PyTorch")
    monkeypatch.syspath_prepend(str(FOLDER))
    yield load("naive")
    sys.modules.pop("naive_operations", None)


@pytest.mark.parametrize("op", ["attention", *OPERATIONS])
def test_the_yardstick_of_pytorch_is_right_in_float64(naive, op):
    """But for what is not finite, which spreads in it; there it is of no use."""
    chosen = [c for c in SMOKE.values() if (c.op, c.dtype) == (op, "F64")]
    finite = [c for c in chosen if all(np.isfinite(x).all() for x in c.inputs.values())]
    assert finite
    for case in finite[:12]:
        want = JUDGE.expected(case)
        for name, got in naive.results(case).items():
            size = np.abs(getattr(want, name)).max(initial=1.0)
            assert np.abs(got - getattr(want, name)).max(initial=0) <= 1e-12 * size


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

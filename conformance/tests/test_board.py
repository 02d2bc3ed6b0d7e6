"""The board: what is measured of an implementation, and how boards are compared."""

import json
import re
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from rich.console import Console
from typer.testing import CliRunner

from attncheck import schemas
from attncheck.board import board, changes, measure, merged
from attncheck.board.groups import GROUP_OF, GROUPS
from attncheck.board.issues import known
from attncheck.cache import Cache
from attncheck.choose import every
from attncheck.clauses import CLAUSES
from attncheck.cli import app
from attncheck.judging import Judge
from attncheck.library import Library
from attncheck.report import board_as_html, print_board
from attncheck.subjects import LIBRARIES, Entry
from attncheck.suite import SETS, cases
from attncheck.suite.fit import Takes, cases_for
from attncheck.worker import run_case
from attnref.spec import Conventions


def softmax(logits):
    with np.errstate(all="ignore"):
        weights = np.exp(logits - logits.max(-1, keepdims=True, initial=-np.inf))
        return weights / weights.sum(-1, keepdims=True)


def attend(q, k, v, mask=None, sm_scale=1.0, causal=False):
    """Axes b i n d, True blocks, a scale of 1, no groups, the flag lower-right."""
    q, k, v = (x.swapaxes(1, 2) for x in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) * q.dtype.type(sm_scale)
    if causal:
        i, j = scores.shape[-2:]
        scores = np.where(np.tri(i, j, j - i, dtype=bool), scores, -np.inf)
    if mask is not None:
        scores = np.where(mask, -np.inf, scores)
    return (softmax(scores).astype(q.dtype) @ v).swapaxes(1, 2)


ODD = Conventions(
    layout="b i n d",
    mask_true="block",
    scale="one",
    heads=None,
    causal="lower-right",
)


def library(function=attend, conventions=ODD, **options):
    given = {"name": "odd:one", "framework": "numpy", "packages": ("numpy",)}
    return Library(function=function, conventions=conventions, **(given | options))


def run(made, case):
    return run_case(made.subject(), case, {})


def in_float32():
    found = cases_for(Takes(groups=False), dtypes=("F32",))
    return {case.id: case for case in found if not case.law}


def test_a_call_is_translated_by_what_is_declared():
    found = in_float32()
    for name in ("plain@fitted/F32", "scale-given@fitted/F32", "mask-single/F32"):
        case = found.get(name) or found[name.replace("/", "@fitted/")]
        assert run(library(), case).status == "done"
    case = found["square/F32"]
    q, k, v = (case.inputs[name].astype(np.float64) for name in "qkv")
    want = softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])) @ v
    got = run(library(), case).arrays["output"]
    assert np.abs(got - want).max() < 1e-5


def test_a_mask_that_a_flag_says_exactly_is_given_as_the_flag():
    seen = []

    def spying(q, k, v, mask=None, causal=False, sm_scale=1.0):
        seen.append((mask is None, causal))
        return attend(q, k, v, mask, sm_scale, causal)

    found = in_float32()
    run(library(spying), found["causal-lower-right@fitted/F32"])
    run(library(spying), found["causal-upper-left@fitted/F32"])
    run(library(spying), found["mask-random@fitted/F32"])
    assert seen == [(True, True), (False, False), (False, False)]


def test_a_bias_goes_where_masks_are_added_and_takes_the_mask_along():
    def adding(q, k, v, mask=None):
        scores = q @ k.swapaxes(-1, -2) * q.dtype.type(q.shape[-1] ** -0.5)
        return softmax(scores if mask is None else scores + mask) @ v

    ours = Conventions(mask_true=None, mask_float="add", heads=None)
    made = library(adding, ours)
    assert made.subject().accepts == {"mask", "bias"}
    found = [c for c in in_float32().values() if {"mask", "bias"} <= set(c.inputs)]
    found = [c for c in found if c.softcap is None and not c.dropout_rate]
    found = [c for c in found if c.scale is None and "keys" not in c.id]
    assert found
    for case in found:
        result = run(made, case)
        assert result.status == "done"
        want = Judge().expected(case)
        live = np.isfinite(want.lse)
        error = np.abs(result.arrays["output"] - want.output)[live]
        assert not error.size or error.max() < 1e-3, case.id


def test_grouped_heads_in_the_other_order_are_brought_into_the_specs():
    def tiled(q, k, v):
        k, v = (np.tile(x, (1, q.shape[1] // x.shape[1], 1, 1)) for x in (k, v))
        scores = q @ k.swapaxes(-1, -2) * q.dtype.type(q.shape[-1] ** -0.5)
        return softmax(scores) @ v

    case = next(c for c in cases(dtypes=("F32",)) if c.id == "plain/F32")
    want = Judge().expected(case).output
    right, wrong = (
        run(library(tiled, Conventions(heads=heads)), case).arrays["output"]
        for heads in ("gh", "hg")
    )
    assert np.abs(right - want).max() < 1e-5
    assert np.abs(wrong - want).max() > 0.1


def test_what_a_library_raises_is_a_refusal_in_its_own_words():
    def picky(q, k, v, mask=None, sm_scale=1.0):
        raise RuntimeError("no viable backend\nmore")

    result = run(library(picky), in_float32()["square/F32"])
    assert (result.status, result.message) == (
        "refused",
        "RuntimeError: no viable backend",
    )


@pytest.mark.parametrize(
    ("options", "case", "why"),
    [
        ({"dtypes": ("F16",)}, "square/F32", "takes no F32"),
        ({"multiple": 128}, "square/F32", "multiples of 128"),
        ({"projects": True}, "nan-query@fitted/F32", "0 · NaN"),
        ({}, "softcap@fitted/F32", "takes no `softcap`"),
    ],
)
def test_what_a_library_cannot_take_is_not_applicable_and_says_why(options, case, why):
    result = run(library(**options), in_float32()[case])
    assert result.status == "not applicable"
    assert why in result.message


def test_cases_are_fitted_to_the_shapes_that_are_taken():
    takes = Takes(groups=False, width=False, multiple=16)
    fitted = [c for c in cases_for(takes, dtypes=("F32",)) if "fitted" in c.id]
    assert len(fitted) > 80
    for case in fitted:
        sizes = case.sizes
        assert (sizes["g"], sizes["d"]) == (1, sizes["e"])
        assert sizes["i"] % 16 == sizes["j"] % 16 == 0
        assert not {"head-order", "value-width"} & set(case.clauses)


@pytest.mark.parametrize("set_name", SETS)
def test_a_subject_that_takes_every_shape_gets_the_cases_of_the_suite(set_name):
    made = cases_for(Takes(), set_name, dtypes=("F32",))
    whole = {case.id: case.sha256 for case in made}
    suite = {case.id: case.sha256 for case in cases(set_name, ("F32",))}
    assert suite.items() <= whole.items()
    more = [id for id in whole.keys() - suite.keys() if not id.startswith("law-")]
    assert all("@tiny" in id for id in more)


def test_every_clause_is_in_one_group():
    names = [name for clauses in GROUPS.values() for name in clauses]
    assert sorted(names) == sorted(clause.name for clause in CLAUSES)
    assert len(GROUP_OF) == len(names)


def test_every_library_has_a_name_of_its_own_and_links_its_documentation():
    for name, entry in LIBRARIES.items():
        assert re.fullmatch(r"[a-z-]+:[a-z0-9-]+", name)
        assert entry.docs.startswith("https://")
        assert entry.packages


def test_no_adapter_is_longer_than_25_lines_or_does_arithmetic():
    folder = Path(schemas.__file__).parents[1] / "subjects"
    for path in folder.glob("*.py"):
        if path.stem in ("__init__", "attnref", "sdpa"):
            continue
        for body in re.split(r"\n(?=def )", path.read_text("utf-8"))[1:]:
            code = [x for x in body.partition("\n\n\n")[0].splitlines() if x.strip()]
            assert len(code) <= 25, (path.name, code[0])
            assert not re.search(r"softmax\(|matmul|exp\(| @ ", body)


@pytest.fixture
def odd(monkeypatch, tmp_path):
    """A library of a few lines, on the board, in a file that workers import."""
    source = """
import numpy as np
from attncheck.library import Library
from attnref.spec import Conventions

def softmax(logits):
    with np.errstate(all="ignore"):
        top = logits.max(-1, keepdims=True, initial=-np.inf)
        weights = np.exp(logits - top)
        return weights / weights.sum(-1, keepdims=True)

def attend(q, k, v, mask=None):
    scores = q @ k.swapaxes(-1, -2) * q.dtype.type(q.shape[-1] ** -0.5)
    scores = scores if mask is None else np.where(mask, scores, -np.inf)
    return (softmax(scores) @ v).astype(q.dtype)

subject = Library(
    name=__file__ + ":subject", function=attend, framework="numpy",
    packages=("numpy",), conventions=Conventions(heads=None), profile="eager",
).subject()
"""
    file = tmp_path / "odd.py"
    file.write_text(source, "utf-8")
    target = f"{file}:subject"
    entry = Entry(
        target,
        lambda: None,
        ("numpy",),
        "https://example.org",
        "odd",
    )
    module = __import__("attncheck.board.measure", fromlist=["BOARD"])
    monkeypatch.setitem(module.BOARD, target, entry)
    return target


def measured(odd, folder, **options):
    name = odd.replace("/", "-").replace(":", "-")
    assert name
    return measure(odd, folder, judge=Judge(Cache.of_user()), **options)


def test_a_row_says_what_was_measured_what_deviates_and_what_is_refused(odd, tmp_path):
    row = measured(odd, tmp_path / "out")
    assert row["conventions"]["empty_row"]["value"] == "nan"
    assert row["conventions"]["nan_blocked_v"]["value"] == "leaks"
    assert row["counts"]["pass"] > 100
    assert not row["refusals"]
    found = {one["name"]: one for one in row["deviations"]}
    assert {"empty-row-output", "blocked-value"} <= found.keys()
    empty = found["empty-row-output"]
    assert empty["spec"] == "A query with no key left has output 0."
    assert "got nan, expected 0" in empty["does"]
    assert "subject = load(" in empty["snippet"]
    spoken = empty["snippet"].replace("print(got)", "")
    space: dict = {}
    exec(spoken, space)
    assert np.isnan(space["got"]).any()

    again = measured(odd, tmp_path / "out", resume=True)
    assert again == json.loads(json.dumps(row))

    whole = board([row], ["jax:xla"])
    schema = json.loads(schemas.text("board"))
    Draft202012Validator(schema).validate(json.loads(json.dumps(whole)))
    shown = StringIO()
    print_board(whole, Console(file=shown, width=200))
    for words in ("≠ NaN", "deviates", "not installed here: jax:xla"):
        assert words in shown.getvalue()
    page = board_as_html(whole)
    assert "A query with no key left has output 0." in page
    assert "<script" not in page


def board_of(*rows):
    return board(rows, [])


def row(name, version="1", value="zero", failing=()):
    readings = {
        "empty_row": {"measured": True, "value": value, "shown": "", "spec": "zero"}
    }
    return {
        "name": name,
        "version": version,
        "conventions": readings,
        "outcomes": {"fail": list(failing)},
    }


def test_what_changed_is_what_is_not_as_it_was():
    old = board_of(row("a:b"), row("c:d", failing=["x/F32"]))
    new = board_of(
        row("a:b"), row("c:d", "2", "nan", ["y/F32"]), row("e:f", failing=["x/F32"])
    )
    assert changes(old, old) == []
    assert changes(old, new) == [
        {
            "name": "c:d",
            "old": "1",
            "new": "2",
            "conventions": [{"field": "empty_row", "old": "zero", "new": "nan"}],
            "cases": [
                {"old": "fail", "new": "pass", "cases": ["x/F32"]},
                {"old": "pass", "new": "fail", "cases": ["y/F32"]},
            ],
        }
    ]


def test_boards_of_several_environments_become_one():
    first = board([row("a:b")], ["c:d", "e:f"])
    second = board([row("c:d")], ["a:b", "e:f"])
    whole = merged([first, second])
    assert [one["name"] for one in whole["rows"]] == ["a:b", "c:d"]
    assert whole["not_installed"] == ["e:f"]


def test_a_file_that_is_no_board_is_refused(tmp_path):
    path = tmp_path / "no.json"
    path.write_text('{"schema": "attncheck-report/1"}', "utf-8")
    ended = CliRunner().invoke(app, ["board", str(path)])
    assert ended.exit_code == 2
    assert "attncheck-board/1" in ended.stderr


def test_every_known_report_is_about_cases_that_there_are_and_has_a_link():
    ids = [case.id for case in every("smoke")]
    assert known()
    for waiver in known():
        assert waiver.issue.startswith("https://github.com/")
        assert any(waiver.covers(id, id.rpartition("/")[2]) for id in ids), waiver.case

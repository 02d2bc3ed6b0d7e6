"""The page of the board and the README show what the evidence says."""

import json
import runpy
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from attncheck import schemas
from attncheck.report.board import COLUMNS, conventions_table, differs
from attncheck.subjects import LIBRARIES
from attnref.spec import SPEC

EVIDENCE = Path(__file__).parents[2] / "docs" / "evidence" / "board.json"
EARLIER = EVIDENCE.parent / "earlier"
TABLES = Path(__file__).parents[1] / "board" / "tables.py"
PAGE = Path(__file__).parents[2] / "docs" / "board.md"
README = Path(__file__).parents[2] / "README.md"


def test_the_evidence_is_a_board_of_at_least_20_of_10_libraries():
    found = json.loads(EVIDENCE.read_text("utf-8"))
    Draft202012Validator(json.loads(schemas.text("board"))).validate(found)
    names = [one["name"] for one in found["rows"]]
    assert len(names) >= 20
    assert len({name.partition(":")[0] for name in names}) >= 10
    assert set(names) <= set(LIBRARIES)


@pytest.mark.parametrize("path", sorted(EARLIER.iterdir()), ids=lambda path: path.stem)
def test_an_earlier_version_was_given_the_same_set(path):
    found = json.loads(path.read_text("utf-8"))
    Draft202012Validator(json.loads(schemas.text("board"))).validate(found)
    now = {row["name"]: row for row in json.loads(EVIDENCE.read_text("utf-8"))["rows"]}
    for row in found["rows"]:
        later = now[row["name"]]
        assert row["packages"] != later["packages"]
        assert (row["set"], row["cases"]) == (later["set"], later["cases"])


@pytest.mark.parametrize("path", [PAGE, README])
def test_the_tables_of_a_page_are_those_of_the_evidence(path):
    script = runpy.run_path(str(TABLES))
    text = path.read_text("utf-8")
    assert script["filled"](text, script["made"]()) == text


@pytest.mark.parametrize("path", [PAGE, README])
def test_pages_show_the_conventions_of_the_evidence(path):
    found = json.loads(EVIDENCE.read_text("utf-8"))
    text = path.read_text("utf-8")
    header = conventions_table(found)[0]
    assert set(header[1:]) == set(COLUMNS.values())
    shown = dict(_rows(text))
    for record in found["rows"]:
        cells = shown[record["name"]]
        for name, title in COLUMNS.items():
            if title in cells:
                assert cells[title].startswith("≠") == differs(record, name)
    assert {name for name in shown if ":" in name} == {r["name"] for r in found["rows"]}
    assert SPEC.layout in text


def _rows(text):
    """Name → column → words, of the tables of a page whose rows are implementations."""
    found: dict[str, dict[str, str]] = {}
    header: list[str] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
        if line.startswith("| implementation |"):
            header = cells
        elif line.startswith("| `") and header:
            name = cells[0].strip("`")
            found.setdefault(name, {}).update(zip(header[1:], cells[1:], strict=True))
        elif not line.startswith("|"):
            header = []
    return found.items()

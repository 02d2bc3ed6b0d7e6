"""The evidence of the naming rate is about the programs that there are."""

import json
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from attncheck.variants import BY_NAME

ROOT = Path(__file__).parents[2]
FAULTS, EVIDENCE = ROOT / "conformance/faults", ROOT / "docs/evidence"
MEASURED = sorted(EVIDENCE.glob("naming-*.json"))


def index():
    return tomllib.loads((FAULTS / "programs/index.toml").read_text("utf-8"))["program"]


def test_every_program_has_its_right_names():
    table = tomllib.loads((FAULTS / "expected.toml").read_text("utf-8"))
    later = table.pop("later")
    programs = {
        tuple(Path(entry["target"]).name.split(".py:")): entry for entry in index()
    }
    named = {(module, name) for module, names in table.items() for name in names}
    assert named == set(programs)
    for tables in (table, later):
        for module, names in tables.items():
            for name, right in names.items():
                assert (module, name) in programs
                assert set(right) <= set(BY_NAME), name


@pytest.mark.parametrize("file", MEASURED, ids=lambda file: file.stem)
def test_evidence_is_complete_and_counted_in_the_page(file):
    rows = json.loads(file.read_text("utf-8"))
    framework = file.stem.removeprefix("naming-")
    listed = [Path(e["target"]).name for e in index() if e["framework"] == framework]
    assert [row["program"].replace(":", ".py:") for row in rows] == listed
    page = (ROOT / "docs/diagnosis.md").read_text("utf-8")
    for column, heading in (("blind", "blind"), ("outcome", "now")):
        counts = Counter(row[column] for row in rows)
        known = counts["named"] + counts["missed"]
        nothing = f"{counts['unknown']} of {counts['unknown']}"
        row = f"| {heading} | {counts['named']} of {known} | {nothing} | 0 |"
        assert row in page
        assert counts["wrong"] == 0


def test_the_readme_counts_all_programs():
    rows = [row for file in MEASURED for row in json.loads(file.read_text("utf-8"))]
    counts = Counter(row["blind"] for row in rows)
    known = counts["named"] + counts["missed"]
    readme = (ROOT / "README.md").read_text("utf-8")
    assert f"of {known} wrong programs" in readme
    assert f"{counts['named']} at the first guess; of {len(rows)} programs" in readme

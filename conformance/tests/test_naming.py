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
    counts = Counter(row["blind"] for row in rows)
    known = counts["named"] + counts["missed"]
    assert f"| blind | {counts['named']} of {known} |" in page
    assert counts["wrong"] == 0
    assert counts["named"] >= 0.85 * known

"""The evidence of the naming rate is about the programs that there are."""

import importlib.util
import json
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from attncheck.variants import BY_NAME

ROOT = Path(__file__).parents[2]
FAULTS, EVIDENCE = ROOT / "conformance/faults", ROOT / "docs/evidence"
MEASURED = sorted(EVIDENCE.glob("naming-*.json"))


def load(name):
    """A module of the folder, which is no package."""
    spec = importlib.util.spec_from_file_location(name, FAULTS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


naming = load("naming")


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


NAMES = {"jax": "JAX", "numpy": "NumPy", "torch": "PyTorch"}
EVERY = {
    file.stem.removeprefix("naming-"): json.loads(file.read_text("utf-8"))
    for file in MEASURED
}
"""Framework → a row a program."""


def counted(rows, key):
    """The cells of the table: named, of how many; unknown, of how many; wrong."""
    counts = Counter(row[key] for row in rows)
    known = counts["named"] + counts["missed"]
    unknown, wrong = counts["unknown"], counts["wrong"]
    return f"{counts['named']} of {known} | {unknown} of {len(rows) - known} | {wrong}"


@pytest.mark.parametrize("framework", NAMES)
def test_evidence_is_complete_and_counted_in_the_page(framework):
    rows = EVERY[framework]
    listed = [Path(e["target"]).name for e in index() if e["framework"] == framework]
    assert [row["program"].replace(":", ".py:") for row in rows] == listed
    page = (ROOT / "docs/diagnosis.md").read_text("utf-8")
    for key, word in (("blind", "blind"), ("outcome", "now")):
        assert f"| {NAMES[framework]} | {word} | {counted(rows, key)} |" in page


def test_evidence_is_judged_by_the_names_that_are_right():
    for framework, rows in EVERY.items():
        right = {p["program"]: p["right"] for p in naming.programs(framework)}
        for row in rows:
            assert row["right"] == right[row["program"]]
            if row["outcome"] != "passes":
                found = naming.outcome(row["right"], row["named"])
                assert row["outcome"] == found, row["program"]


def test_nine_of_ten_are_named_none_wrongly_and_pages_say_so():
    rows = [row for some in EVERY.values() for row in some]
    outcomes = Counter(row["outcome"] for row in rows)
    known = outcomes["named"] + outcomes["missed"]
    assert outcomes["named"] >= 0.9 * known
    assert set(outcomes) == {"named", "missed", "unknown"}
    assert not any(row["blind"] == "wrong" for row in rows)
    readme = " ".join((ROOT / "README.md").read_text("utf-8").split())
    assert (
        f"of {known} wrong programs whose mistake is on the list, "
        f"{outcomes['named']} at the first guess; "
        f"of {len(rows)} programs, none was named wrongly"
    ) in readme
    page = (ROOT / "docs/diagnosis.md").read_text("utf-8")
    for row in rows:
        if row["outcome"] == "missed":
            assert f"`{row['program']}`" in page

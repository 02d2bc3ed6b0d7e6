"""Common mistakes cost what the page says."""

import json
import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
KEPT = json.loads((ROOT / "docs" / "evidence" / "mistakes.json").read_text("utf-8"))
PAGE = (ROOT / "docs" / "mistakes.md").read_text("utf-8")


@pytest.mark.parametrize("name", KEPT)
def test_a_mistake_costs_what_the_page_says(name, monkeypatch):
    """Three digits: some are of float32."""
    monkeypatch.syspath_prepend(ROOT / "conformance" / "pages")
    found = import_module(f"mistakes.{name}").measure()
    assert found.keys() == KEPT[name].keys()
    for key, value in KEPT[name].items():
        exact = isinstance(value, str | bool)
        same = value if exact else pytest.approx(value, rel=1e-3, abs=1e-6)
        assert found[key] == same, (key, "run `nox -s pages`")


def test_every_mistake_is_on_the_page():
    folder = ROOT / "conformance" / "pages" / "mistakes"
    assert {f.stem for f in folder.glob("[!_]*.py")} == KEPT.keys()
    shown = re.findall(r"(?:`mistakes\.|\{mistake\} )(\w+)", PAGE)
    assert set(shown) == KEPT.keys()
    assert sorted(re.findall(r"^\((e\d\d)\)=$", PAGE, re.MULTILINE)) == [
        f"e{n:02}" for n in range(1, 29)
    ]

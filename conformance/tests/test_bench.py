"""The tables of ratios on pages are those of the evidence."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EVIDENCE = ROOT / "docs/evidence/bench.json"


@pytest.fixture
def lines(monkeypatch):
    """The lines of the table, of the evidence."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT / "conformance/bench")])
    from ratios import read, table

    return list(table(*read(json.loads(EVIDENCE.read_text("utf-8")))))


@pytest.mark.parametrize("page", ["README.md", "docs/blocked.md"])
def test_a_page_shows_the_table_of_the_evidence(page, lines):
    text = (ROOT / page).read_text("utf-8")
    assert "\n".join(lines) in text
    assert len(lines) > 20


def test_the_evidence_says_on_what_it_was_measured():
    machine = json.loads(EVIDENCE.read_text("utf-8"))["machine"]
    assert machine.keys() >= {"processor", "threads", "clock", "numpy", "torch", "jax"}

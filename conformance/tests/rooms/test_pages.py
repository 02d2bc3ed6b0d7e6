"""How far a room is from the definition is what the pages say."""

import json
from importlib import import_module
from pathlib import Path

import pytest

from attncheck import minilm

ROOT = Path(__file__).parents[3]
EVIDENCE = ROOT / "docs" / "evidence" / "steps.json"
VARIANTS = ROOT / "docs" / "evidence" / "variants.json"


@pytest.mark.skipif(minilm.available() is not None, reason=str(minilm.available()))
def test_the_pages_quote_the_rooms_errors(room, monkeypatch):
    """In float32, within a factor of 4: the order of sums is the processor's, and with
    it the rounding.  That they are within the budget is asserted by the measurement."""
    monkeypatch.syspath_prepend(ROOT / "conformance" / "pages")
    evidence, agreement = (
        json.loads(EVIDENCE.read_text("utf-8")),
        import_module("agreement"),
    )
    kept = evidence["rooms"][room.name]
    found = agreement.measure(room.name, ["F32"])
    assert found.keys() == kept.keys()
    for name, cells in found.items():
        ratio = cells["F32"]["error"] / kept[name]["F32"]["error"]
        assert 1 / 4 <= ratio <= 4, (name, ratio, "run `nox -s pages`")
    ratio = agreement.embeddings(room.name) / evidence["embeddings"][room.name]
    assert 1 / 4 <= ratio <= 4, (ratio, "run `nox -s pages`")


def test_the_pages_quote_the_rooms_errors_in_variants(room, monkeypatch):
    """Likewise: the greatest error in float32, in the measured cases of a variant."""
    monkeypatch.syspath_prepend(ROOT / "conformance" / "pages")
    kept = json.loads(VARIANTS.read_text("utf-8"))["rooms"][room.name]
    found = import_module("exact").measure(room.name, ["F32"])
    assert found.keys() == kept.keys()
    for name, results in found.items():
        assert results.keys() == kept[name].keys()
        for result, cells in results.items():
            ratio = cells["F32"]["error"] / kept[name][result]["F32"]["error"]
            assert 1 / 4 <= ratio <= 4, (name, result, ratio, "run `nox -s pages`")

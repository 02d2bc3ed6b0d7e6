"""What `docs/evidence/diff.json` says was measured of torch and jax."""

import json
from pathlib import Path

from attncheck.calling import Calling
from attncheck.fingerprint import Fingerprint
from attncheck.fingerprint.reading import reading_of

EVIDENCE = Path(__file__).parents[3] / "docs" / "evidence" / "diff.json"


def document():
    """The whole of it."""
    return json.loads(EVIDENCE.read_text("utf-8"))


def values(readings):
    """Field → value of what was measured; infinities as JSON has them."""
    return {name: one["value"] for name, one in readings.items() if one["measured"]}


def fingerprint_in(stored):
    """A fingerprint from its part of the document."""
    calling = {
        n: tuple(x) if isinstance(x, list) else x for n, x in stored["calling"].items()
    }

    def readings(rows):
        return {
            name: reading_of({k: v for k, v in row.items() if k != "spec"})
            for name, row in rows.items()
        }

    return Fingerprint(
        name=stored["name"],
        framework=stored["framework"],
        version=stored["version"],
        home=stored["name"],
        calling=Calling(**calling),
        readings=readings(stored["conventions"]),
        profiles=readings(stored["profiles"]),
    )

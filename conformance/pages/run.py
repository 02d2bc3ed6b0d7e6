"""Measures what the pages quote, where every room can be imported.

    python conformance/pages/run.py docs/evidence [--only batches]

`OUT/steps.json` says how far the rooms are from the definition in every step,
`OUT/answers.json` what the questions are answered with, and `OUT/sentence.json` holds
the weights that are drawn; `OUT/mistakes.json` what common mistakes cost.
`OUT/approximations.json` has the error of approximations and sparse patterns beside
their cost, and `OUT/batches.json` what batches of unequal length waste.
`OUT/variants.json` says how far the rooms are from the definitions of the variants,
what mistakes in them change, and has what their pages draw.
"""

import argparse
import json
from datetime import date
from pathlib import Path
from typing import Any

import agreement
import answers
import approximate
import batches
import drawn
import exact
import mistakes
import sentence

from attncheck import frameworks


def steps() -> dict[str, Any]:
    """Every room's errors, with all that is needed to repeat them."""
    rooms = {room: agreement.measure(room) for room in frameworks.NAMES}
    case = sentence.attention_case("F32")
    return {
        "date": date.today().isoformat(),
        "sentence": sentence.SENTENCE,
        "layer": sentence.LAYER,
        "seed": 0,
        "sizes": case.sizes,
        "profile": "strict",
        "versions": {room: agreement.versions(room) for room in rooms},
        "embeddings": {room: agreement.embeddings(room) for room in rooms},
        "rooms": rooms,
    }


def variants() -> dict[str, Any]:
    """Every room's errors in the variants, and what is shown of those."""
    rooms = {room: exact.measure(room) for room in frameworks.NAMES}
    versions = {room: agreement.versions(room) for room in rooms}
    head = {"date": date.today().isoformat(), "versions": versions}
    return head | exact.evidence(rooms)


def write(path: Path, evidence: Any) -> None:
    """As JSON, numbers with as many digits as are worth keeping."""
    text = json.dumps(_rounded(evidence), indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


PARTS = {
    "steps": steps,
    "answers": answers.measure,
    "mistakes": mistakes.measure,
    "sentence": drawn.measure,
    "approximations": approximate.measure,
    "batches": batches.measure,
    "variants": variants,
}
"""Name of a file → what is in it."""


def main() -> None:
    """Writes every file, or one."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path, help="folder of evidence")
    parser.add_argument("--only", choices=PARTS, help="one file")
    given = parser.parse_args()
    for name in [given.only] if given.only else PARTS:
        write(given.out / f"{name}.json", PARTS[name]())


if __name__ == "__main__":
    main()

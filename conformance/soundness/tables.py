"""Prints the tables of docs/soundness.md, from the evidence.

python conformance/soundness/tables.py
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from attncheck.budget import PROFILES

EVIDENCE = Path(__file__).parents[2] / "docs" / "evidence"
FRAMEWORKS = ("numpy", "torch", "jax")
DTYPES = {"F64": "float64", "F32": "float32", "BF16": "bfloat16", "F16": "float16"}
RESULTS = ("output", "lse", "dq", "dk", "dv", "dbias")
Row = dict[str, Any]
"""One implementation in one storage type."""


def main() -> None:
    """Prints every table after a blank line."""
    found = [json.loads(path.read_text("utf-8")) for path in evidence()]
    for lines in tables(found):
        print("", *lines, sep="\n")


def evidence() -> list[Path]:
    """The files of evidence that there are, in the order of the frameworks."""
    paths = (EVIDENCE / f"soundness-{name}.json" for name in FRAMEWORKS)
    return [path for path in paths if path.exists()]


def family(row: Row) -> str:
    """The profile that a declared one is most like."""
    return row["profile"].partition(",")[0]


def tables(found: Sequence[Row]) -> list[list[str]]:
    """The lines of how much was run, of the budget used, and of what is known."""
    rows = [row for one in found for row in one["implementations"]]
    return [list(map(extent, found)), list(used(rows)), list(known(rows))]


def extent(one: Row) -> str:
    """How many seeds, recipes, cases, checks and false alarms of a framework."""
    framework = one["framework"].partition(",")[0]
    keys = ("seeds", "recipes", "cases", "checks", "false_alarms")
    return cells(framework, *(f"{one[key]:,}" for key in keys))


def used(rows: Sequence[Row]) -> Iterator[str]:
    """By dtype and profile: the least and greatest median, and the greatest share."""
    for dtype, name in DTYPES.items():
        for profile in PROFILES:
            alike = [r for r in rows if (r["dtype"], family(r)) == (dtype, profile)]
            alike = [row for row in alike if row["checks"]]
            if alike:
                shares = (spread(alike, result) for result in RESULTS)
                yield cells(f"{name}, {profile}", *shares)


def spread(rows: Sequence[Row], result: str) -> str:
    """`0.01–0.02, 0.134`."""
    quantiles = [r["used"][result]["quantiles"] for r in rows if result in r["used"]]
    medians = [f"{find(half[2] for half in quantiles):.2f}" for find in (min, max)]
    return f"{'–'.join(dict.fromkeys(medians))}, {max(q[5] for q in quantiles):.3f}"


def known(rows: Sequence[Row]) -> Iterator[str]:
    """By implementation and departure: the results that it made fail."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    for row in rows:
        for why, number in row["known"].items():
            key = row["implementation"], why
            counts.setdefault(key, Counter())[DTYPES[row["dtype"]]] += number
    for (implementation, why), by_dtype in sorted(counts.items()):
        numbers = (f"{dtype} {n:,}" for dtype, n in by_dtype.items() if n)
        yield cells(implementation, why, ", ".join(numbers))


def cells(*texts: str) -> str:
    """A line of a table in Markdown."""
    return f"| {' | '.join(texts)} |"


if __name__ == "__main__":
    main()

"""The results as a table for a terminal, and as a file."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from attncheck.gpu.correct import Checked
from attncheck.gpu.timing import Timing

SCHEMA = "attncheck-gpu/1"


def document(
    when: str,
    machine: Mapping[str, Any],
    checked: Sequence[Checked],
    timed: Sequence[Timing],
    seconds: float,
) -> dict[str, Any]:
    """Everything, as JSON can hold it."""
    return {
        "schema": SCHEMA,
        "when": when,
        "machine": dict(machine),
        "seconds": round(seconds, 1),
        "correctness": [asdict(one) for one in checked],
        "timing": [asdict(one) for one in timed],
    }


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """The document in words."""
    machine = found["machine"]
    yield ", ".join(f"{name} {value}" for name, value in machine.items())
    yield ""
    yield from table(CORRECT, [correct_row(one) for one in found["correctness"]])
    yield from _notes(found["correctness"])
    yield ""
    yield from table(TIMED, [timed_row(one) for one in found["timing"]])


CORRECT = (
    "backend",
    "precision",
    "profile",
    "passed",
    "worst",
    "failed",
    "refused",
    "left",
)
TIMED = ("shape", "backend", "ms", "±", "TFLOP/s", "× best", "of ceiling", "MiB")


def correct_row(one: Mapping[str, Any]) -> list[str]:
    """A setting."""
    return [
        one["backend"],
        one["precision"],
        one["profile"],
        str(one["passed"]),
        f"{one['used']:.0%}",
        str(len(one["failed"])),
        str(len(one["refused"])),
        str(one["left_out"]),
    ]


def timed_row(one: Mapping[str, Any]) -> list[str]:
    """A backend on a shape."""
    if one["seconds"] is None:
        return [one["shape"], one["backend"], one["why"]]
    return [
        one["shape"],
        one["backend"],
        f"{one['seconds'] * 1e3:.3f}",
        f"{one['spread']:.0%}",
        f"{one['rate'] / 1e12:.1f}",
        f"{one['to_best']:.2f}",
        f"{one['of_ceiling']:.0%}",
        f"{one['peak'] / 2**20:.0f}",
    ]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Columns side by side; a row that ends early may be long in its last cell."""
    full = [row for row in rows if len(row) == len(head)]
    widths = [max(map(len, cells)) for cells in zip(head, *full, strict=True)]
    short = [row for row in rows if len(row) < len(head)]
    for place in range(2):
        widths[place] = max([widths[place], *(len(row[place]) for row in short)])
    for row in (head, *rows):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        yield "  ".join(cells).rstrip()


def _notes(checked: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What failed, each case; and what was refused, each reason once."""
    for one in checked:
        where = f"{one['backend']} {one['precision']}"
        for case, what in one["failed"].items():
            yield f"failed: {where} {case}: {what}"
        for why in dict.fromkeys(one["refused"].values()):
            yield f"refused: {where}: {why}"

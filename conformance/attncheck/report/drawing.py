"""What the page draws: bars and pictures of errors, as numbers and SVG paths."""

import math
from collections.abc import Mapping, Sequence
from itertools import chain, groupby
from typing import Any, NamedTuple

from attncheck.report.words import share

WITHIN = (0.1, 1.0)
"""Upper ends of the shades within the budget, in budgets."""

BEYOND = (0.01, 0.1, 1.0)
"""Upper ends of those out of it, as shares of the picture's largest finite value: an
error of 10¹⁴ budgets, say, would else have one shade all over."""

WORDS = (
    "to 10 %",
    "to 100 % of the budget",
    "to a hundredth",
    "to a tenth",
    "to the whole of the largest error",
    "∞",
)
"""What each shade stands for; the last is for infinity itself."""

SHARES = 8
"""Sources of a budget that have a colour each; what is smaller shares the last."""


class Layer(NamedTuple):
    """All cells of one shade."""

    level: int
    path: str
    """SVG: one square a cell."""
    marks: str
    """SVG: a dot in each cell that is out of its budget, for who sees no colour."""


def width(used: float | str) -> float:
    """The length of a budget's bar in percent: full from 100 % on."""
    return round(100 * min(float(used), 1.0), 1)


def layers(heat: Mapping[str, Any]) -> list[Layer]:
    """The cells of a picture, shade by shade; a cell is a square of side 1."""
    values = [[float(x) for x in row] for row in heat["values"]]
    largest = max((x for x in chain(*values) if math.isfinite(x)), default=0.0)
    paths: dict[int, list[str]] = {}
    marks: dict[int, list[str]] = {}
    for y, row in enumerate(values):
        x = 0
        for level, cells in groupby(_level(value, largest) for value in row):
            length = len(list(cells))
            paths.setdefault(level, []).append(f"M{x} {y}h{length}v1h-{length}z")
            if level >= len(WITHIN):
                dots = (f"M{x + n}.5 {y}.5h0" for n in range(length))
                marks.setdefault(level, []).extend(dots)
            x += length
    return [
        Layer(level, "".join(paths[level]), "".join(marks.get(level, [])))
        for level in sorted(paths)
    ]


def _level(used: float, largest: float) -> int:
    ends = (*WITHIN, *(share * largest for share in BEYOND), math.inf)
    first = 0 if used <= 1 else len(WITHIN)
    return next(n for n, end in enumerate(ends) if n >= first and used <= end)


def caption(heat: Mapping[str, Any]) -> str:
    """`output[b=0, n=1], i down (17), e across (8): 12 of 136 over budget, …`."""
    at = ", ".join(f"{axis}={place}" for axis, place in heat["at"].items())
    place = f"{heat['result']}[{at}]" if at else heat["result"]
    cells = [float(x) for row in heat["values"] for x in row]
    over = sum(x > 1 for x in cells)
    size, drawn = math.prod(heat["sizes"]), len(cells)
    what = "elements" if drawn == size else "blocks of elements"
    down, across = heat["sizes"]
    return (
        f"{place}, {heat['rows']} down ({down}), {heat['columns']} across ({across}): "
        f"{over} of {drawn} {what} out of budget, the worst {share(max(cells))}"
    )


def parts(split: Mapping[str, float]) -> Sequence[tuple[str, float, int]]:
    """Source, percent, and number of its colour: what is at least 1 % of a budget."""
    kept = ((name, 100 * part) for name, part in split.items() if part >= 0.01)
    return [
        (name, round(percent, 1), min(number, SHARES - 1))
        for number, (name, percent) in enumerate(kept)
    ]

"""What batches of unequal length waste, on real lengths."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import text

from attnref.spec import (
    by_bucket,
    by_length,
    first_fit_decreasing,
    in_order,
    layout,
    waste_of_batches,
    waste_of_rows,
)

SIZE = 32
BOUNDS = (16, 32, 64, 128, 256, 512, 1024)
BUDGETS = (1024, 2048)
TILE = 64
"""Positions of a block, of blocked attention on packed rows."""


def measure() -> dict[str, Any]:
    """The lengths, and the waste of every way to batch them."""
    return {
        "text": text.PARAGRAPHS,
        "python": text.version(),
        **of(text.lengths()),
    }


def of(lengths: Sequence[int]) -> dict[str, Any]:
    """What is known of these lengths; all of it is arithmetic on integers."""
    ordered = sorted(lengths)
    return {
        "sequences": len(lengths),
        "tokens": sum(lengths),
        "shortest": ordered[0],
        "median": ordered[len(ordered) // 2],
        "longest": ordered[-1],
        "size": SIZE,
        "tile": TILE,
        "lengths": " ".join(map(str, lengths)),
        "plans": [*_batches(lengths), *_rows(lengths)],
    }


def _batches(lengths: Sequence[int]) -> list[dict[str, Any]]:
    plans = {
        f"{SIZE} as they come": (in_order(lengths, SIZE), None),
        f"{SIZE} of a bucket": (by_bucket(lengths, BOUNDS, SIZE), BOUNDS),
        f"{SIZE} by length": (by_length(lengths, SIZE), None),
    }
    return [
        {"plan": name, "batches": len(plan)}
        | waste_of_batches(plan, lengths, bounds)._asdict()
        for name, (plan, bounds) in plans.items()
    ]


def _rows(lengths: Sequence[int]) -> list[dict[str, Any]]:
    """Whole rows, and rows of which only blocks that are not empty are computed."""
    found = []
    for budget in BUDGETS:
        plan = first_fit_decreasing(lengths, budget)
        waste = waste_of_rows(plan, lengths, budget)
        name = f"packed in rows of {budget}"
        visited = sum(_visited(row, lengths, budget) for row in plan)
        blocked = visited / sum(length**2 for length in lengths)
        row = {"batches": len(plan)} | waste._asdict()
        found += [
            {"plan": name} | row,
            {"plan": f"{name}, in blocks"} | row | {"scores": blocked},
        ]
    return found


def _visited(row: Sequence[int], lengths: Sequence[int], budget: int) -> int:
    """Entries of the blocks of one row that its mask does not empty."""
    own = [lengths[index] for index in row]
    mask = layout([list(range(len(own)))], own, budget).mask()
    starts = range(0, budget, TILE)
    claims = [mask.block(i, i + TILE, j, j + TILE) for i, j in product(starts, starts)]
    return TILE**2 * (len(claims) - claims.count("empty"))

"""Where the errors of a result lie: a small picture of its budgets' use."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context

import numpy as np

from attncheck.kinds import kinds
from attncheck.verdict import Verdict

CELLS = 32
"""The most rows, and the most columns, of a picture."""

PICTURES = 12
"""Failures of a subject that are drawn."""

_TWO_DIGITS = Context(prec=2, rounding=ROUND_CEILING)


@dataclass(frozen=True)
class Heat:
    """Shares of the budget over the last two axes of a result, at its worst element.

    Those are query × key for steps, query × channel for the output.
    """

    result: str
    at: Mapping[str, int]
    """Axis letter → index, for the axes that are not drawn."""
    rows: str
    """The axis letter of the rows."""
    columns: str
    sizes: tuple[int, int]
    """How many elements the two axes have."""
    values: Sequence[Sequence[float]]
    """Each the largest share of a block of elements, rounded up to two digits: what is
    above 1 fails."""


def heat(result: str, worst: Mapping[str, int], used: np.ndarray) -> Heat:
    """The picture of the matrix that holds the worst element.

    Args:
        used: the share of its budget that each element uses.
    """
    *fixed, rows, columns = worst
    at = {axis: worst[axis] for axis in fixed}
    matrix = used[tuple(at.values())]
    values = [[_rounded_up(x) for x in row] for row in _pooled(matrix)]
    return Heat(result, at, rows, columns, matrix.shape, values)


def telling(failures: Iterable[Verdict]) -> list[Verdict]:
    """The failures that are drawn: the simplest of each kind, and of each clause the
    one of most cells, of those preferably in float32."""
    groups = [group for group in kinds(failures) if _can_be_drawn(group[0])]
    by_clause: dict[tuple, list[Verdict]] = {}
    for verdict in (v for group in groups for v in group if _can_be_drawn(v)):
        by_clause.setdefault(verdict.case.clauses[:1], []).append(verdict)
    chosen = [group[0] for group in groups]
    chosen += [max(found, key=_cells) for found in by_clause.values()]
    return list({v.case.id: v for v in chosen}.values())[:PICTURES]


def _cells(verdict: Verdict) -> tuple[int, bool]:
    """How many cells the picture of a failure has; then whether it is in float32."""
    first, case = verdict.first_failure, verdict.case
    assert first is not None
    assert first.worst is not None
    drawn = list(first.worst.index)[-2:]
    cells = math.prod(min(case.sizes[axis], CELLS) for axis in drawn)
    return cells, case.dtype == "F32"


def _can_be_drawn(verdict: Verdict) -> bool:
    """Whether numbers were compared, in a matrix at least."""
    first = verdict.first_failure
    return first is not None and first.worst is not None and len(first.worst.index) > 1


def _pooled(matrix: np.ndarray) -> np.ndarray:
    """The largest values of equal blocks, at most `CELLS` along each axis."""
    for axis in (0, 1):
        block = -(-matrix.shape[axis] // CELLS)
        starts = np.arange(0, matrix.shape[axis], block)
        matrix = np.maximum.reduceat(matrix, starts, axis)
    return matrix


def _rounded_up(x: float) -> float:
    return float(_TWO_DIGITS.create_decimal_from_float(float(x)))

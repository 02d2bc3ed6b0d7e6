"""Pieces of code, as text."""

from collections.abc import Iterator, Sequence

WIDTH = 76
"""Columns of a line, so that it can be shown anywhere."""

INSIDE = ("b", "n", "i", "d")
"""The axes of arrays inside an adapter."""


def moves(axes: str, order: Sequence[str] = INSIDE) -> str:
    """The code that takes an array from its axes to `order`; a lacking one gets 1."""
    own = axes.split()
    wanted = [axis for axis in order if axis in own]
    lacking = ["None" for axis in order if own and axis not in own]
    moves = "".join(f".swapaxes({x}, {y})" for x, y in _swaps(own, wanted))
    return moves + (f"[{', '.join(lacking)}]" if lacking else "")


def moves_back(axes: str, order: Sequence[str] = INSIDE) -> str:
    """The code that takes an array from `order` to its axes, lacking ones away."""
    own = axes.split()
    wanted = [axis for axis in order if axis in own]
    lacking = ["0" for axis in order if own and axis not in own]
    moves = "".join(f".swapaxes({x}, {y})" for x, y in _swaps(wanted, own))
    return (f"[{', '.join(lacking)}]" if lacking else "") + moves


def _swaps(start: Sequence[str], end: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The swaps of two axes that lead from one order to another."""
    now = list(start)
    for place, axis in enumerate(end):
        where = now.index(axis)
        if where != place:
            now[place], now[where] = now[where], now[place]
            yield place, where


def each(names: Sequence[str], expression: str) -> str:
    """The same expression of x for each of these arrays."""
    arrays = ", ".join(names)
    line = f"{arrays} = ({expression} for x in ({arrays}))"
    if len(line) + 4 <= WIDTH:
        return line
    return f"{arrays} = (\n    {expression}\n    for x in ({arrays})\n)"


def wrapped(head: str, parts: Sequence[str], tail: str) -> str:
    """`head(a, b)tail` over as few lines as there is room for."""
    inner = ", ".join(parts)
    if len(head + inner + tail) + 4 <= WIDTH:
        return head + inner + tail
    if len(inner) + 8 <= WIDTH:
        return f"{head}\n    {inner}\n{tail}"
    return "\n".join([head, *(f"    {part}," for part in parts), tail])

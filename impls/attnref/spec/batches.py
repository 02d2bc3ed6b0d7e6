"""Batches of sequences of unequal length, as plans of indices.

A batch is a rectangle: sequences that are shorter than its longest are filled up with
padding, which costs as much as tokens do.  There are two ways out of it:

* *bucketing*: sequences of like length share a batch, so that little is filled up;
* *packing*: several sequences lie one after the other in a row, as segments that do not
  see each other.

A plan is a list of batches or rows, each a list of indices into `lengths`.  `Layout`
says where in a rectangle every token of a plan's rows lies, so that two gathers bring
packed sequences (`t h x`, see `layouts`) into it and back.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple

from attnref.spec.layouts import Array, _rearrange
from attnref.spec.masks import Mask, _is_int, segments

Plan = list[list[int]]
"""Batches or rows, each the indices of its sequences."""

ROWS = "b t h x -> b h t x"  # of packed tokens, gathered for every place of a row
TOKENS = "b h t x -> (b t) h x"  # of which those that hold a token are kept

PADDING_QUERY, PADDING_KEY = -1, -2
"""The segments of padding: no key has the first and no query the second, so that
padding sees nothing and is not seen."""


def in_order(lengths: Sequence[int], size: int) -> Plan:
    """Batches of `size` sequences as they come; the last one may have fewer."""
    return _cut(list(range(len(_checked(lengths)))), size)


def by_length(lengths: Sequence[int], size: int) -> Plan:
    """Batches of `size` sequences of like length: sorted, the longest first, and cut.

    Sequences of one length stay in their order.
    """
    return _cut(_longest_first(lengths), size)


def by_bucket(lengths: Sequence[int], bounds: Sequence[int], size: int) -> Plan:
    """Batches of `size` sequences of one bucket, in the order in which they fill up.

    A sequence goes to the first bucket whose bound is not below its length, and a batch
    is done when it has `size` sequences; what is left at the end is done too.  Filled
    up to its bound, a batch has one of few shapes, and sequences are not sorted.

    Raises:
        ValueError: a length above all bounds, or bounds that do not rise.
    """
    if list(bounds) != sorted(set(bounds)):
        raise ValueError(f"`bounds` must rise, but are {list(bounds)}")
    filling: dict[int, list[int]] = {bound: [] for bound in bounds}
    done: Plan = []
    for index, length in enumerate(_checked(lengths)):
        bound = next((x for x in bounds if length <= x), None)
        if bound is None:
            raise ValueError(
                f"sequence {index} has length {length}, above all of `bounds` = "
                f"{list(bounds)}"
            )
        filling[bound].append(index)
        if len(filling[bound]) == _positive("size", size):
            done.append(filling[bound])
            filling[bound] = []
    return done + [batch for batch in filling.values() if batch]


def first_fit_decreasing(lengths: Sequence[int], budget: int) -> Plan:
    """Rows of at most `budget` tokens: the longest first, each where it first fits.

    The number of rows is at most 11/9 of the least possible, and 6/9 of a row.

    Raises:
        ValueError: a sequence that is longer than the budget.

    Source: Johnson et al., Worst-case performance bounds for simple one-dimensional
    packing algorithms (SIAM J. Comput. 3, 1974); the bound is tight: Dósa, The tight
    bound of first fit decreasing bin-packing algorithm (2007).
    """
    rows: Plan = []
    left: list[int] = []
    for index in _longest_first(lengths):
        length = lengths[index]
        if length > _positive("budget", budget):
            raise ValueError(
                f"sequence {index} has length {length}, above the budget of {budget}"
            )
        row = next((x for x, free in enumerate(left) if length <= free), len(rows))
        if row == len(rows):
            rows.append([])
            left.append(budget)
        rows[row].append(index)
        left[row] -= length
    return rows


class Waste(NamedTuple):
    """What a plan computes, over what it was asked for: 1 is no waste."""

    tokens: float
    """Places of the rectangles over tokens: what projections and the like cost."""
    scores: float
    """Entries of the score matrices, computed whole, over those within sequences."""
    shapes: int
    """How many different rectangles there are: compilers make code for each."""


def waste_of_batches(
    plan: Plan, lengths: Sequence[int], bounds: Sequence[int] | None = None
) -> Waste:
    """A sequence a row, filled up to the longest of its batch, or to its bound."""
    longest = [max(lengths[index] for index in batch) for batch in plan]
    if bounds is not None:
        longest = [min(x for x in bounds if x >= length) for length in longest]
    sizes = [(len(batch), wide) for batch, wide in zip(plan, longest, strict=True)]
    return _waste(sizes, lengths)


def waste_of_rows(plan: Plan, lengths: Sequence[int], budget: int) -> Waste:
    """Several sequences a row, all rows `budget` long: one rectangle."""
    return _waste([(len(plan), budget)], lengths)


class Layout(NamedTuple):
    """Where the tokens of packed sequences lie in rows of one length."""

    source: list[list[int]]
    """`b t`: which of the packed tokens lies at a place; 0 where none does."""
    ids: list[list[int]]
    """`b t`: the index of the sequence that lies there, −1 where none does."""
    positions: list[list[int]]
    """`b t`: the place of a token in its own sequence; 0 where there is none."""
    places: list[int]
    """For each packed token its place in the rows one after the other, `(b t)`."""

    def mask(self) -> Mask:
        """Every token sees its own sequence, and padding sees nothing."""
        k_ids = [[PADDING_KEY if x < 0 else x for x in row] for row in self.ids]
        return segments(self.ids, k_ids)

    def rows(self, packed: Array, asarray: Callable) -> Array:
        """`t h x`, sequences one after the other → `b h t x`, for `attention`."""
        return _rearrange(packed[asarray(self.source)], ROWS)

    def tokens(self, rows: Array, asarray: Callable) -> Array:
        """`b h t x` → `t h x`: such as an output, in the order of the sequences."""
        return _rearrange(rows, TOKENS)[asarray(self.places)]


def layout(plan: Plan, lengths: Sequence[int], width: int) -> Layout:
    """The layout of a plan's rows, each `width` long; `width` is a budget, or the most.

    Raises:
        ValueError: a sequence is not there exactly once, or a row is too long.
    """
    if sorted(x for row in plan for x in row) != list(range(len(_checked(lengths)))):
        raise ValueError(
            f"a plan must hold each of {len(lengths)} sequences once, but is {plan}"
        )
    starts = list(accumulate(lengths, initial=0))
    source, ids, positions = (
        [[fill] * width for _ in plan] for fill in (0, PADDING_QUERY, 0)
    )
    places = [0] * starts[-1]
    for b, row in enumerate(plan):
        tokens = [(index, at) for index in row for at in range(lengths[index])]
        if len(tokens) > width:
            raise ValueError(f"row {b} has {len(tokens)} tokens, above {width}")
        for t, (index, at) in enumerate(tokens):
            token = starts[index] + at
            source[b][t], ids[b][t], positions[b][t] = token, index, at
            places[token] = b * width + t
    return Layout(source, ids, positions, places)


def _waste(rectangles: list[tuple[int, int]], lengths: Sequence[int]) -> Waste:
    """Of rectangles of so many rows, each so wide."""
    return Waste(
        tokens=sum(rows * wide for rows, wide in rectangles) / sum(lengths),
        scores=sum(rows * wide**2 for rows, wide in rectangles)
        / sum(length**2 for length in lengths),
        shapes=len(set(rectangles)),
    )


def _longest_first(lengths: Sequence[int]) -> list[int]:
    return sorted(range(len(_checked(lengths))), key=lambda index: -lengths[index])


def _cut(order: list[int], size: int) -> Plan:
    size = _positive("size", size)
    return [order[start : start + size] for start in range(0, len(order), size)]


def _checked(lengths: Sequence[int]) -> Sequence[int]:
    if not all(_is_int(length) and length >= 0 for length in lengths):
        raise ValueError(f"`lengths` must be ints of at least 0, but is {lengths}")
    return lengths


def _positive(name: str, number: int) -> int:
    if not (_is_int(number) and number >= 1):
        raise ValueError(f"`{name}` must be an int of at least 1, but is {number!r}")
    return number

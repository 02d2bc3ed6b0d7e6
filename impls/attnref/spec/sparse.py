"""Sparse patterns as predicates: most keys blocked, so that whole blocks are empty.

Each answers like any other predicate and is combined with `&`, `|` and `~`.  What its
`block` says is exact, in a time that does not grow with the block, so that blocked code
skips every empty block.  So is "empty" of patterns that `|` joins.

A query `i` stands at position `p = i + offset`, as in `causal`; key `j` at `j`.

    Sparse Transformers   strided(l)   fixed(l, c)
    Longformer            dilated_window(w, w, r) | global_positions(g)
    BigBird               block_local(s, 1, 1) | listed_blocks(x, s)
                          | global_positions(g)

Source: Child et al., Generating Long Sequences with Sparse Transformers (arXiv
1904.10509), section 4; Beltagy et al., Longformer (arXiv 2004.05150), section 3.1;
Zaheer et al., Big Bird (arXiv 2007.14062), section 2.
"""

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from attnref.spec.masks import (
    Extent,
    Mask,
    _at,
    _extent,
    _integers,
    _is_int,
    _shape,
    window,
)


def strided(stride: int, offset: Any = 0) -> Mask:
    """The last `stride` keys, and before them every one a multiple of `stride` away.

    Causal: key `j ≤ p` with `p − j < stride` or `(p − j) mod stride = 0`.  It is
    `window(stride − 1, 0) | dilated_window(None, 0, stride)`.

    Source: Child et al. (arXiv 1904.10509), section 4.3, the two sets together.
    """
    _at_least(1, "strided", stride=stride)
    far = dilated_window(None, 0, stride, offset)
    return window(stride - 1, 0, offset) | far


def fixed(length: int, summary: int, offset: Any = 0) -> Mask:
    """The query's own block, and the last `summary` keys of every block before it.

    Causal: key `j ≤ p` with `⌊j / length⌋ = ⌊p / length⌋` or `j mod length ≥ length −
    summary`.  What is before the first key counts as a block like the others.

    Source: Child et al. (arXiv 1904.10509), section 4.3.
    """
    _at_least(1, "fixed", length=length, summary=summary)
    if summary > length:
        raise ValueError(
            f"`fixed` takes summary ≤ length = {length}, but got {summary}"
        )
    length, summary = operator.index(length), operator.index(summary)
    return _Fixed(length, summary, _offset("fixed", offset))


def block_local(
    size: int, left: int | None = 0, right: int | None = 0, offset: Any = 0
) -> Mask:
    """The keys of the query's own block of `size` positions, and of those beside it.

    `left` and `right` say how many blocks beside it on each side; None: all of them.
    """
    _at_least(1, "block_local", size=size)
    left, right = _ends("block_local", left, right)
    return _BlockLocal(
        operator.index(size), left, right, _offset("block_local", offset)
    )


def dilated_window(
    left: int | None, right: int | None, dilation: int, offset: Any = 0
) -> Mask:
    """The keys `p + r·dilation` for r from −left to right; None: no bound on that side.

    `dilated_window(left, right, 1)` is `window(left, right)`.

    Source: Beltagy et al. (arXiv 2004.05150), section 3.1.
    """
    _at_least(1, "dilated_window", dilation=dilation)
    left, right = _ends("dilated_window", left, right)
    return _DilatedWindow(
        left, right, operator.index(dilation), _offset("dilated_window", offset)
    )


def global_positions(positions: Any, offset: Any = 0) -> Mask:
    """Positions that see every key, and that every query sees.

    `positions` are one or more integers; each key at one of them is visible to all, and
    a query at one of them sees all.

    Source: Beltagy et al. (arXiv 2004.05150), section 3.1: "symmetric".
    """
    positions = _integers("global_positions", "positions", positions, "x")
    if not _shape(positions)[0]:
        raise ValueError("`global_positions` takes at least one position")
    return _Global(positions, _offset("global_positions", offset))


def listed_blocks(blocks: Any, size: int = 1) -> Mask:
    """Queries of block `x` see the keys of the blocks `blocks[x, 0]`, `blocks[x, 1]`, …

    Both are cut into blocks of `size` positions; the last one may be shorter.  Random
    patterns are given so, as indices: the spec draws no random numbers.

    Args:
        blocks: integers of axes `x y`, a row for each block of queries.  A number that
            is no block, such as −1, lists nothing; one that is there twice counts once.

    Source: Zaheer et al. (arXiv 2007.14062), section 2 and appendix D: the random part.
    """
    _at_least(1, "listed_blocks", size=size)
    blocks = _integers("listed_blocks", "blocks", blocks, "x y")
    if 0 in _shape(blocks)[1:]:
        raise ValueError("`listed_blocks` takes rows of at least one block")
    return _Listed(blocks, operator.index(size))


@dataclass(frozen=True)
class _Fixed(Mask):
    length: int
    summary: int
    offset: Any = field(metadata={"axes": "b"})

    def __call__(self, b, n, i, j):
        p = i + _at(self.offset, b)
        is_own = j // self.length == p // self.length
        return (j <= p) & (is_own | (j % self.length >= self.length - self.summary))

    def block(self, i0, i1, j0, j1):
        def claim(p0: int, p1: int) -> Extent:
            first, last = (p // self.length * self.length for p in (p0, p1 - 1))
            # Together, the queries' own blocks are one stretch that ends at the last.
            seen = _overlap(j0, j1, first, p1) + self._summaries(j0, min(j1, first))
            before = max(j0, min(j1, last))  # keys that are no query's own, or not all
            return _extent(
                empty=seen == 0,
                full=j1 <= p0 + 1 and self._summaries(j0, before) == before - j0,
            )

        return _at_each(self.offset, i0, i1, claim)

    def _summaries(self, start: int, stop: int) -> int:
        """How many keys of a stretch are among the last of their block."""
        rest = self.length - self.summary

        def below(end: int) -> int:
            blocks, within = divmod(end, self.length)
            return blocks * self.summary + max(0, within - rest)

        return below(stop) - below(start) if start < stop else 0


@dataclass(frozen=True)
class _BlockLocal(Mask):
    size: int
    left: int | None
    right: int | None
    offset: Any = field(metadata={"axes": "b"})

    def __call__(self, b, n, i, j):
        apart = j // self.size - (i + _at(self.offset, b)) // self.size
        inside = [apart >= -self.left] if self.left is not None else []
        inside += [apart <= self.right] if self.right is not None else []
        return reduce(operator.and_, inside) if inside else (i >= 0) & (j >= 0)

    def block(self, i0, i1, j0, j1):
        first, last = j0 // self.size, (j1 - 1) // self.size

        def claim(p0: int, p1: int) -> Extent:
            low, high = first - (p1 - 1) // self.size, last - p0 // self.size
            return _within(low, high, self.left, self.right)

        return _at_each(self.offset, i0, i1, claim)


@dataclass(frozen=True)
class _DilatedWindow(Mask):
    left: int | None
    right: int | None
    dilation: int
    offset: Any = field(metadata={"axes": "b"})

    def __call__(self, b, n, i, j):
        apart = j - (i + _at(self.offset, b))
        inside = [apart % self.dilation == 0]
        if self.left is not None:
            inside.append(apart >= -self.left * self.dilation)
        if self.right is not None:
            inside.append(apart <= self.right * self.dilation)
        return reduce(operator.and_, inside)

    def block(self, i0, i1, j0, j1):
        def claim(p0: int, p1: int) -> Extent:
            low, high = j0 - (p1 - 1), j1 - 1 - p0
            steps = -(-low // self.dilation), high // self.dilation
            if steps[0] > steps[1]:  # no multiple between
                return "empty"
            found = _within(*steps, self.left, self.right)
            all_steps = self.dilation == 1 or low == high
            return "partial" if found == "full" and not all_steps else found

        return _at_each(self.offset, i0, i1, claim)


@dataclass(frozen=True)
class _Global(Mask):
    positions: Any = field(metadata={"axes": "x"})
    offset: Any = field(metadata={"axes": "b"})

    def __call__(self, b, n, i, j):
        p = i + _at(self.offset, b)
        # One comparison after the other: compiled kernels take no sums over an axis.
        count = _shape(self.positions)[0]
        places = [self.positions[x] for x in range(count)]
        return reduce(operator.or_, ((p == x) | (j == x) for x in places))

    def block(self, i0, i1, j0, j1):
        known = _known(self.positions)
        if known is None:
            return "partial"
        places = set(known)
        keys = sum(j0 <= x < j1 for x in places)

        def claim(p0: int, p1: int) -> Extent:
            queries = sum(p0 <= x < p1 for x in places)
            return _extent(
                empty=keys + queries == 0,
                full=keys == j1 - j0 or queries == p1 - p0,
            )

        return _at_each(self.offset, i0, i1, claim)


@dataclass(frozen=True)
class _Listed(Mask):
    blocks: Any = field(metadata={"axes": "x y"})
    size: int

    def __call__(self, b, n, i, j):
        own, key = i // self.size, j // self.size
        columns = range(_shape(self.blocks)[1])
        return reduce(operator.or_, (self.blocks[own, y] == key for y in columns))

    def check(self, sizes):
        want = -(-sizes["i"] // self.size)
        if (rows := _shape(self.blocks)[0]) != want:
            raise ValueError(
                f"`blocks` of the mask must have x = {want} rows, for i = {sizes['i']} "
                f"query positions in blocks of {self.size}, but has {rows}"
            )

    def block(self, i0, i1, j0, j1):
        listed = _known(self.blocks)
        if listed is None:
            return "partial"
        keys = set(range(j0 // self.size, (j1 - 1) // self.size + 1))
        rows = listed[i0 // self.size : (i1 - 1) // self.size + 1]
        return _extent(
            empty=all(keys.isdisjoint(row) for row in rows),
            full=all(keys.issubset(row) for row in rows),
        )


def _at_each(
    offset: Any, i0: int, i1: int, claim: Callable[[int, int], Extent]
) -> Extent:
    """What is claimed of the positions of some queries, if it is so at every offset."""
    offsets = [offset] if isinstance(offset, int) else _known(offset)
    claims = {claim(i0 + x, i1 + x) for x in offsets or ()}
    # None where the offsets are traced, or there is no batch at all.
    return claims.pop() if len(claims) == 1 else "partial"


def _within(low: int, high: int, left: int | None, right: int | None) -> Extent:
    """How many of the integers from low to high lie from −left to right."""
    return _extent(
        empty=(left is not None and high < -left)
        or (right is not None and low > right),
        full=(left is None or low >= -left) and (right is None or high <= right),
    )


def _overlap(start: int, stop: int, first: int, end: int) -> int:
    """How many integers two stretches have in common, ends exclusive."""
    return max(0, min(stop, end) - max(start, first))


def _known(values: Any) -> Any:
    """Carried values as plain ones, or None under a trace."""
    if isinstance(values, tuple):
        return values
    try:
        return values.tolist()
    except (TypeError, ValueError, RuntimeError):  # traced
        return None


def _offset(owner: str, offset: Any) -> Any:
    return _integers(owner, "offset", offset, "b", or_int=True)


def _ends(owner: str, *ends: int | None) -> Iterable[Any]:
    _at_least(
        0,
        owner,
        **{k: x for k, x in zip(("left", "right"), ends, strict=True) if x is not None},
    )
    return (x if x is None else operator.index(x) for x in ends)


def _at_least(least: int, owner: str, **numbers: Any) -> None:
    for name, number in numbers.items():
        if not (_is_int(number) and number >= least):
            raise ValueError(f"`{owner}` takes {name} ≥ {least}, but got {number!r}")

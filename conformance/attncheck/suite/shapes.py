"""The shapes of the cases: few, small, and each there for a reason."""

from typing import NamedTuple


class Shape(NamedTuple):
    """Axis sizes; `c` and `m` are those of multi-head cases."""

    b: int
    h: int
    g: int
    i: int
    j: int
    d: int
    e: int
    c: int = 0
    m: int = 0

    @property
    def sizes(self) -> dict[str, int]:
        """Axis letter → size, with `n = h·g`."""
        return self._asdict() | {"n": self.h * self.g}


PRIMES = Shape(b=2, h=3, g=2, i=5, j=7, d=11, e=13)
"""No two axes of an array are the same: axes that are confused are an error."""

COINCIDENCE = Shape(b=4, h=2, g=2, i=4, j=4, d=4, e=4)
"""b = n = i = j = d = e: axes that are confused go unnoticed, but for the numbers."""

UNGROUPED = Shape(b=2, h=3, g=1, i=9, j=6, d=12, e=12)
"""No groups, more queries than keys, and a width whose root is not a power of two."""

SQUARE = UNGROUPED._replace(i=6)
"""No groups, as many queries as keys: the one can be taken for the other."""

DECODE = Shape(b=3, h=2, g=2, i=1, j=19, d=8, e=8)
"""One query at the end of a cache."""

LONG = Shape(b=2, h=1, g=3, i=5, j=67, d=20, e=6)
"""One key/value head, and more keys than a tile of 64."""

WIDE = Shape(b=1, h=1, g=2, i=8, j=512, d=16, e=128)
"""Keys enough for many tiles, and values so wide that sums over them lose bits."""

NO_BATCH = PRIMES._replace(b=0)
NO_QUERIES = PRIMES._replace(i=0)
NO_KEYS = PRIMES._replace(j=0)

TALL = Shape(b=3, h=2, g=2, i=7, j=5, d=13, e=11)
"""More queries than keys, and other primes."""

AROUND_A_TILE = 3
"""So many of `LENGTHS`: one position less than a tile has, as many, and one more."""

LENGTHS = (15, 16, 17, 63, 64, 65, 127, 128, 129)
"""Around the tiles of 16, of 64 and of 128 positions."""

LONGEST = (512, 2048)
"""Keys of the longest cases, which have few queries."""


def of_length(length: int, *, square: bool = False) -> Shape:
    """Few queries, or as many as keys, over `length` keys."""
    return Shape(b=1, h=2, g=2, i=length if square else 3, j=length, d=6, e=5)

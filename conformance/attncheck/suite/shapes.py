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

MULTI_QUERY = Shape(b=2, h=1, g=5, i=7, j=3, d=11, e=6)
"""One key/value head, and more queries than keys."""

SQUARE = Shape(b=2, h=3, g=1, i=9, j=9, d=12, e=12)
"""Self-attention without groups, of a width whose root is not a power of two."""

DECODE = Shape(b=3, h=2, g=2, i=1, j=19, d=8, e=8)
"""One query at the end of a cache."""

LONG = Shape(b=2, h=2, g=2, i=5, j=67, d=20, e=6)
"""More keys than a tile of 64."""

NO_BATCH = PRIMES._replace(b=0)
NO_QUERIES = PRIMES._replace(i=0)
NO_KEYS = PRIMES._replace(j=0)

TALL = Shape(b=3, h=2, g=2, i=7, j=5, d=13, e=11)
"""More queries than keys, and other primes."""

LENGTHS = (15, 16, 17, 63, 64, 65)
"""Around the tiles of 16 and of 64 keys."""


def of_length(length: int, *, square: bool = False) -> Shape:
    """Few queries, or as many as keys, over `length` keys."""
    return Shape(b=1, h=2, g=2, i=length if square else 3, j=length, d=6, e=5)

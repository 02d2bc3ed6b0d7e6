"""The axis letters: one table for patterns, error messages, docs and files."""

from types import MappingProxyType

AXES = MappingProxyType(
    {
        "b": "batch",
        "n": "query heads",
        "h": "key/value heads",
        "g": "query heads per key/value head",
        "i": "query positions",
        "j": "key positions",
        "d": "query/key width",
        "e": "value width",
        "c": "model width",
        "m": "context width",
        "r": "rows or rank",
        "a": "additive width",
        "p": "rotary width",
    }
)
"""Letter → what it counts.  `n = h·g`, and grouped heads are ordered `(h g)`: query
heads `h·g … h·g + g − 1` share key/value head `h`.  `r`, `a` and `p` are of variants:
the rows of a table or the rank of a compression, and two inner widths."""

MAY_BE_EMPTY = frozenset("bij")
"""Axes that may have size 0: no batch, no queries, or no keys (every row is empty)."""

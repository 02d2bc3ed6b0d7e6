"""Positions relative to a query: the rows of tables, T5's buckets, ALiBi's slopes.

A *distance* is j − (i + offset): above 0 for a key after the query.  The functions of a
distance take an int or an array of integers of any framework, as masks do: their
arithmetic is that of what they are given, and is exact.
"""

from typing import Any

Distance = Any
"""An int, or integers of any framework."""


def shaw_row(distance: Distance, clip: int) -> Distance:
    """The row of a table of 2·clip + 1 for a distance: clip(distance, −c, c) + c.

    Source: Shaw et al. (arXiv 1803.02155), section 3.2.
    """
    # |x + c| − |x − c| is 2x within ±c, and ±2c outside.
    return (abs(distance + clip) - abs(distance - clip)) // 2 + clip


def shaw_clip(rows: int) -> int:
    """The distance c up to which a table of 2c + 1 rows tells distances apart.

    Raises:
        ValueError: the number of rows is even.
    """
    if rows % 2 == 0:
        raise ValueError(
            "`key_table` must have rows r = 2c + 1, for the distances −c … c, but has "
            f"r = {rows}"
        )
    return rows // 2


def t5_bucket(
    distance: Distance,
    buckets: int,
    max_distance: int = 128,
    bidirectional: bool = True,
) -> Distance:
    """The bucket of a distance: near ones have their own, far ones share.

    With half of the buckets for either direction, or all for the keys up to the query:
    the first half of those has one bucket a distance, the other half is in logarithmic
    steps up to `max_distance`, and the last bucket has all that are farther.  Keys
    after the query have the upper half, or, unless `bidirectional`, bucket 0.

    What is decided by a logarithm, whether a distance x has reached step t of K between
    e and M, is decided in integers: x^K ≥ M^t · e^(K − t).

    Source: Raffel et al. (arXiv 1910.10683), section 2.1, and their published code,
    `mesh_tensorflow/transformer/transformer_layers.py`.

    Raises:
        ValueError: too few buckets, an odd number of them where `bidirectional`, or a
            `max_distance` that near distances reach.
    """
    check_t5(buckets, max_distance, bidirectional)
    side = buckets // 2 if bidirectional else buckets
    length = abs(distance) if bidirectional else (abs(distance) - distance) // 2
    bucket = sum(length >= start for start in _starts(side, max_distance))
    return bucket + side * (distance > 0) if bidirectional else bucket


def check_t5(buckets: int, max_distance: int, bidirectional: bool) -> None:
    """The buckets that there are can be told apart."""
    least = 4 if bidirectional else 2
    if buckets < least or (bidirectional and buckets % 2):
        want = "an even r ≥ 4 if bidirectional" if bidirectional else "r ≥ 2"
        raise ValueError(f"`table` must have rows {want}, but has r = {buckets}")
    near = buckets // least
    if type(max_distance) is not int or max_distance <= near:
        raise ValueError(
            f"`max_distance` must be an int above {near}, up to which each distance "
            f"has a bucket, but is {max_distance!r}"
        )


def _starts(side: int, farthest: int) -> list[int]:
    """The least distance of every bucket but the first, in order."""
    near = side // 2
    steps, distance = side - near, near
    starts = list(range(1, near))
    for step in range(steps):  # plain loops: torch.compile reads them
        while distance**steps < farthest**step * near ** (steps - step):
            distance += 1
        starts.append(distance)
    return starts


def alibi_slopes(n: int) -> list[float]:
    """The slopes of n heads, by the rule of ALiBi's published code.

    For a power of two they are 2^(−8k / n), k = 1 … n.  Otherwise those of the power of
    two below, and then every other one of the power of two above.

    Source: Press et al. (arXiv 2108.12409), section 3, and `get_slopes` in their
    published code, `fairseq/models/transformer.py`.
    """
    below = 1 << (n.bit_length() - 1)
    if below == n:
        return [2.0 ** (-8 * k / n) for k in range(1, n + 1)]
    return alibi_slopes(below) + alibi_slopes(2 * below)[::2][: n - below]

"""Rows, buckets and slopes, for every distance and head count that one may meet."""

from fractions import Fraction

import numpy as np
import pytest

from attnref.spec import alibi_slopes, shaw_row, t5_bucket
from attnref.spec.relative import shaw_clip

EVERY = range(-1000, 1001)


def exact_t5(distance, buckets, farthest, bidirectional):
    """The published rule with the logarithm in exact arithmetic, a step at a time.

    ⌊K·ln(x/e) / ln(M/e)⌋ is the largest t with (x/e)^K ≥ (M/e)^t.
    """
    side = buckets // 2 if bidirectional else buckets
    start = side if bidirectional and distance > 0 else 0
    x = abs(distance) if bidirectional else max(-distance, 0)
    near = side // 2
    if x < near:
        return start + x
    steps, t = side - near, 0
    far, reach = Fraction(x, near) ** steps, Fraction(farthest, near)
    while t < steps - 1 and far >= reach ** (t + 1):
        t += 1
    return start + near + t


KINDS = [
    (buckets, farthest, bidirectional)
    for buckets, farthest in ((32, 128), (32, 129), (64, 1000), (8, 5), (6, 20))
    for bidirectional in (True, False)
] + [(7, 20, False), (2, 2, False), (33, 500, False)]


@pytest.mark.parametrize(("buckets", "farthest", "bidirectional"), KINDS)
def test_every_t5_distance_is_exact(buckets, farthest, bidirectional):
    arguments = (buckets, farthest, bidirectional)
    want = [exact_t5(x, *arguments) for x in EVERY]
    assert [t5_bucket(x, *arguments) for x in EVERY] == want
    as_array = t5_bucket(np.array(EVERY), *arguments)
    assert as_array.tolist() == want


def test_t5s_published_buckets_by_hand():
    """32 buckets to 128: 16 a side, 8 near ones, edges at 8·16^(t/8)."""
    far = [15, 15, 14, 13, 11, 0, 27, 29, 30, 31, 31]
    assert [t5_bucket(x, 32) for x in range(-130, 131, 26)] == far
    edges = {8: 8, 12: 9, 16: 10, 23: 11, 32: 12, 46: 13, 64: 14, 91: 15, 128: 15}
    assert {x: t5_bucket(-x, 32) for x in edges} == edges
    assert [t5_bucket(-x - 1, 32) for x in (10, 14, 21, 30, 44, 62, 89)] == [
        *range(8, 15)
    ]
    assert t5_bucket(1000, 32, 128, False) == 0


def test_shaws_rows_are_clipped_distances():
    for clip in (0, 1, 4, 999):
        want = [min(max(x, -clip), clip) + clip for x in EVERY]
        assert [shaw_row(x, clip) for x in EVERY] == want
        assert shaw_row(np.array(EVERY), clip).tolist() == want
    assert [shaw_clip(rows) for rows in (1, 3, 9)] == [0, 1, 4]


def published_slopes(n):
    """`get_slopes` of ALiBi's code: a geometric series, its start its ratio."""
    if n & (n - 1) == 0:
        start = 2 ** (-(2.0 ** -((n.bit_length() - 1) - 3)))
        return [start * start**k for k in range(n)]
    below = 2 ** (n.bit_length() - 1)
    return published_slopes(below) + published_slopes(2 * below)[0::2][: n - below]


@pytest.mark.parametrize("n", range(1, 65))
def test_alibis_slopes_are_the_published_ones(n):
    """A power of a rounded start is off by as many units as it has factors."""
    found, want = alibi_slopes(n), published_slopes(n)
    assert len(found) == n
    np.testing.assert_allclose(found, want, rtol=(n + 2) * 2.0**-52, atol=0)
    if n & (n - 1) == 0:
        for k, slope in enumerate(found, 1):
            assert abs(Fraction(slope) ** n * 2 ** (8 * k) - 1) < Fraction(n, 2**51)
    assert all(0 < slope < 1 for slope in found)
    assert len(set(found)) == n

"""Cases about relative positions: biases, keys and values by distance."""

from typing import Any

from attncheck.suite.recipe import WITH_LSE, Recipe, lower_right, upper_left
from attncheck.suite.shapes import DECODE, LONG, PRIMES, UNGROUPED
from attncheck.suite.values import around, positive

ALIBI, T5, SHAW = "alibi_attention", "t5_attention", "shaw_attention"

SEVEN_HEADS = PRIMES._replace(h=7, g=1, b=1)
EIGHT_HEADS = PRIMES._replace(b=1, h=4, g=2)

WITH_TABLES = (*WITH_LSE, "key_table", "value_table")
CLIP_2 = {"r": 5}
"""Rows of a table for distances from −2 to 2."""

ALL_OPTIONS: dict[str, Any] = {
    "draw": {"bias": around(0, 2)},
    "bias": "nij",
    "scale": -0.4,
    "softcap": 1.5,
    "random_mask": True,
    "keep": "bnij",
    "dropout_rate": 0.25,
}
"""Of attention, at once."""


def every_other(sizes):
    """Every second query has no key."""
    return lambda b, n, i, j: (b + i) % 2 > 0


RECIPES = (
    Recipe(
        "alibi-eight-heads",
        ("alibi", "alibi-slopes"),
        "The bias grows with the distance instead of falling.",
        EIGHT_HEADS,
        op=ALIBI,
        causal=upper_left,
        smoke=False,
    ),
    Recipe(
        "alibi-six-heads",
        ("alibi-slopes",),
        "Slopes of six heads are powers of 2^(−8/6), or of the next power of two.",
        PRIMES,
        op=ALIBI,
        arrays=WITH_LSE,
    ),
    Recipe(
        "alibi-seven-heads",
        ("alibi-slopes",),
        "Of seven heads the last three have slopes in another order.",
        SEVEN_HEADS,
        op=ALIBI,
        resizable=False,
        smoke=False,
    ),
    Recipe(
        "alibi-given-slopes",
        ("alibi", "alibi-gradient"),
        "Slopes that are given are not used, or have no gradient.",
        PRIMES,
        op=ALIBI,
        arrays=(*WITH_LSE, "slopes"),
        draw={"slopes": positive},
    ),
    Recipe(
        "alibi-offset",
        ("alibi-offset",),
        "The query of a decode step stands at the first key.",
        DECODE,
        op=ALIBI,
        settings={"offset": 18},
        causal=lower_right,
    ),
    Recipe(
        "alibi-offset-by-batch",
        ("alibi-offset", "alibi"),
        "A key that comes later than its query gets a bias of the other sign.",
        PRIMES,
        op=ALIBI,
        settings={"offset": [2, -3]},
        resizable=False,
    ),
    Recipe(
        "alibi-all-options",
        ("alibi",),
        "The distance's bias is scaled or capped, or gives way to one that is given.",
        PRIMES,
        op=ALIBI,
        arrays=WITH_LSE,
        **ALL_OPTIONS,
    ),
    Recipe(
        "alibi-empty-rows",
        ("alibi", "empty-row-output", "empty-row-gradients"),
        "A query without keys is left its biases.",
        PRIMES,
        op=ALIBI,
        arrays=(*WITH_LSE, "slopes"),
        mask=every_other,
        smoke=False,
    ),
    Recipe(
        "t5-both-ways",
        ("t5", "t5-both-ways"),
        "Keys that come later share the buckets of those that came before.",
        PRIMES,
        op=T5,
        arrays=(*WITH_LSE, "table"),
        settings={"max_distance": 6},
        own_sizes={"r": 10},
    ),
    Recipe(
        "t5-causal",
        ("t5",),
        "The table is read by the distance with the other sign.",
        PRIMES,
        op=T5,
        arrays=(*WITH_LSE, "table"),
        settings={"max_distance": 6, "bidirectional": False},
        own_sizes={"r": 5},
        causal=upper_left,
    ),
    Recipe(
        "t5-far",
        ("t5", "t5-last-bucket"),
        "Distances beyond the longest have buckets beyond the last.",
        LONG,
        op=T5,
        arrays=("q", "k", "v", "d_out", "table"),
        settings={"max_distance": 11, "bidirectional": True, "offset": 30},
        own_sizes={"r": 12},
        resizable=False,
    ),
    Recipe(
        "t5-default-distance",
        ("t5", "t5-last-bucket"),
        "The longest distance is another than 128.",
        LONG,
        op=T5,
        arrays=("q", "k", "v", "d_out", "table"),
        settings={"bidirectional": False, "offset": 200},
        own_sizes={"r": 32},
    ),
    Recipe(
        "t5-offset-by-batch",
        ("t5", "t5-both-ways"),
        "One table of biases, that of the first batch element, serves all.",
        PRIMES,
        op=T5,
        arrays=("q", "k", "v", "d_out", "table"),
        settings={"max_distance": 8, "offset": [3, -2]},
        own_sizes={"r": 8},
        resizable=False,
    ),
    Recipe(
        "t5-all-options",
        ("t5",),
        "The table's bias is scaled or capped, or a bias that is given is lost.",
        PRIMES,
        op=T5,
        arrays=(*WITH_LSE, "table"),
        settings={"max_distance": 6},
        own_sizes={"r": 6},
        **ALL_OPTIONS,
    ),
    Recipe(
        "t5-empty-rows",
        ("t5", "empty-row-output", "empty-row-gradients"),
        "A query without keys gives the table a gradient.",
        PRIMES,
        op=T5,
        arrays=(*WITH_LSE, "table"),
        settings={"max_distance": 6},
        own_sizes={"r": 6},
        mask=every_other,
        smoke=False,
    ),
    Recipe(
        "shaw-keys-and-values",
        ("shaw-keys", "shaw-values"),
        "Distances have the other sign, or the term of the values is left out.",
        PRIMES,
        op=SHAW,
        arrays=WITH_TABLES,
        own_sizes=CLIP_2,
    ),
    Recipe(
        "shaw-keys-alone",
        ("shaw-keys",),
        "The term of the keys is added after the scale.",
        UNGROUPED,
        op=SHAW,
        arrays=("q", "k", "v", "d_out", "key_table"),
        own_sizes={"r": 7},
        scale=0.2,
    ),
    Recipe(
        "shaw-offset",
        ("shaw-clip", "shaw-keys"),
        "Distances beyond the table wrap around instead of being clipped.",
        DECODE,
        op=SHAW,
        arrays=("q", "k", "v", "d_out", "key_table", "value_table"),
        settings={"offset": 12},
        own_sizes=CLIP_2,
    ),
    Recipe(
        "shaw-one-row",
        ("shaw-clip", "shaw-values"),
        "A table of one row is not one for every distance.",
        PRIMES,
        op=SHAW,
        arrays=("q", "k", "v", "d_out", "key_table", "value_table"),
        own_sizes={"r": 1},
        smoke=False,
    ),
    Recipe(
        "shaw-offset-by-batch",
        ("shaw-clip", "shaw-values"),
        "Every batch element reads the rows of the first.",
        PRIMES,
        op=SHAW,
        arrays=("q", "k", "v", "d_out", "key_table", "value_table"),
        settings={"offset": [3, -2]},
        own_sizes=CLIP_2,
        resizable=False,
    ),
    Recipe(
        "shaw-all-options",
        ("shaw-keys", "shaw-values"),
        "The term of the keys misses the softcap, or that of the values the dropout.",
        PRIMES,
        op=SHAW,
        arrays=WITH_TABLES,
        own_sizes=CLIP_2,
        **ALL_OPTIONS,
    ),
    Recipe(
        "shaw-empty-rows",
        ("shaw-values", "empty-row-output", "empty-row-gradients"),
        "A query without keys is left the values of distances, or their gradient.",
        PRIMES,
        op=SHAW,
        arrays=WITH_TABLES,
        own_sizes=CLIP_2,
        mask=every_other,
    ),
)

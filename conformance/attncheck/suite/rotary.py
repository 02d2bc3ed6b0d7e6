"""Cases about rotary positions."""

import numpy as np

from attncheck.suite.recipe import (
    WITH_LSE,
    Arrays,
    Recipe,
    lower_right,
    seen_keys,
    upper_left,
)
from attncheck.suite.shapes import DECODE, PRIMES
from attncheck.suite.values import around

EVEN = PRIMES._replace(d=10)
ROTARY = "rotary_attention"


def nan_in_unseen_keys(arrays: Arrays) -> None:
    """NaN in keys that no query of their head may see."""
    arrays["k"][~seen_keys(arrays)] = np.nan


RECIPES = (
    Recipe(
        "rotary-halves",
        ("rotary",),
        "Pairs are neighbours where they are halves, or are turned the other way.",
        EVEN,
        op=ROTARY,
        arrays=WITH_LSE,
    ),
    Recipe(
        "rotary-interleaved",
        ("rotary-interleaved",),
        "Pairs are halves where they are neighbours.",
        EVEN,
        op=ROTARY,
        settings={"pairing": "interleaved"},
    ),
    Recipe(
        "rotary-offset",
        ("rotary-offset",),
        "The query of a decode step is turned as if it were the first.",
        DECODE,
        op=ROTARY,
        settings={"offset": 18},
        causal=lower_right,
    ),
    Recipe(
        "rotary-offset-by-batch",
        ("rotary-offset",),
        "The offset of the first batch element serves all.",
        EVEN,
        op=ROTARY,
        settings={"offset": [2, -3]},
        resizable=False,
    ),
    Recipe(
        "rotary-partial",
        ("rotary-width",),
        "All components are turned, or the frequencies are those of the whole width.",
        PRIMES,
        op=ROTARY,
        settings={"width": 6},
        resizable=False,
    ),
    Recipe(
        "rotary-partial-interleaved",
        ("rotary-width", "rotary-interleaved"),
        "The components that are turned are the last ones.",
        PRIMES,
        op=ROTARY,
        settings={"width": 4, "pairing": "interleaved", "offset": 3},
        resizable=False,
    ),
    Recipe(
        "rotary-base",
        ("rotary-base",),
        "The base is always 10 000.",
        EVEN,
        op=ROTARY,
        settings={"base": 500000.0, "offset": 7},
    ),
    Recipe(
        "rotary-far",
        ("rotary-offset", "rotary"),
        "Angles are rounded to 16 bits, which is far off at a thousand positions.",
        EVEN,
        op=ROTARY,
        settings={"offset": 1000},
    ),
    Recipe(
        "rotary-all-options",
        ("rotary",),
        "Scale, softcap, bias or dropout are lost, or come before the turn.",
        EVEN,
        op=ROTARY,
        arrays=WITH_LSE,
        settings={"offset": 2},
        draw={"bias": around(0, 2)},
        bias="nij",
        scale=-0.4,
        softcap=1.5,
        random_mask=True,
        keep="bnij",
        dropout_rate=0.25,
    ),
    Recipe(
        "rotary-empty-rows",
        ("rotary", "empty-row-output", "empty-row-gradients"),
        "A query without keys gives NaN, or a gradient.",
        EVEN,
        op=ROTARY,
        arrays=WITH_LSE,
        mask=lambda sizes: lambda b, n, i, j: (b + i) % 2 > 0,
    ),
    Recipe(
        "rotary-blocked-key-nan",
        ("rotary", "blocked-key"),
        "NaN in a key that nobody sees is spread by the turn.",
        EVEN,
        op=ROTARY,
        causal=upper_left,
        edit=nan_in_unseen_keys,
    ),
)

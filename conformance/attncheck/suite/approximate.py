"""Cases about approximations: attention by features, and of low rank.

Few shapes: what a case is about lies in its numbers, masks and options.
"""

import numpy as np

from attncheck.suite.recipe import (
    Arrays,
    Recipe,
    Sizes,
    empty_rows,
    seen_keys,
)
from attncheck.suite.shapes import DECODE, LONG, PRIMES, SQUARE, UNGROUPED
from attncheck.suite.values import Values, channel, normal

LINEAR, PERFORMER = "linear_attention", "performer_attention"
LINFORMER, NYSTROM = "linformer_attention", "nystrom_attention"

QKV = ("q", "k", "v")
WITH_DRAWS = (*QKV, "draws")
COMBINED = (*QKV, "w_e", "w_f")
FEATURES, RANK, SEGMENTS = {"r": 17}, {"r": 4}, 3

GROUPED = UNGROUPED._replace(g=2)
"""As many queries, and as many keys, as make three segments."""

CAUSAL = {"causal": True, "offset": 2}
"""With two keys more than queries, as in most shapes, aligned at the end."""

BEFORE = {"causal": True, "offset": -1}
"""The first query stands before the first key: not what the lengths would say."""


def some_keys(sizes: Sizes):
    """Of the first batch element two keys in three; of the others none."""
    return lambda b, n, i, j: (b == 0) & (j % 3 != 1)


def _nan_in_blocked(arrays: Arrays) -> None:
    """NaN in keys and values that no query sees, and in queries that see none."""
    seen = seen_keys(arrays)
    arrays["k"][~seen] = arrays["v"][~seen] = np.nan
    arrays["q"][empty_rows(arrays)] = np.nan


def _no_feature(arrays: Arrays) -> None:
    """A query of each head has no component above 0."""
    arrays["q"][:, :, 1] = -np.abs(arrays["q"][:, :, 1])


def segments_apart(step: float) -> Values:
    """Normal, but a channel of its own for each segment is `step` larger."""

    def values(source, shape):
        array = normal(source, shape)
        for t, part in enumerate(np.array_split(np.arange(shape[-2]), SEGMENTS)):
            array[..., part, t] += step
        return array

    return values


APART = {"q": segments_apart(4), "k": segments_apart(4)}
"""Landmarks that differ: a middle matrix with an inverse well away from none."""


RECIPES = (
    Recipe(
        "linear",
        ("linear",),
        "Weights are not divided by their sum, or queries are scaled.",
        PRIMES,
        op=LINEAR,
        arrays=QKV,
        resizable=False,
    ),
    Recipe(
        "linear-causal",
        ("linear", "features-causal"),
        "A prefix sum is one key short or long, or the denominator is of all keys.",
        PRIMES,
        op=LINEAR,
        arrays=QKV,
        settings=CAUSAL,
    ),
    Recipe(
        "linear-recurrent",
        ("linear-recurrent",),
        "A step reads the sums before its own key is added, or after the next one is.",
        PRIMES._replace(i=7),
        op=LINEAR,
        arrays=QKV,
        settings={"causal": True, "recurrent": True},
        resizable=False,
    ),
    Recipe(
        "linear-relu",
        ("linear-feature", "linear-zero"),
        "The feature map is another than asked for, or 0/0 is NaN.",
        PRIMES,
        op=LINEAR,
        arrays=QKV,
        settings={"feature": "relu"},
        edit=_no_feature,
        resizable=False,
    ),
    Recipe(
        "linear-blocked-keys",
        ("features-mask", "features-causal"),
        "A blocked key is 0 before the feature map, and 1 behind it.",
        PRIMES,
        op=LINEAR,
        arrays=QKV,
        settings=BEFORE,
        random_mask=True,
        mask_axes="bj",
        resizable=False,
    ),
    Recipe(
        "linear-empty-rows",
        ("features-mask", "blocked-key", "blocked-value", "empty-row-output"),
        "NaN in a blocked key is in every sum, as 0·NaN.",
        PRIMES,
        op=LINEAR,
        arrays=QKV,
        mask=some_keys,
        mask_axes="bj",
        edit=_nan_in_blocked,
        resizable=False,
    ),
    Recipe(
        "linear-before-the-first-key",
        ("features-causal", "empty-row-output", "empty-row-lse"),
        "A query before the first key divides 0 by 0.",
        PRIMES,
        op=LINEAR,
        arrays=QKV,
        settings={"causal": True, "offset": -2},
        resizable=False,
        smoke=False,
    ),
    Recipe(
        "linear-decode",
        ("features-causal",),
        "The last query of many takes the sums up to the first key.",
        DECODE,
        op=LINEAR,
        arrays=QKV,
        settings={"causal": True, "offset": 15},
        resizable=False,
        smoke=False,
    ),
    Recipe(
        "linear-long",
        ("linear", "features-causal"),
        "Sums of many keys are kept in a narrow type.",
        LONG,
        op=LINEAR,
        arrays=QKV,
        settings={"causal": True, "offset": 62},
        resizable=False,
        smoke=False,
    ),
    Recipe(
        "performer",
        ("performer", "performer-scale"),
        "The norm is left out, or every key is shifted by a number of its own.",
        PRIMES,
        op=PERFORMER,
        arrays=WITH_DRAWS,
        own_sizes=FEATURES,
        resizable=False,
    ),
    Recipe(
        "performer-causal",
        ("performer-scale", "features-causal"),
        "The scale is put on both sides instead of its root, or none is taken.",
        PRIMES,
        op=PERFORMER,
        arrays=WITH_DRAWS,
        own_sizes=FEATURES,
        scale=0.7,
        settings=BEFORE,
    ),
    Recipe(
        "performer-far",
        ("performer-shift",),
        "Features underflow, and so does their sum.",
        PRIMES,
        op=PERFORMER,
        arrays=WITH_DRAWS,
        draw={"q": channel(26), "k": channel(26)},
        own_sizes=FEATURES,
        resizable=False,
    ),
    Recipe(
        "performer-empty-rows",
        ("features-mask", "blocked-key", "empty-row-output", "empty-row-lse"),
        "A blocked key takes part in the largest feature.",
        PRIMES,
        op=PERFORMER,
        arrays=WITH_DRAWS,
        own_sizes=FEATURES,
        mask=some_keys,
        mask_axes="bj",
        edit=_nan_in_blocked,
        resizable=False,
    ),
    Recipe(
        "linformer",
        ("linformer",),
        "Keys are combined by F, or values by E.",
        PRIMES,
        op=LINFORMER,
        arrays=COMBINED,
        own_sizes=RANK,
    ),
    Recipe(
        "linformer-one-projection",
        ("linformer-default", "scale-negative"),
        "Values are not combined where they have no weights of their own.",
        PRIMES,
        op=LINFORMER,
        arrays=(*QKV, "w_e"),
        own_sizes=RANK,
        scale=-0.4,
        resizable=False,
    ),
    Recipe(
        "linformer-blocked-keys",
        ("linformer-mask",),
        "A blocked key is in the combinations, or blocks one of them.",
        PRIMES,
        op=LINFORMER,
        arrays=COMBINED,
        own_sizes=RANK,
        random_mask=True,
        mask_axes="bj",
        resizable=False,
    ),
    Recipe(
        "linformer-empty-rows",
        ("linformer-mask", "blocked-key", "blocked-value", "empty-row-output"),
        "Where no key is left, combinations of nothing are attended.",
        PRIMES,
        op=LINFORMER,
        arrays=COMBINED,
        own_sizes=RANK,
        mask=some_keys,
        mask_axes="bj",
        edit=_nan_in_blocked,
        resizable=False,
    ),
    Recipe(
        "nystrom",
        ("nystrom", "nystrom-landmarks"),
        "The middle matrix is not inverted, or landmarks are rows and not means.",
        GROUPED,
        op=NYSTROM,
        arrays=QKV,
        draw=APART,
        settings={"landmarks": SEGMENTS},
        resizable=False,
    ),
    Recipe(
        "nystrom-scale",
        ("nystrom",),
        "One of the three softmaxes is not scaled, or by the default.",
        GROUPED,
        op=NYSTROM,
        arrays=QKV,
        draw=APART,
        settings={"landmarks": SEGMENTS},
        scale=0.2,
        resizable=False,
    ),
    Recipe(
        "nystrom-one-landmark",
        ("nystrom-landmarks",),
        "With one landmark every query is given something else than the same.",
        GROUPED,
        op=NYSTROM,
        arrays=QKV,
        settings={"landmarks": 1},
        resizable=False,
        smoke=False,
    ),
    Recipe(
        "nystrom-every-position",
        ("nystrom", "nystrom-landmarks"),
        "With as many landmarks as positions it is not attention.",
        SQUARE._replace(i=3, j=3),
        op=NYSTROM,
        arrays=QKV,
        draw=APART,
        settings={"landmarks": SEGMENTS},
        resizable=False,
        smoke=False,
    ),
)

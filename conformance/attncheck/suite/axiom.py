"""Cases about the axiom: a blocked key does not exist, and nothing else is hidden."""

import numpy as np

from attncheck.case import FORWARD
from attncheck.suite.recipe import (
    WITH_LSE,
    Arrays,
    Predicate,
    Recipe,
    Sizes,
    empty_rows,
    lengths,
    lower_right,
    seen_keys,
)
from attncheck.suite.shapes import LONG, NO_BATCH, NO_KEYS, NO_QUERIES
from attncheck.suite.values import around, channel
from attnref.spec import causal, padding

POISON = (np.nan, np.inf, -np.inf)


def _padded(sizes: Sizes) -> Predicate:
    return padding(lengths(sizes))


def _first_head_padded(sizes: Sizes) -> Predicate:
    """The last key is blocked for all query heads of the first key/value head."""
    return lambda b, n, i, j: (n >= sizes["g"]) | (j < sizes["j"] - 1)


def _one_of_group_padded(sizes: Sizes) -> Predicate:
    """The last key is blocked for the first query head of every group."""
    return lambda b, n, i, j: (n % sizes["g"] > 0) | (j < sizes["j"] - 1)


def _some_rows_empty(sizes: Sizes) -> Predicate:
    """Every second query of every second head has no key."""
    return lambda b, n, i, j: (n + i) % 2 > 0


def _poison(*names: str):
    """NaN and infinities where no one may look."""

    def edit(arrays: Arrays) -> None:
        unseen = ~seen_keys(arrays)
        for name in names:
            at = arrays[name][unseen]
            arrays[name][unseen] = np.resize(POISON, at.shape)

    return edit


def _stale(arrays: Arrays) -> None:
    """Large finite numbers where no one may look."""
    unseen = ~seen_keys(arrays)
    arrays["k"][unseen] *= 4096
    arrays["v"][unseen] *= 4096


def _blocked_first_channel(value: float):
    """Sets the channel by which all scores of a blocked key are shifted."""

    def edit(arrays: Arrays) -> None:
        arrays["k"][..., 0][~seen_keys(arrays)] = value

    return edit


def _empty_rows_of_nan(arrays: Arrays) -> None:
    empty = empty_rows(arrays)
    for name in ("q", "d_out", "d_lse", "bias"):
        arrays[name][empty] = np.nan


def _blocked_bias(value: float):
    def edit(arrays: Arrays) -> None:
        blocked = np.broadcast_to(~arrays["mask"], arrays["bias"].shape)
        arrays["bias"][blocked] = value

    return edit


def _one(name: str, value: float):
    """`value` in the last channel of the first position of the first head."""

    def edit(arrays: Arrays) -> None:
        arrays[name][0, 0, 0, -1] = value

    return edit


def _nan_behind_dropout(arrays: Arrays) -> None:
    arrays["dropout_keep"][..., -1] = False
    arrays["v"][:, :, -1, 0] = np.nan


RECIPES = (
    Recipe(
        "blocked-above",
        ("blocked-weight",),
        "The maximum is taken over blocked scores too, and everything visible "
        "underflows.",
        draw={"q": channel(100), "k": channel(0)},
        scale=1.0,
        mask=_padded,
        edit=_blocked_first_channel(10),
    ),
    Recipe(
        "blocked-above-by-200",
        ("blocked-weight", "blocked-key"),
        "Weights are relative to a maximum that a blocked key holds, and those of "
        "visible ones are rounded to 0.",
        draw={"q": channel(20), "k": channel(0)},
        scale=1.0,
        mask=_padded,
        edit=_blocked_first_channel(10),
        arrays=WITH_LSE,
    ),
    Recipe(
        "blocked-below",
        ("blocked-weight",),
        "Blocked scores are a finite number such as −1e4, which visible scores of "
        "−25600 fall below.",
        draw={"q": channel(160), "k": channel(-160)},
        scale=1.0,
        mask=_padded,
        edit=_blocked_first_channel(0),
    ),
    Recipe(
        "blocked-stale",
        ("blocked-key", "blocked-value", "padding"),
        "What an earlier request left in the cache is multiplied by a small weight "
        "instead of none.",
        LONG,
        mask=_padded,
        edit=_stale,
    ),
    Recipe(
        "blocked-key-nan",
        ("blocked-key",),
        "A NaN in a blocked key comes back in the gradient at q, where 0 times NaN is "
        "NaN.",
        mask=_padded,
        edit=_poison("k"),
    ),
    Recipe(
        "blocked-value-nan",
        ("blocked-value",),
        "A NaN in a blocked value is multiplied by its weight of 0, which is NaN.",
        mask=_padded,
        edit=_poison("v"),
    ),
    Recipe(
        "blocked-head-nan",
        ("blocked-key", "blocked-value", "head-order"),
        "What is blocked for one key/value head is looked up in another.",
        mask=_first_head_padded,
        edit=_poison("k", "v"),
    ),
    Recipe(
        "blocked-for-one-head",
        ("blocked-for-one-head", "group-gradients"),
        "A key that one head of a group may not see is dropped for the whole group.",
        mask=_one_of_group_padded,
    ),
    Recipe(
        "blocked-bias-nan",
        ("blocked-bias",),
        "A NaN in the bias of a blocked key survives the mask.",
        random_mask=True,
        bias="bnij",
        edit=_blocked_bias(np.nan),
    ),
    Recipe(
        "blocked-bias-large",
        ("blocked-bias", "mask-after-softcap"),
        "The mask is a large negative number, which a large bias outweighs.",
        random_mask=True,
        bias="bnij",
        edit=_blocked_bias(6e4),
    ),
    Recipe(
        "empty-rows",
        ("empty-row-output", "empty-row-lse", "empty-row-gradients"),
        "A query without keys gets the mean of all values.",
        mask=_some_rows_empty,
        draw={"v": around(8)},
        arrays=WITH_LSE,
    ),
    Recipe(
        "empty-rows-nan",
        ("empty-row-output", "empty-row-lse", "empty-row-gradients"),
        "A NaN in a query without keys, or in the gradient that comes to it, reaches "
        "the keys.",
        mask=_some_rows_empty,
        bias="bnij",
        edit=_empty_rows_of_nan,
        arrays=WITH_LSE,
    ),
    Recipe(
        "empty-rows-all",
        ("empty-row-output", "empty-row-lse", "empty-row-gradients"),
        "A call in which no query has a key gives NaN.",
        mask=lambda sizes: lambda b, n, i, j: j < 0,
    ),
    Recipe(
        "empty-rows-softcap",
        ("empty-row-gradients", "softcap-gradient"),
        "The slope of the softcap at −∞ makes NaN of a gradient of 0.",
        mask=lambda sizes: causal(lower_right(sizes) - sizes["j"]),
        softcap=2.0,
        bias="bnij",
        arrays=WITH_LSE,
    ),
    Recipe(
        "no-batch",
        ("no-batch",),
        "An empty batch is an error.",
        NO_BATCH,
        resizable=False,
        wants=FORWARD,
    ),
    Recipe(
        "no-batch-gradients",
        ("no-batch", "dbias-broadcast"),
        "The gradient of a bias that serves an empty batch is left unset.",
        NO_BATCH,
        bias="nij",
        arrays=WITH_LSE,
        resizable=False,
        smoke=False,
    ),
    Recipe(
        "no-queries",
        ("no-queries",),
        "No queries are an error, or leave the gradients of the keys unset.",
        NO_QUERIES,
        arrays=WITH_LSE,
        resizable=False,
    ),
    Recipe(
        "no-keys",
        ("no-keys", "empty-row-output", "empty-row-lse"),
        "The maximum of no scores is an error, or memory that no one wrote is "
        "returned.",
        NO_KEYS,
        arrays=WITH_LSE,
        resizable=False,
    ),
    Recipe(
        "nan-query",
        ("nan-query",),
        "A NaN in a query is lost in a maximum, and its output is 0.",
        edit=_one("q", np.nan),
    ),
    Recipe(
        "nan-key",
        ("nan-key",),
        "A NaN in a visible key is taken for a blocked one.",
        edit=_one("k", np.nan),
    ),
    Recipe(
        "nan-value",
        ("nan-value",),
        "A NaN in a visible value is replaced by a number.",
        edit=_one("v", np.nan),
    ),
    Recipe(
        "nan-dropped",
        ("nan-value", "dropout"),
        "A NaN in a visible value is hidden because dropout drops its weight.",
        keep="bnij",
        dropout_rate=0.4,
        edit=_nan_behind_dropout,
        wants=FORWARD,
    ),
    # What the gradients are is a matter of which infinities meet.
    Recipe(
        "inf-value",
        ("nan-value",),
        "An infinite value is clamped to the largest finite number.",
        edit=_one("v", np.inf),
        wants=FORWARD,
    ),
)

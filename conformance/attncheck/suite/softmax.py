"""Cases about weights and their sums: range, rounding, dropout, heads, gradients."""

from attncheck.case import FORWARD
from attncheck.suite.recipe import WITH_LSE, Arrays, Recipe, lower_right, upper_left
from attncheck.suite.shapes import COINCIDENCE, DECODE, LONG, UNGROUPED, WIDE
from attncheck.suite.values import (
    alternating,
    around,
    channel,
    channels_apart,
    constant,
    equal_pairs,
    heads_apart,
    opposite_pairs,
    outlier,
    positive,
    ramp,
    subnormal,
    tokens,
)


def _first_row_dropped(arrays: Arrays) -> None:
    arrays["dropout_keep"][:, :, 0] = False


RECIPES = (
    Recipe(
        "scores-large",
        ("softmax", "softmax-shift", "float32-inside", "float64"),
        "Scores of ±100 are rounded to 16 bits before the exponential.",
        draw={"q": around(0, 30)},
        arrays=WITH_LSE,
    ),
    Recipe(
        "scores-beyond-exp",
        ("softmax-shift", "lse"),
        "Scores of ±800 overflow or vanish in an exponential without the maximum "
        "taken off.",
        draw={"q": alternating(20), "k": channel(40)},
        scale=1.0,
    ),
    Recipe(
        "scores-rising",
        ("softmax", "softmax-shift", "lse"),
        "What was summed so far is not rescaled when the running maximum rises.",
        LONG,
        draw={"q": channel(4), "k": ramp(0.5)},
        scale=1.0,
    ),
    Recipe(
        "scores-falling",
        ("softmax", "softmax-shift", "lse"),
        "The running maximum follows the last tile instead of the largest score.",
        LONG,
        draw={"q": channel(4), "k": ramp(-0.5)},
        scale=1.0,
    ),
    Recipe(
        "scores-one-hot",
        ("softmax", "dq", "dk"),
        "A weight that is almost 1 leaves a gradient that is not almost 0.",
        UNGROUPED,
        draw={"q": around(0, 200)},
    ),
    Recipe(
        "scores-equal",
        ("softmax", "attend"),
        "Equal weights over equal values do not give the value.",
        LONG,
        draw={"q": constant(0), "v": constant(3)},
    ),
    Recipe(
        "scores-outlier",
        ("scores", "float32-inside"),
        "One large channel pushes the others out of a 16-bit sum.",
        draw={"k": outlier(30)},
    ),
    Recipe(
        "scores-positive",
        ("scores", "softmax", "float32-inside"),
        "Products that never cancel lose their last bits in a sum of 16 bits.",
        draw={"q": positive, "k": positive},
        arrays=WITH_LSE,
    ),
    Recipe(
        "scores-two-clusters",
        ("softmax", "attend", "dv"),
        "Half of the keys share all of the weight, and the many small weights of the "
        "others are cut off.",
        LONG,
        draw={"q": channel(2), "k": alternating(2)},
        scale=1.0,
    ),
    Recipe(
        "tokens-few",
        ("softmax", "dk", "dv"),
        "Equal keys are weighted by their rank.",
        LONG,
        draw={"q": tokens(2), "k": tokens(3)},
    ),
    Recipe(
        "values-cancelling",
        ("attend", "float32-inside"),
        "Large values that cancel leave the rounding of a 16-bit sum.",
        LONG,
        draw={"k": equal_pairs, "v": opposite_pairs(100)},
    ),
    Recipe(
        "values-around-8",
        ("attend", "rounded-once", "dq", "dk"),
        "The row sum of the gradient is rounded to 16 bits, or misses a channel.",
        draw={"v": around(8), "d_out": around(8), "k": around(4)},
        arrays=WITH_LSE,
    ),
    # K + 4 hides it: the error is common to a row, and weighs K by its mean.
    Recipe(
        "gradients-around-8",
        ("rounded-once", "float32-inside", "dq", "dk"),
        "The gradients of the weights, which are large and nearly cancel, are rounded "
        "to 16 bits.",
        LONG,
        draw={"q": around(0, 0.25), "v": around(8), "d_out": around(8)},
    ),
    # Wide values make D large, and just above 2¹³, where half a unit is most of it; a
    # mean of the keys other than 0 lets dq show it.
    Recipe(
        "gradients-wide",
        ("rounded-once", "float32-inside", "dq", "dk"),
        "D, a large sum that the gradients of the weights nearly cancel, is rounded to "
        "16 bits.",
        WIDE,
        draw={
            "q": around(0, 0.25),
            "k": around(4),
            "v": channels_apart(0.125),
            "d_out": around(8.5),
        },
        resizable=False,
    ),
    # Keys and the gradients of their weights change sign together.
    Recipe(
        "gradients-growing",
        ("float32-inside", "dq"),
        "The gradient of the queries, which every tile of keys makes larger, is added "
        "up in 16 bits.",
        WIDE,
        draw={
            "q": channel(0),
            "k": alternating(4),
            "v": alternating(4),
            "d_out": channel(4),
        },
        resizable=False,
    ),
    Recipe(
        "values-around-8-long",
        ("attend", "rounded-once", "float32-inside"),
        "The weights are rounded to 16 bits, or the output is a per cent too large.",
        LONG,
        draw={"v": around(8)},
    ),
    Recipe(
        "values-subnormal",
        ("attend",),
        "A sum is scaled so that small values fall out of range.",
        draw={"v": subnormal},
    ),
    Recipe(
        "queries-subnormal",
        ("scores", "dv"),
        "Small queries and gradients are lost in a conversion.",
        draw={"q": subnormal, "d_out": subnormal},
    ),
    Recipe(
        "heads-apart",
        ("head-order", "group-gradients"),
        "Query head n reads key/value head n mod h.",
        draw={"v": heads_apart(8), "k": heads_apart(1)},
    ),
    Recipe(
        "heads-coincidence",
        ("head-order", "group-gradients"),
        "Grouped heads are laid out (g h), which two heads in two groups hide.",
        COINCIDENCE,
        draw={"v": heads_apart(8)},
        random_mask=True,
    ),
    Recipe(
        "heads-decode",
        ("head-order",),
        "Query heads of one group are stacked as queries and come back in another "
        "order.",
        DECODE,
        draw={"v": heads_apart(8)},
        wants=FORWARD,
    ),
    Recipe(
        "multi-query",
        ("multi-query", "group-gradients", "dk", "dv"),
        "The gradient at the one key/value head is that of one query head, or the mean "
        "of all.",
        LONG,
    ),
    Recipe(
        "group-bias",
        ("bias", "head-order"),
        "The bias of the first query head serves all heads of the group.",
        bias="bnij",
        draw={"bias": around(0, 3)},
    ),
    Recipe(
        "group-causal",
        ("group-gradients", "causal-offset"),
        "The backward pass aligns the causal mask to another corner than the forward "
        "pass.",
        LONG,
        causal=lower_right,
        draw={"v": around(8)},
    ),
    Recipe(
        "lse-gradient",
        ("lse-gradient", "lse"),
        "The gradient of the log-sum-exp is dropped.",
        draw={"d_out": constant(0)},
        arrays=WITH_LSE,
    ),
    Recipe(
        "lse-gradient-causal",
        ("lse-gradient",),
        "The gradient of the log-sum-exp is added with the wrong sign.",
        causal=upper_left,
        draw={"d_lse": around(4)},
        arrays=WITH_LSE,
    ),
    Recipe(
        "dropout",
        (
            "dropout",
            "dropout-rescale",
            "dropout-after-softmax",
            "dropout-gradient",
        ),
        "Kept weights are not divided by 1 − rate.",
        keep="bnij",
        dropout_rate=0.4,
        arrays=WITH_LSE,
    ),
    Recipe(
        "dropout-coincidence",
        ("dropout", "dropout-gradient"),
        "The backward pass drops other weights than the forward pass.",
        COINCIDENCE,
        keep="bnij",
        dropout_rate=0.25,
    ),
    Recipe(
        "dropout-shared",
        ("dropout", "dropout-gradient"),
        "What is dropped for all heads at once is drawn again for each.",
        keep="bij",
        dropout_rate=0.5,
    ),
    Recipe(
        "dropout-causal",
        ("dropout", "dropout-rescale", "blocked-weight"),
        "Dropout is a mask before the softmax, so that the kept weights sum to 1.",
        keep="bnij",
        dropout_rate=0.3,
        causal=upper_left,
    ),
    Recipe(
        "dropout-row",
        ("dropout", "dropout-after-softmax"),
        "A row that loses all its weights is taken for an empty one.",
        keep="bnij",
        dropout_rate=0.4,
        edit=_first_row_dropped,
        arrays=WITH_LSE,
    ),
)

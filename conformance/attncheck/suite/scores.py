"""Cases about what happens before the mask: scores, scale, softcap and bias."""

import numpy as np

from attncheck.case import FORWARD
from attncheck.suite.recipe import WITH_LSE, Arrays, Recipe, upper_left
from attncheck.suite.shapes import COINCIDENCE, DECODE, LONG, SQUARE, UNGROUPED
from attncheck.suite.values import around, constant, from_set


def _last_key_unseen(arrays: Arrays) -> None:
    arrays["bias"][..., -1] = -np.inf


def _first_row_unseen(arrays: Arrays) -> None:
    """A row of only −∞, of which nothing that comes back may count."""
    arrays["bias"][:, :, 0] = -np.inf
    arrays["d_out"][:, :, 0] = np.nan
    arrays["d_lse"][:, :, 0] = np.inf


def _nan_behind_minus_inf(arrays: Arrays) -> None:
    _last_key_unseen(arrays)
    arrays["v"][:, :, -1, 0] = np.nan


def _first_key_unbiased(arrays: Arrays) -> None:
    """No row is left with nothing but what its scores are lost beside."""
    arrays["bias"][..., 0] = 0


def _one_bias(value: float):
    def edit(arrays: Arrays) -> None:
        arrays["bias"][0, 0, 0, 0] = value

    return edit


RECIPES = (
    Recipe(
        "plain",
        (
            "scores",
            "scale-default",
            "softmax",
            "attend",
            "lse",
            "value-width",
            "head-order",
            "dq",
            "dk",
            "dv",
            "float64",
            "float32-inside",
        ),
        "An axis is taken for another one, which sizes that all differ turn into an "
        "error.",
    ),
    Recipe(
        "coincidence",
        ("scores", "softmax", "attend", "head-order", "dq", "dk", "dv"),
        "An axis is taken for another one of the same size.",
        COINCIDENCE,
    ),
    Recipe(
        "ungrouped",
        ("scores", "scale-default", "softmax", "attend", "dq", "dk", "dv"),
        "The query is scaled in its storage type, which goes unnoticed at a scale that "
        "is a power of two.",
        UNGROUPED,
        draw={"q": around(0, 4)},
    ),
    Recipe(
        "square",
        ("scores", "softmax", "attend", "dq", "dk", "dv"),
        "Queries and keys, or their gradients, are exchanged, which other shapes make "
        "an error.",
        SQUARE,
        resizable=False,
    ),
    Recipe(
        "decode",
        ("scores", "softmax", "attend"),
        "A single query is squeezed out of the shape, or treated as the first one.",
        DECODE,
        wants=FORWARD,
    ),
    Recipe(
        "long",
        ("scores", "softmax", "attend", "lse", "float32-inside"),
        "The keys of the last, partly filled tile are dropped, or zeros are counted "
        "in their place.",
        LONG,
        arrays=WITH_LSE,
    ),
    Recipe(
        "scale-given",
        ("scale-given",),
        "A given scale is ignored, or multiplied onto the default.",
        scale=0.7,
    ),
    Recipe(
        "scale-above-one",
        ("scale-given", "dq", "dk"),
        "The gradient at q or k is not multiplied by the scale, or is twice.",
        scale=3.0,
        draw={"q": around(0, 0.5)},
    ),
    Recipe(
        "scale-zero",
        ("scale-zero",),
        "A scale of 0 is taken for no scale, and the default is used.",
        scale=0.0,
    ),
    Recipe(
        "scale-zero-causal",
        ("scale-zero", "causal"),
        "Blocked scores of −∞ are multiplied by a scale of 0, which gives NaN.",
        scale=0.0,
        causal=upper_left,
    ),
    Recipe(
        "scale-negative",
        ("scale-negative",),
        "The running maximum is taken before the scale, whose sign turns it into a "
        "minimum.",
        scale=-0.9,
        draw={"q": around(0, 8)},
    ),
    Recipe(
        "scale-negative-causal",
        ("scale-negative", "causal"),
        "Blocked scores of −∞ are multiplied by a negative scale and win.",
        scale=-0.4,
        causal=upper_left,
    ),
    Recipe(
        "softcap",
        ("softcap", "softcap-gradient"),
        "The softcap is left out, or clips where it should bend.",
        draw={"q": around(0, 4)},
        softcap=2.0,
        arrays=WITH_LSE,
    ),
    Recipe(
        "softcap-scaled",
        ("softcap-after-scale", "softcap-gradient"),
        "The raw scores are capped, and then scaled.",
        draw={"q": around(0, 3)},
        scale=0.25,
        softcap=1.5,
    ),
    Recipe(
        "softcap-bias",
        ("bias-after-softcap", "softcap-gradient", "dbias"),
        "The bias is added before the softcap, which then bounds it.",
        draw={"bias": around(0, 5)},
        softcap=2.5,
        bias="bnij",
    ),
    Recipe(
        "softcap-causal",
        ("mask-after-softcap",),
        "The softcap comes after the mask and makes −c of −∞, so that blocked keys "
        "weigh something.",
        softcap=3.0,
        causal=upper_left,
    ),
    Recipe(
        "softcap-wide",
        ("softcap",),
        "The hyperbolic tangent of a small number is computed as a difference of "
        "numbers near 1.",
        softcap=1000.0,
    ),
    Recipe(
        "softcap-saturated",
        ("softcap", "softcap-gradient"),
        "Scores far beyond the cap overflow in the hyperbolic tangent or its slope.",
        draw={"q": around(0, 30)},
        softcap=5.0,
    ),
    Recipe(
        "bias-full",
        ("bias", "dbias"),
        "The bias is multiplied by the scale, or the gradient at it is.",
        bias="bnij",
        draw={"bias": around(0, 3)},
        arrays=WITH_LSE,
    ),
    Recipe(
        "bias-coincidence",
        ("bias", "dbias"),
        "The bias is added transposed, or with the heads in another order.",
        COINCIDENCE,
        bias="bnij",
        draw={"bias": around(0, 3)},
    ),
    Recipe(
        "bias-shared-by-batch",
        ("bias-broadcast-b", "dbias-broadcast"),
        "A bias without a batch axis is read as one for each batch element.",
        COINCIDENCE,
        bias="nij",
    ),
    Recipe(
        "bias-shared-by-heads",
        ("bias-broadcast-n", "dbias-broadcast"),
        "A bias without a head axis is read as one for each head.",
        COINCIDENCE,
        bias="bij",
    ),
    Recipe(
        "bias-shared-by-queries",
        ("bias-broadcast-i", "dbias-broadcast"),
        "A bias over the keys is added over the queries.",
        COINCIDENCE,
        bias="bnj",
    ),
    Recipe(
        "bias-shared-by-keys",
        ("bias-broadcast-j", "dbias-broadcast"),
        "A bias over the queries is added over the keys, or dropped because the "
        "weights do not change with it.",
        COINCIDENCE,
        bias="bni",
        draw={"bias": around(0, 2)},
        arrays=WITH_LSE,
    ),
    Recipe(
        "bias-of-keys",
        ("bias", "bias-broadcast-b", "bias-broadcast-n", "bias-broadcast-i"),
        "The gradient at a bias over the keys misses one of the axes it must be "
        "summed over.",
        COINCIDENCE,
        bias="j",
    ),
    Recipe(
        "bias-single",
        ("bias-broadcast-j", "dbias-broadcast", "lse-gradient"),
        "A single number as bias is dropped, though the log-sum-exp moves with it.",
        bias="",
        draw={"bias": constant(3)},
        arrays=WITH_LSE,
    ),
    Recipe(
        "bias-large",
        ("bias",),
        "Biases of ±60 and −1e9 overflow, or turn weights of 0 into NaN.",
        bias="bnij",
        draw={"bias": from_set(-1e9, -60, 0, 60)},
        edit=_first_key_unbiased,
    ),
    Recipe(
        "bias-lowest",
        ("bias",),
        "The lowest number of float32 as bias becomes −∞ when a score is added, or the "
        "maximum taken off.",
        bias="bnij",
        draw={"bias": from_set(float(np.finfo(np.float32).min), 0)},
        edit=_first_key_unbiased,
        saturates=True,
    ),
    Recipe(
        "bias-minus-inf",
        ("bias-minus-inf",),
        "A bias of −∞ leaves a weight, or makes NaN of the gradient.",
        bias="bnij",
        edit=_last_key_unseen,
    ),
    Recipe(
        "bias-minus-inf-row",
        ("bias-minus-inf-row", "empty-row-gradients"),
        "A row of only −∞ gives NaN or the mean of all values.",
        bias="bnij",
        edit=_first_row_unseen,
        arrays=WITH_LSE,
    ),
    Recipe(
        "bias-minus-inf-softcap",
        ("bias-minus-inf", "bias-after-softcap"),
        "A bias of −∞ is capped to −c.",
        bias="bnij",
        softcap=4.0,
        edit=_last_key_unseen,
    ),
    # Whether the gradients are NaN is the implementation's choice: 0 times NaN.
    Recipe(
        "bias-minus-inf-nan",
        ("bias-minus-inf-nan",),
        "A value is skipped because its bias is −∞, and the NaN in it goes unnoticed.",
        bias="bnij",
        edit=_nan_behind_minus_inf,
        wants=FORWARD,
    ),
    Recipe(
        "bias-plus-inf",
        ("bias-not-finite",),
        "A bias of +∞ is clamped to a finite number.",
        bias="bnij",
        edit=_one_bias(np.inf),
    ),
    Recipe(
        "bias-nan",
        ("bias-not-finite",),
        "A NaN in the bias is lost in a comparison or a maximum.",
        bias="bnij",
        edit=_one_bias(np.nan),
    ),
)

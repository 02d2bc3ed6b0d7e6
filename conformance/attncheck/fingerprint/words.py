"""Numbers and conventions as words."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np


class Words(NamedTuple):
    """A field of `Conventions` in words."""

    title: str
    """What the field is about."""
    values: Mapping[Any, str] = {}
    """Value → phrase; a value that is not here speaks for itself."""


_EMPTY = {"zero": "0", "mean": "the mean of V", "nan": "NaN", "refuse": "refused"}
_GIVEN = {
    "honoured": "honoured",
    "default": "taken for the default",
    "nan": "gives NaN",
    "refuse": "refused",
}
_NAN = {"hidden": "hidden", "leaks": "leaks"}

WORDS: Mapping[str, Words] = {
    "layout": Words("axes of q, k, v and the output"),
    "weight_layout": Words("axes of a projection's weight", {None: "no projection"}),
    "value_width": Words(
        "width of the values", {"any": "any", "same": "that of the keys"}
    ),
    "heads": Words(
        "grouped query heads",
        {
            "hg": "neighbours share a key head (h g)",
            "gh": "every h-th shares a key head (g h)",
            None: "none",
        },
    ),
    "scale": Words(
        "default scale", {"rsqrt_d": "1/√d", "one": "1", "required": "none: required"}
    ),
    "scale_zero": Words("a scale of 0", _GIVEN),
    "scale_negative": Words("a negative scale", _GIVEN),
    "softcap": Words(
        "softcap",
        {
            "before_bias": "before the bias",
            "after_bias": "after the bias",
            "after_mask": "after the mask",
            None: "none",
        },
    ),
    "bias": Words(
        "bias",
        {
            "after_scale": "added after the scale",
            "before_scale": "added before the scale",
            None: "none",
        },
    ),
    "mask_true": Words(
        "True in a mask",
        {"attend": "may attend", "block": "is blocked", None: "no boolean mask"},
    ),
    "mask_float": Words(
        "a float mask",
        {"add": "added", "truth": "read as truth values", "refuse": "refused"},
    ),
    "causal": Words("the causal flag is aligned"),
    "mask_and_causal": Words(
        "a mask with the causal flag",
        {
            "and": "both hold",
            "refuse": "refused",
            "causal": "the mask is ignored",
            "mask": "the flag is ignored",
        },
    ),
    "window": Words(
        "window",
        {
            "inclusive": "its ends are seen",
            "exclusive": "its ends are not",
            None: "none",
        },
    ),
    "fill": Words("a blocked logit becomes"),
    "empty_row": Words("a query whose mask leaves no key", _EMPTY),
    "empty_row_bias": Words("a query with only −∞ biases", _EMPTY),
    "sinks": Words("sinks", {True: "taken", False: "none"}),
    "lse": Words("log-sum-exp", {"e": "natural", 2: "base 2", None: "not returned"}),
    "lse_empty": Words("log-sum-exp of an empty row"),
    "lse_dtype": Words(
        "type of the log-sum-exp",
        {
            "float32": "float32",
            "input": "that of the inputs",
            "wider": "float32, or float64 of float64",
        },
    ),
    "weights": Words(
        "returned weights",
        {
            "before_dropout": "before dropout",
            "after_dropout": "after dropout",
            None: "none",
        },
    ),
    "weights_heads": Words(
        "returned weights are", {"each": "per head", "mean": "means over heads"}
    ),
    "dropout_rescale": Words(
        "weights that dropout leaves",
        {True: "divided by 1 − rate", False: "as they were"},
    ),
    "nan_blocked_k": Words("NaN in a key that nobody sees", _NAN),
    "nan_blocked_v": Words("NaN in a value that nobody sees", _NAN),
    "nan_visible": Words(
        "NaN that is seen", {"shown": "comes out", "hidden": "is hidden"}
    ),
    "softmax_dtype": Words(
        "softmax computed in",
        {
            "float32": "float32, also of float64",
            "input": "the type of the inputs",
            "wider": "float32, or float64 of float64",
        },
    ),
    "float64": Words("float64 is computed in"),
}
"""Field of `Conventions` → its words."""


def title(name: str) -> str:
    """What a field is about; a storage type is about its precision."""
    return WORDS[name].title if name in WORDS else f"precision of {name}"


def phrase(name: str, value: Any) -> str:
    """A value of a field in words."""
    if name not in WORDS:
        return value or "less than any profile"
    values = WORDS[name].values
    if value in values:
        return values[value]
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def numbers(values: np.ndarray) -> str:
    """`0.5 0.5 0 0`."""
    return " ".join(f"{float(value):.3g}" for value in np.ravel(values))


def rounded(value: float) -> float:
    """`value` to six digits: what float32 tells."""
    return float(f"{value:.6g}")

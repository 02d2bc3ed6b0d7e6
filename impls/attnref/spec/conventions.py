"""What an implementation may do differently from the spec, named field by field."""

import math
from dataclasses import dataclass, fields
from types import NoneType
from typing import Literal, get_args, get_origin, get_type_hints


@dataclass(frozen=True, kw_only=True)
class Conventions:
    """The conventions of one code path of an implementation; the default is the spec.

    One value describes one path (training and evaluation may differ).  What an
    implementation declares to do differently is shown beside its verdict; it is judged
    against the spec all the same.

    Raises:
        ValueError: a field holds a value that is not among its choices.
    """

    layout: str = "b n i d"
    """Axes of q, k, v and the output, in the spec's letters for a query."""
    weight_layout: str | None = None
    """Axes of the query projection's weight; None where there is no projection."""
    mask_true: Literal["attend", "block"] | None = "attend"
    """What True means in a boolean mask; None: no boolean mask is taken."""
    mask_float: Literal["add", "truth", "refuse"] = "refuse"
    """What a floating mask is taken for: added, read as truth values, or refused."""
    mask_and_causal: Literal["and", "refuse", "causal", "mask"] = "and"
    """What happens to a mask together with a causal flag: both hold, or one wins."""
    causal: Literal["upper-left", "lower-right"] = "upper-left"
    """Which corner a causal flag is aligned to when i ≠ j."""
    window: Literal["inclusive", "exclusive"] | None = "inclusive"
    """Whether the ends of a window are visible; None: no window argument."""
    fill: float = -math.inf
    """What blocked logits are set to."""
    empty_row: Literal["zero", "mean", "nan", "refuse"] = "zero"
    """The output of a query that the mask leaves no key."""
    empty_row_bias: Literal["zero", "mean", "nan", "refuse"] = "zero"
    """The output of a query whose bias is −inf at every key."""
    scale: Literal["rsqrt_d", "one", "required"] = "rsqrt_d"
    """The default of the scale."""
    scale_zero: Literal["honoured", "default", "nan", "refuse"] = "honoured"
    """What a scale of 0 does."""
    scale_negative: Literal["honoured", "default", "nan", "refuse"] = "honoured"
    """What a scale below 0 does."""
    softcap: Literal["before_bias", "after_bias", "after_mask"] | None = "before_bias"
    """Where the softcap stands; None: no softcap."""
    bias: Literal["after_scale", "before_scale"] | None = "after_scale"
    """Where the bias is added; None: no bias."""
    heads: Literal["hg", "gh"] | None = "hg"
    """Order of grouped query heads; None: no grouped heads."""
    value_width: Literal["any", "same"] = "any"
    """Whether the value width may differ from the query/key width."""
    lse: Literal["e", 2] | None = "e"
    """Base of the log-sum-exp; None: it is not returned."""
    lse_empty: float = -math.inf
    """The log-sum-exp of an empty row."""
    lse_dtype: Literal["float32", "input", "wider"] = "wider"
    """Type of the log-sum-exp; `wider` of float32 and the input type is the spec."""
    softmax_dtype: Literal["float32", "input", "wider"] = "wider"
    """Type in which the softmax is computed."""
    float64: Literal["float64", "float32"] = "float64"
    """The precision that float64 inputs are really computed in."""
    nan_blocked_k: Literal["hidden", "leaks"] = "hidden"
    """What a NaN in a key does that is blocked for every query."""
    nan_blocked_v: Literal["hidden", "leaks"] = "hidden"
    """What a NaN in a value does whose key is blocked for every query."""
    nan_visible: Literal["shown", "hidden"] = "shown"
    """What a NaN in a query, or in a visible key or value, does."""
    dropout_rescale: bool = True
    """Whether kept weights are divided by 1 − rate."""
    weights: Literal["before_dropout", "after_dropout"] | None = "before_dropout"
    """Which weights are returned; None: they are not."""
    weights_heads: Literal["each", "mean"] = "each"
    """Whether returned weights are per head or averaged over heads."""
    sinks: bool = False
    """Whether a learned logit per head joins the softmax's denominator."""

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for field in fields(self):
            value = getattr(self, field.name)
            choices = _choices(hints[field.name])
            if not any(_is_choice(value, choice) for choice in choices):
                words = ", ".join(map(_word, choices))
                raise ValueError(
                    f"convention `{field.name}` is one of {words}, not {value!r}"
                )

    def differences(self) -> dict[str, tuple[object, object]]:
        """The fields that differ from the spec: name → (here, in the spec)."""
        here = {f.name: getattr(self, f.name) for f in fields(self)}
        spec = {f.name: f.default for f in fields(self)}
        return {k: (here[k], spec[k]) for k in here if here[k] != spec[k]}


def _choices(hint: object) -> tuple:
    """The values and types that a field's annotation admits."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    arguments = get_args(hint)
    if arguments:
        return tuple(choice for part in arguments for choice in _choices(part))
    return (None,) if hint is NoneType else (hint,)


def _is_choice(value: object, choice: object) -> bool:
    if choice is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(choice, type):
        return isinstance(value, choice)
    return type(value) is type(choice) and value == choice


def _word(choice: object) -> str:
    return f"a {choice.__name__}" if isinstance(choice, type) else repr(choice)


SPEC = Conventions()
"""The spec's own conventions."""

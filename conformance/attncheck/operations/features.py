"""Attention by features: weights φ(q)·φ(k) over their sum.

As plain attention whose scores are 0 and whose bias is the logarithm of the weights.

Katharopoulos et al. (2020), arXiv 2006.16236, section 3.2; Choromanski et al. (2020),
arXiv 2009.14794, lemma 1.
"""

from typing import TYPE_CHECKING

import numpy as np

from attncheck.operations.operation import (
    OFFSET,
    Array,
    Operation,
    Reduced,
    Results,
    Setting,
    beside,
    full,
    own,
    places,
    plain,
    summed,
)

if TYPE_CHECKING:
    from attncheck.case import Case
    from attncheck.formulas import Arithmetic

FEATURES = ("elu+1", "relu")


def reduce_linear(case: "Case", numbers: "Arithmetic") -> Reduced:
    """Features of one component each."""
    name = case.settings.get("feature", "elu+1")
    of_query, of_key = (
        _feature(numbers, numbers.number(own(case, x)), name) for x in "qk"
    )
    weights = _weights(case, numbers, of_query, of_key)
    return _by_logarithms(case, numbers, _log(numbers, weights))


def _feature(numbers: "Arithmetic", x: Array, name: str) -> Array:
    """elu(x) + 1, or relu."""
    above = numbers.nearest(x) > 0
    if name == "relu":
        return numbers.where(above, x, 0.0)
    # e⁰, because an implementation may take expm1, which errs like an exponential of 0.
    below = numbers.exp(x) - numbers.exp(numbers.number(0.0))
    return numbers.where(above, x, below) + 1.0


def reduce_performer(case: "Case", numbers: "Arithmetic") -> Reduced:
    """Random features, taken relative to the largest of a query and of all keys.

    Their number may be divided by before, in the features, or at the end.
    """
    seen = seen_pairs(case)
    b, h, g, i, j, r = (case.sizes[axis] for axis in "bhgijr")
    attends = np.any(seen, axis=-1, keepdims=True)
    seen = seen.reshape(b, h, g * i, j)
    attended = np.any(seen, axis=2, keepdims=True).swapaxes(-1, -2)
    of_query = numbers.where(attends, _random(case, numbers, "q"), 0.0)
    of_key = numbers.where(attended, _random(case, numbers, "k"), 0.0)
    tops = (
        _top(numbers.nearest(of_query), -1),
        _top(np.where(attended, numbers.nearest(of_key), -np.inf), (-2, -1)),
    )
    of_query = numbers.exp(of_query - tops[0])
    of_key = numbers.where(attended, numbers.exp(of_key - tops[1]), 0.0)
    weights = _weights(case, numbers, of_query, of_key, more=4)
    # One sum in any order: shifts may be large where their sum is not.
    logs = _log(numbers, weights)
    count = numbers.log(numbers.number(np.full((1, 1, 1, 1, 1), float(r))))
    terms = beside(numbers, logs[..., None], -count)
    for top in (tops[0], tops[1].repeat(g, axis=1)):
        terms = beside(numbers, terms, numbers.number(top[..., None]))
    none = numbers.nearest(logs) == -np.inf
    finite = numbers.where(none[..., None], 0.0, terms)
    logits = numbers.where(none, -np.inf, summed(numbers, finite, [-1])[..., 0])
    return _by_logarithms(case, numbers, logits)


def _random(case: "Case", numbers: "Arithmetic", name: str) -> Array:
    """The logarithms of random features, x'·w − |x'|²/2 with x' = √scale·x."""
    root = numbers.sqrt(numbers.number(case.scale_value))
    x = numbers.number(own(case, name)) * root
    draws = numbers.number(own(case, "draws")).swapaxes(-1, -2)
    return x @ draws - summed(numbers, x * x, [-1]) * 0.5


def _top(logs: np.ndarray, axis: int | tuple[int, int]) -> np.ndarray:
    """The largest, 0 where there is none; any number near it would do."""
    top = logs.max(axis=axis, keepdims=True, initial=-np.inf)
    return np.where(np.isfinite(top), top, 0.0)


def _weights(
    case: "Case", numbers: "Arithmetic", of_query: Array, of_key: Array, more: int = 0
) -> Array:
    """`b n i j`: their sums over features, and then over keys, come in any order."""
    heads = np.arange(case.sizes["n"]) // case.sizes["g"]
    of_key = of_key[:, heads].swapaxes(-1, -2)
    return numbers.product(of_query, of_key, case.sizes["j"] + more)


def _log(numbers: "Arithmetic", weights: Array) -> Array:
    """Logarithms of the weights, −∞ where a weight is 0."""
    none = numbers.nearest(weights) == 0
    logs = numbers.log(numbers.where(none, 1.0, weights))
    return numbers.where(none, -np.inf, logs)


def _by_logarithms(case: "Case", numbers: "Arithmetic", logits: Array) -> Reduced:
    b, n, h, i, j = (case.sizes[axis] for axis in "bnhij")
    operands = {"bias": logits}
    nothing = {"q": np.zeros((b, n, i, 1)), "k": np.zeros((b, h, j, 1)), "scale": 1.0}
    reduced = plain(case, numbers, mask=seen_pairs(case), **operands, **nothing)

    def back(found: Results) -> dict[str, Array]:
        return {name: found[name] for name in ("output", "lse")}

    return Reduced(reduced, operands, back)


def seen_pairs(case: "Case") -> np.ndarray:
    """`b n i j`: which keys a query sees, by the mask and by its place."""
    seen = full(case, "mask", True)
    if not case.settings.get("causal", False):
        return seen
    before = np.arange(case.sizes["j"]) <= places(case)[..., None]
    return seen & before[:, None]


def of_keys_alone(case: "Case") -> str:
    """What is wrong with a mask, which has to be the same for all queries."""
    mask = case.inputs.get("mask")
    if mask is None or mask.shape[1:3] == (1, 1):
        return ""
    return f"`mask` must have axes b 1 1 j, but is {mask.shape}"


def _refuses_linear(case: "Case") -> str:
    offset = case.settings.get("offset", 0)
    if isinstance(offset, list):
        return "`offset` must be one integer"
    if offset and not case.settings.get("causal", False):
        return f"`offset` = {offset} needs `causal`"
    return of_keys_alone(case)


def _refuses_recurrent(case: "Case") -> str:
    """A step adds its own key to the sums, and there is a step a query."""
    offset, sizes = case.settings.get("offset", 0), case.sizes
    if case.settings.get("recurrent", False):
        if not case.settings.get("causal", False) or offset or "mask" in case.inputs:
            return "`recurrent` needs `causal`, and takes no `offset` and no `mask`"
        if sizes["i"] != sizes["j"]:
            return f"`recurrent` needs i = j, but they are {sizes['i']}, {sizes['j']}"
    return _refuses_linear(case)


def _refuses_performer(case: "Case") -> str:
    if not case.scale_value > 0:
        return f"`scale` must be above 0, but is {case.scale_value}"
    return _refuses_linear(case)


BOOLEAN = Setting(lambda x: isinstance(x, bool), "true or false")
WITHOUT = ("softcap", "bias", "dropout_keep", "d_out", "d_lse")
"""Of attention, what approximations do not take."""

LINEAR = Operation(
    "linear_attention",
    "linear attention",
    reduce_linear,
    settings={
        "feature": Setting(
            lambda x: isinstance(x, str) and x in FEATURES,
            f"one of {', '.join(FEATURES)}",
        ),
        "causal": BOOLEAN,
        "offset": OFFSET,
        "recurrent": BOOLEAN,
    },
    without=("scale", *WITHOUT),
    refuses=_refuses_recurrent,
)

PERFORMER = Operation(
    "performer_attention",
    "attention by random features",
    reduce_performer,
    required={"draws": "rd"},
    settings={"causal": BOOLEAN, "offset": OFFSET},
    without=WITHOUT,
    refuses=_refuses_performer,
)

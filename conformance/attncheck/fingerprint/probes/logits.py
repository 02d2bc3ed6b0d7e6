"""Probes of what the logits are made of, and of the order of axes and heads."""

from collections.abc import Callable

import numpy as np

from attncheck.definition import softmax
from attncheck.fingerprint.function import LAYOUTS, Function, Refused
from attncheck.fingerprint.reading import NotMeasured, Seen
from attncheck.fingerprint.words import numbers


def layout(f: Function) -> Seen:
    """q = 0 and axes of different prime sizes: the output must be the mean of V."""
    refusals = []
    for order in LAYOUTS:
        try:
            place = f.find_output(order)
        except Refused as error:
            refusals.append(str(error))
            continue
        shown = f"as {order}, the output is the mean of V where q = 0"
        return Seen(value=order, shown=shown, detail={"output": place.number})
    raise NotMeasured(f"no order of axes is right; as {LAYOUTS[0]}: {refusals[0]}")


def weight_layout(f: Function) -> Seen:
    """Nothing is called: a function of q, k and v has no projection."""
    return Seen(value=None, shown="takes q, k and v: there is no projection")


def value_width(f: Function) -> Seen:
    """Values of width 5 beside queries and keys of width 3."""
    q, v = np.zeros((1, 1, 2, 3)), np.ones((1, 1, 4, 5))
    try:
        f.output(q, np.zeros((1, 1, 4, 3)), v)
    except Refused as error:
        return Seen(value="same", shown=str(error))
    return Seen(value="any", shown="values of width 5, queries and keys of width 3")


def heads(f: Function) -> Seen:
    """Four query heads, two key/value heads with values 0 and 1: who reads which."""
    if "n" not in f.need("layout"):
        return Seen(value=None, shown="its arrays have no axis of heads")
    k, v = np.zeros((1, 2, 3, 4)), np.zeros((1, 2, 3, 4))
    v[:, 1] = 1
    try:
        read = f.output(np.zeros((1, 4, 2, 4)), k, v)[0, :, 0, 0]
    except Refused as error:
        return Seen(value=None, shown=f"refuses fewer key/value heads: {error}")
    shown = f"4 query heads read key/value heads {numbers(read)}"
    if f.takes("grouped"):
        shown += f", with {f.calling.keywords['grouped']}"
    for value, order in {"hg": [0, 0, 1, 1], "gh": [0, 1, 0, 1]}.items():
        if np.allclose(read, order, atol=1e-3):
            return Seen(value=value, shown=shown)
    raise NotMeasured(shown)


def scale(f: Function) -> Seen:
    """Two scores that differ by 1 at width 7: the logarithm of their weights' ratio."""
    shown = ""
    try:
        factor = _factor(f)
    except Refused as error:
        if not f.takes("scale"):
            raise
        _factor(f, scale=1.0)
        return Seen(value="required", shown=f"without one: {error}")
    shown = f"scores are multiplied by {factor:.4g} at width 7; 1/√7 = 0.378"
    for value, want in {"rsqrt_d": 7**-0.5, "one": 1.0}.items():
        if np.isclose(factor, want, rtol=1e-3):
            return Seen(value=value, shown=shown, detail={"factor": factor})
    raise NotMeasured(shown)


def scale_zero(f: Function) -> Seen:
    """A scale of 0: all weights alike, those of the default scale, or NaN."""
    return _scale_of(f, 0.0)


def scale_negative(f: Function) -> Seen:
    """A scale of −½: the greatest score gets the least weight, or does not."""
    return _scale_of(f, -0.5)


def _scale_of(f: Function, given: float) -> Seen:
    if not f.takes("scale"):
        raise NotMeasured("has no known keyword for a scale")
    default = f.default_scale(7)
    try:
        factor = _factor(f, scale=given)
    except Refused as error:
        return Seen(value="refuse", shown=str(error))
    shown = f"scores are multiplied by {factor:.3g} where the scale is {given:g}"
    shown += _with_causal(f, given)
    for value, want in {"honoured": given, "default": default, "nan": np.nan}.items():
        if np.isclose(factor, want, atol=1e-3, equal_nan=True):
            return Seen(value=value, shown=shown)
    raise NotMeasured(shown)


def _with_causal(f: Function, given: float) -> str:
    """NaN with the causal flag: where the mask comes before the scale, −∞ · 0."""
    if not f.takes("causal"):
        return ""
    x = np.ones((1, 1, 3, 3))
    try:
        out = f.output(x, x, x, scale=given, causal=True)
    except Refused as error:
        return f"; with the causal flag: {error}"
    return "; with the causal flag: NaN" * bool(np.isnan(out).any())


def _factor(f: Function, **options: float) -> float:
    """What scores are multiplied by: ln w₀ − ln w₁ where they are 1 and 0."""
    eye = np.eye(7)[None, None]
    w = f.output(eye[:, :, :1], eye, eye, **options)[0, 0, 0]
    with np.errstate(all="ignore"):
        return float(np.log(w[0]) - np.log(w[1]))


SCORES = np.array([0.5, 3.0, -2.0, 1.0])
BIAS = np.array([0.0, 2.0, 1.0, -1.0])


def bias(f: Function) -> Seen:
    """A bias on known logits: what it is multiplied by before the softmax."""
    parts = _if_taken(f.biased, BIAS[None])
    if not parts:
        return Seen(value=None, shown="has no known keyword for a bias")
    try:
        w = f.weights(SCORES[None], **parts)[0]
    except Refused as error:
        return Seen(value=None, shown=f"refuses a bias: {error}")
    with np.errstate(all="ignore"):
        left = np.log(w) - np.log(w[0]) - (SCORES - SCORES[0])
    factor = float(left @ BIAS / (BIAS @ BIAS))
    scale = f.default_scale(4)
    shown = f"the bias is multiplied by {factor:.3g}, the scores by {scale:g}"
    if not np.allclose(left, factor * BIAS, atol=1e-3):
        raise NotMeasured(f"weights {numbers(w)} come from no multiple of the bias")
    if scale == 1 and np.isclose(factor, 1, atol=1e-3):
        return _bias_by_scale(f, parts, shown)
    for value, want in {"after_scale": 1.0, "before_scale": scale}.items():
        if np.isclose(factor, want, atol=1e-3):
            return Seen(value=value, shown=shown)
    raise NotMeasured(shown)


def _bias_by_scale(f: Function, parts: dict, shown: str) -> Seen:
    """Where the default scale is 1, another one tells before from after."""
    if not f.takes("scale"):
        raise NotMeasured(f"{shown}: before and after the scale are the same")
    w = f.weights(np.zeros((1, 4)), **parts, scale=0.5)[0]
    factor = float(np.log(w[1] / w[0]) / (BIAS[1] - BIAS[0]))
    shown = f"the bias is multiplied by {factor:.3g} where the scale is 0.5"
    for value, want in {"after_scale": 1.0, "before_scale": 0.5}.items():
        if np.isclose(factor, want, atol=1e-3):
            return Seen(value=value, shown=shown)
    raise NotMeasured(shown)


def softcap(f: Function) -> Seen:
    """A softcap of 2 with a bias and a blocked key: which order gives the weights."""
    if not f.takes("softcap"):
        return Seen(value=None, shown="has no known keyword for a softcap")
    biased = _if_taken(f.biased, np.tile(BIAS, (4, 1)))
    masked = _if_taken(f.seeing, np.tri(4, dtype=bool))
    for more in ({**biased, **masked}, biased, masked):  # one may carry the other
        try:  # the third query, so that another sees the key that is blocked for it
            w = f.weights(np.tile(SCORES, (4, 1)), softcap=2.0, **more)[2]
            break
        except Refused as error:
            refusal = str(error)
    else:
        return Seen(value=None, shown=f"refuses a softcap: {refusal}")
    before = f.known.get("bias") == "before_scale"
    bias = BIAS * (f.default_scale(4) if before else 1) * _is_in(biased, more)
    seen = np.arange(4) < (3 if _is_in(masked, more) else 4)
    shown = f"weights {numbers(w)}"
    fitting = [
        order
        for order, logits in _capped_logits(bias, seen).items()
        if np.allclose(w, softmax(logits)[0], atol=1e-3)
    ]
    if len(fitting) == 1:
        return Seen(value=fitting[0], shown=f"{shown} fit {fitting[0]} alone")
    if fitting:
        lacks = "mask" if biased else "bias"
        raise NotMeasured(f"{' and '.join(fitting)} are alike without a {lacks}")
    raise NotMeasured(f"{shown} are not those of c·tanh(s/c) at any place")


def _capped_logits(bias: np.ndarray, seen: np.ndarray) -> dict[str, np.ndarray]:
    """SCORES with a softcap of 2 at each of its places."""

    def capped(logits: np.ndarray) -> np.ndarray:
        return 2 * np.tanh(logits / 2)

    return {
        "before_bias": np.where(seen, capped(SCORES) + bias, -np.inf),
        "after_bias": np.where(seen, capped(SCORES + bias), -np.inf),
        "after_mask": capped(np.where(seen, SCORES + bias, -np.inf)),
    }


def _is_in(parts: dict, given: dict) -> bool:
    """Whether there are parts, and all of them were given."""
    return parts != {} and all(given.get(part) is x for part, x in parts.items())


def _if_taken(parts: Callable[[np.ndarray], dict], given: np.ndarray) -> dict:
    """The parts of a call, or none where the function takes none."""
    try:
        return parts(given)
    except NotMeasured:
        return {}


def sinks(f: Function) -> Seen:
    """One more logit of 1 in the denominator: the sum of the weights falls."""
    if not f.takes("sinks"):
        return Seen(value=False, shown="has no known keyword for sinks")
    w = f.weights(np.zeros((1, 4)), sinks=np.array([1.0]))[0]
    shown = f"four weights of logit 0 with a sink of 1 sum to {w.sum():.3g}"
    if np.allclose(w, 1 / (4 + np.e), atol=1e-3):
        return Seen(value=True, shown=shown)
    raise NotMeasured(shown)

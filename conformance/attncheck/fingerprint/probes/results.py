"""Probes of what is returned beside the output, and of dropout."""

import numpy as np

from attncheck.fingerprint.function import Array, Function, Refused
from attncheck.fingerprint.reading import NotMeasured, Seen
from attncheck.fingerprint.words import numbers, rounded

HALVES = ("BF16", "F16")


def lse(f: Function) -> Seen:
    """Four keys of logits 0 … 3: the logarithm of the sum of their exponentials."""
    if not f.gives("lse"):
        return Seen(value=None, shown="returns none")
    logits = np.arange(4.0)
    found = float(_lse(f, logits[None])[0])
    total = np.log(np.exp(logits).sum())
    two = total / np.log(2)
    shown = f"log-sum-exp {found:.4g}; ln Σ = {total:.4g}, log₂ Σ = {two:.4g}"
    for value, want in {"e": total, 2: two}.items():
        if np.isclose(found, want, rtol=1e-3):
            return Seen(value=value, shown=shown, detail=f.places("lse"))
    raise NotMeasured(shown)


def lse_empty(f: Function) -> Seen:
    """The log-sum-exp of a row without a key."""
    _returned(f, "lse")
    seen = np.array([[False] * 4, [True] * 4])
    found = float(_lse(f, np.zeros((2, 4)), **f.seeing(seen))[0])
    return Seen(value=rounded(found), shown=f"{found:.6g} of a row without a key")


def lse_dtype(f: Function) -> Seen:
    """The type of the log-sum-exp of 16-bit and of float64 inputs."""
    _returned(f, "lse")
    half = next((d for d in HALVES if _lse_type(f, d)), None)
    small = _lse_type(f, half) if half else None
    large = _lse_type(f, "F64")
    shown = f"{small or 'refused'} of {half or '16-bit'}, {large or 'refused'} of F64"
    if small and small.itemsize == 2:
        return Seen(value="input", shown=shown)
    if large == np.float32:
        return Seen(value="float32", shown=shown)
    if small == np.float32 and large == np.float64:
        return Seen(value="wider", shown=shown)
    raise NotMeasured(shown)


def _lse_type(f: Function, dtype: str) -> np.dtype | None:
    try:
        return f.other("lse", *_uniform(4), dtype=dtype)[0].dtype
    except Refused:
        return None


def _lse(f: Function, logits: Array, **parts: Array) -> Array:
    """The log-sum-exp of known logits, `i`."""
    found, _ = f.other("lse", *f.giving(logits), **parts)
    return found.astype(np.float64).reshape(-1)


def weights(f: Function) -> Seen:
    """Returned weights with dropout: whole, or with those dropped that it dropped."""
    if not f.gives("weights"):
        return Seen(value=None, shown="returns none")
    q, k, v = _uniform(8)
    w, _ = f.other("weights", q, k, v, **_dropping(f, 8))
    sums = np.ravel(w.astype(np.float64).sum(-1))
    shown = f"with dropout ½, {(w == 0).sum()} of {w.size} returned weights are 0"
    if not (w == 0).any() and np.allclose(sums, 1, atol=1e-3):
        return Seen(value="before_dropout", shown=shown)
    if (w == 0).any():
        return Seen(value="after_dropout", shown=shown)
    raise NotMeasured(f"{shown}, and they sum to {numbers(sums)}")


def weights_heads(f: Function) -> Seen:
    """The axes of the returned weights, of three heads."""
    _returned(f, "weights")
    _, axes = f.other("weights", *_uniform(4))
    if "n" not in f.need("layout"):
        raise NotMeasured("its arrays have no axis of heads")
    value = "each" if "n" in axes else "mean"
    return Seen(value=value, shown=f"returned weights have the axes {axes}")


def dropout_rescale(f: Function) -> Seen:
    """Half of the weights dropped: those that are left, against what they were."""
    w = f.weights(np.zeros((8, 8)), **_dropping(f, 8))
    left = w[w != 0] * 8
    factors = np.unique(np.round(left, 3))[:3]
    shown = f"with dropout ½, what is left is multiplied by {numbers(factors)}"
    if not 0 < left.size < 64:
        raise NotMeasured(f"dropout ½ drops {64 - left.size} of 64 weights")
    for value, want in {True: 2.0, False: 1.0}.items():
        if np.allclose(left, want, atol=1e-3):
            return Seen(value=value, shown=shown)
    raise NotMeasured(shown)


def _dropping(f: Function, size: int) -> dict:
    """The parts of a call that drop half of the weights."""
    parts: dict = {}
    if f.takes("dropout_keep"):
        keep = np.indices((size, size)).sum(0) % 2 == 0
        parts["dropout_keep"] = keep[None, None]
    if f.takes("dropout_rate"):
        parts["dropout_rate"] = 0.5
    if not parts:
        raise NotMeasured("has no known keyword for dropout")
    return parts


def _returned(f: Function, name: str) -> None:
    """Raises NotMeasured where a result is not returned."""
    if f.need(name) is None:
        raise NotMeasured(f"returns no {name}")


def _uniform(size: int) -> tuple[Array, Array, Array]:
    """As many queries, keys and channels; all keys weigh the same."""
    x = np.ones((1, 1, size, size))
    return 0 * x, x, x

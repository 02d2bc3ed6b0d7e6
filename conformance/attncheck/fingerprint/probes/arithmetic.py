"""Probes of arithmetic: NaN at blocked and visible places, types of computation."""

import numpy as np

from attncheck.fingerprint.function import Array, Function, Refused
from attncheck.fingerprint.reading import NotMeasured, Seen
from attncheck.fingerprint.words import numbers


def nan_blocked_k(f: Function) -> Seen:
    """NaN in a key that no query may see: the output stays as it was, or not."""
    return _blocked_nan(f, "k")


def nan_blocked_v(f: Function) -> Seen:
    """NaN in a value whose key no query may see."""
    return _blocked_nan(f, "v")


def _blocked_nan(f: Function, name: str) -> Seen:
    seen = np.tri(2, 4, dtype=bool)  # what a causal flag aligned upper-left leaves
    parts, arrays = f.seeing(seen), _normal(2, 4)
    clean = f.output(**arrays, **parts)
    arrays[name][:, :, 2:] = np.nan
    got = f.output(**arrays, **parts)
    same = np.allclose(got, clean, atol=1e-5)
    shown = f"{int(np.isnan(got).sum())} of {got.size} numbers of the output are NaN"
    if not same and not np.isnan(got).any():
        rows = [numbers(out[0, 0, 0]) for out in (got, clean)]
        shown = f"the output is {rows[0]} in place of {rows[1]}"
    return Seen(value="hidden" if same else "leaks", shown=shown)


def nan_visible(f: Function) -> Seen:
    """NaN in a query, a key or a value, without a mask: NaN must come out."""
    lost = []
    for name, word in {"q": "a query", "k": "a key", "v": "a value"}.items():
        arrays = _normal(2, 4)
        arrays[name][0, 0, 0] = np.nan
        got = f.output(**arrays)[0, 0, 0]
        if not np.isnan(got).all():
            lost.append(f"{word} gives {numbers(got)}")
    if lost:
        return Seen(value="hidden", shown=f"NaN in {'; in '.join(lost)}")
    return Seen(value="shown", shown="NaN in a query, a key or a value gives NaN")


def float64(f: Function) -> Seen:
    """float64 inputs: the error of the output, against that of float32 arithmetic."""
    arrays = _normal(3, 5)
    arrays = {name: x / 3 for name, x in arrays.items()}  # nothing that float32 holds
    logits = arrays["q"] @ arrays["k"].swapaxes(-1, -2) * f.default_scale(4)
    w = np.exp(logits)
    want = w / w.sum(-1, keepdims=True) @ arrays["v"]
    try:
        error = float(np.abs(f.output(**arrays, dtype="F64") - want).max())
    except Refused as refusal:
        raise NotMeasured(f"refuses float64: {refusal}") from None
    shown = f"of F64 inputs, the output is off by {error:.1e}"
    if error < 1e-13:
        return Seen(value="float64", shown=shown)
    if error < 1e-5:
        return Seen(value="float32", shown=shown)
    raise NotMeasured(shown)


HALVES: dict[str, int] = {"BF16": 257, "F16": 2049}
"""As many keys as a sum of ones in that type cannot count."""


def softmax_dtype(f: Function) -> Seen:
    """257 equal keys: bfloat16 counts 256.  Three in float64: a third, to how far?"""
    seen = []
    for dtype, keys in HALVES.items():
        try:
            got = _first_weight(f, dtype, keys)
        except Refused:
            continue
        seen.append(f"{keys} equal keys of {dtype} weigh 1/{1 / got:.4g} each")
        if np.isclose(1 / got, keys - 1, rtol=2**-13):
            return Seen(value="input", shown=seen[-1])
        break
    if not seen:
        raise NotMeasured("refuses 16-bit inputs")
    try:
        error = abs(_first_weight(f, "F64", 3) * 3 - 1)
    except Refused as refusal:
        raise NotMeasured(f"{seen[0]}, and refuses float64: {refusal}") from None
    shown = f"{seen[0]}; a third in F64 is off by {error:.0e}"
    return Seen(value="wider" if error < 1e-12 else "float32", shown=shown)


def _first_weight(f: Function, dtype: str, keys: int) -> float:
    """The weight of the first of so many equal keys."""
    x = np.zeros((1, 1, keys, 2))
    v = x.copy()
    v[0, 0, 0] = 1
    return float(f.output(x[:, :, :1], x, v, dtype=dtype)[0, 0, 0, 0])


def _normal(i: int, j: int) -> dict[str, Array]:
    """q, k and v of width 4, drawn from a normal distribution."""
    rng = np.random.default_rng(2)
    sizes = {"q": i, "k": j, "v": j}
    return {n: rng.standard_normal((1, 1, size, 4)) for n, size in sizes.items()}

"""Probes of masks: polarity, alignment, ends of a window, rows without a key."""

from typing import Any

import numpy as np

from attncheck.definition import softmax
from attncheck.fingerprint.function import Function, Refused
from attncheck.fingerprint.reading import NotMeasured, Seen
from attncheck.fingerprint.words import numbers, rounded

ROW = np.zeros((1, 4))
"""Four keys of the same weight."""


def mask_true(f: Function) -> Seen:
    """A mask that is True at two of four keys: the keys that keep a weight."""
    if not f.takes("mask"):
        return Seen(value=None, shown="has no known keyword for a mask")
    try:
        w = f.weights(ROW, mask=np.array([[[[True, True, False, False]]]]))
    except Refused as error:
        return Seen(value=None, shown=f"refuses a boolean mask: {error}")
    shown = f"weights where the mask is T T F F: {numbers(w[0])}"
    for value, seen in {"attend": [1, 1, 0, 0], "block": [0, 0, 1, 1]}.items():
        if np.allclose(w[0], np.array(seen) / 2, atol=1e-3):
            return Seen(value=value, shown=shown)
    if np.allclose(w[0], softmax(np.array([1.0, 1, 0, 0]))[0], atol=1e-3):
        return Seen(value=None, shown=f"adds a boolean mask as 1 and 0; {shown}")
    raise NotMeasured(shown)


def mask_float(f: Function) -> Seen:
    """A float mask (0, 1, −1, ½): weights of its exponentials, or truth values."""
    if not f.takes("mask"):
        raise NotMeasured("has no known keyword for a mask")
    values = np.array([0, 1, -1, 0.5])
    try:
        w = f.weights(ROW, mask=values[None, None, None])[0]
    except Refused as error:
        return Seen(value="refuse", shown=str(error))
    shown = f"weights where the mask is 0 1 −1 ½: {numbers(w)}"
    scale = f.default_scale(4)  # a bias before the scale is multiplied by it
    if any(np.allclose(w, softmax(c * values)[0], atol=1e-3) for c in (1, scale)):
        return Seen(value="add", shown=shown)
    for seen in (values != 0, values == 0):
        if np.allclose(w, seen / seen.sum(), atol=1e-3):
            return Seen(value="truth", shown=shown)
    raise NotMeasured(shown)


def causal(f: Function) -> Seen:
    """The causal flag with two queries and five keys: the keys the first one reads."""
    if not f.takes("causal"):
        raise NotMeasured("has no known keyword for a causal flag")
    wide = _seen(f.weights(np.zeros((2, 5)), causal=True))
    shown = f"of 5 keys, 2 queries see {_counts(wide)}"
    for value, offset in {"upper-left": 0, "lower-right": 3}.items():
        if np.array_equal(wide, np.tri(2, 5, offset, dtype=bool)):
            return Seen(value=value, shown=shown + _unlike(f, -offset))
    raise NotMeasured(shown)


def _unlike(f: Function, offset: int) -> str:
    """What more queries than keys see, where they are aligned to another corner."""
    try:
        tall = _seen(f.weights(np.zeros((5, 2)), causal=True))
    except Refused as error:
        return f"; of 2 keys, 5 queries: {error}"
    want = np.tri(5, 2, offset, dtype=bool)
    rows = want.any(axis=1)  # an empty row is another field's matter
    if np.array_equal(tall[rows], want[rows]):
        return ""
    return f"; but of 2 keys, 5 queries see {_counts(tall)}"


def mask_and_causal(f: Function) -> Seen:
    """A mask that blocks key 1 and the causal flag: which of them the rows obey."""
    if not f.takes("causal"):
        raise NotMeasured("has no known keyword for a causal flag")
    causal, seen = np.tri(3, dtype=bool), np.array([[True, False, True]] * 3)
    mask = f.seeing(seen)
    try:
        w = f.weights(np.zeros((3, 3)), **mask, causal=True)
    except Refused as error:
        return Seen(value="refuse", shown=str(error))
    shown = f"3 queries see {_counts(_seen(w))} keys" + _with_other_width(f, mask)
    for value, both in {"and": seen & causal, "causal": causal, "mask": seen}.items():
        if np.array_equal(_seen(w), both):
            return Seen(value=value, shown=shown)
    raise NotMeasured(shown)


def _with_other_width(f: Function, mask: dict[str, Any]) -> str:
    """What a mask with the causal flag does where values have another width: some
    functions go another way there."""
    q = np.zeros((1, 1, 3, 3))
    v = np.zeros((1, 1, 3, 5))
    try:
        f.output(q, q, v, causal=True)
        f.output(q, q, v, **mask, causal=True)
    except (Refused, NotMeasured) as error:
        if "value_width" in f.known and f.known["value_width"] == "any":
            return f"; with values of another width: {error}"
    return ""


def window(f: Function) -> Seen:
    """A window of 2 among 6 keys: how far to the left the last query sees."""
    if not f.takes("window"):
        return Seen(value=None, shown="has no known keyword for a window")
    found: dict[str, tuple[dict[str, Any], int, int]] = {}
    for form, value in {"pair": (2, 1), "number": 2}.items():
        try:
            found[form] = _band(f, value)
        except Refused as error:
            refusal = str(error)
    if not found:
        raise NotMeasured(refusal)
    given, left, right = next(iter(found.values()))
    wide = _seen(f.weights(np.zeros((2, 5)), **given))
    words = ", ".join(f"{part} {value}" for part, value in given.items())
    return Seen(
        value="inclusive" if left == 2 else "exclusive",
        shown=f"{words}: a query sees {left} keys to its left, {right} to its right",
        detail={
            "pair": "pair" in found,
            "number": _right_of_number(*found["number"]) if "number" in found else None,
            "aligned": "lower-right" if np.argmax(wide[0]) else "upper-left",
        },
    )


def _band(f: Function, value: Any) -> tuple[dict[str, Any], int, int]:
    """The call that takes a window, and what a query sees to its left and right.

    Raises:
        Refused: none does, with the causal flag or without.
        NotMeasured: not every query sees as many keys.
    """
    given = {"window": value}
    try:
        seen = _seen(f.weights(np.zeros((6, 6)), **given))
    except Refused:
        if not f.takes("causal"):
            raise
        given |= {"causal": True}
        seen = _seen(f.weights(np.zeros((6, 6)), **given))
    left, right = 5 - int(np.argmax(seen[5])), 5 - int(np.argmax(seen[0][::-1]))
    distance = np.subtract.outer(np.arange(6), np.arange(6))
    banded = np.array_equal(seen, (distance <= left) & (-distance <= right))
    if not banded or left not in (1, 2):
        raise NotMeasured(f"with {value}, 6 queries see {_counts(seen)} keys")
    return given, left, right


def _right_of_number(given: dict[str, Any], left: int, right: int) -> str:
    """Whether a window that is a number reaches as far to the right."""
    return "same" if right == left else "none"


def fill(f: Function) -> Seen:
    """A blocked key beside one whose logit falls: where the blocked one takes over."""
    low, high = 0.0, float(np.log10(3e38))
    if _blocked_weight(f, -3e38) < 0.5:
        return Seen(value=-np.inf, shown="weight 0 beside a key whose logit is −3e38")
    for _ in range(30):
        middle = (low + high) / 2
        taken = _blocked_weight(f, -(10.0**middle)) > 0.5
        low, high = (low, middle) if taken else (middle, high)
    value = rounded(-(10.0**high))
    return Seen(value=value, shown=f"takes over from a key whose logit is {value:g}")


def _blocked_weight(f: Function, logit: float) -> float:
    """The weight of a blocked key with score 0 beside a key with this logit."""
    given = f.seeing(np.tri(2, dtype=bool))  # a second query sees both
    q, eye = np.diag([logit, 0.0])[None, None], np.eye(2)[None, None]
    width = 1.0
    if f.takes("scale"):
        given["scale"] = 1.0
    else:
        width = 1 / f.default_scale(2)
        q = np.maximum(q, -3.4e38 / width)
    return float(f.output(q, width * eye, eye, **given)[0, 0, 0, 1])


def empty_row(f: Function) -> Seen:
    """A row of a mask without a key: its output."""
    # Aligned lower-right, the causal flag of more queries than keys leaves such rows.
    i, j = (4, 2) if f.known.get("causal") == "lower-right" else (2, 4)
    seen = np.tri(i, j, j - i, dtype=bool)
    seen[0], seen[-1] = False, True
    return _empty(f, f.seeing(seen), i, j)


def empty_row_bias(f: Function) -> Seen:
    """A row of a bias that is −∞ at every key: its output."""
    bias = np.zeros((2, 4))
    bias[0] = -np.inf
    return _empty(f, f.biased(bias), 2, 4)


def _empty(f: Function, parts: dict[str, Any], i: int, j: int) -> Seen:
    rng = np.random.default_rng(1)
    q, k = rng.standard_normal((1, 1, i, 4)), rng.standard_normal((1, 1, j, 4))
    v = rng.standard_normal((1, 1, j, 4)) + 3
    try:
        row = f.output(q, k, v, **parts)[0, 0, 0]
    except Refused as error:
        return Seen(value="refuse", shown=str(error))
    shown = f"the row is {numbers(row)}, the mean of V {numbers(v.mean(2)[0, 0])}"
    wanted = {"zero": 0, "mean": v.mean(2)[0, 0], "nan": np.full(4, np.nan)}
    for value, want in wanted.items():
        if np.allclose(row, want, atol=1e-3, equal_nan=True):
            return Seen(value=value, shown=shown)
    raise NotMeasured(shown)


def _seen(weights: np.ndarray) -> np.ndarray:
    """The keys that a query reads: those with a weight, `i j`."""
    return weights > 1e-6


def _counts(seen: np.ndarray) -> str:
    """How many keys each query sees, as `1, 2`."""
    return ", ".join(str(int(row.sum())) for row in seen)

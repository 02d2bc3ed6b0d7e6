"""One case through a room, and how far from the definition its results may lie."""

from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, settings

from attncheck.case import DTYPES, GRADIENTS, Case
from attncheck.definition import expected

PRIMES = {"b": 2, "h": 3, "g": 5, "i": 7, "j": 11, "d": 13, "e": 17}
"""No two axes, nor n = 15, are alike."""

UNIT = {"F64": 2.0**-53, "F32": 2.0**-24, "BF16": 2.0**-24, "F16": 2.0**-24}
"""Largest relative error of one rounding in the accumulation type."""

# The fixture `room` holds no state that an example could change.
repeatable = settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def draw(dtype="F64", *, seed=0, sizes=PRIMES, bias=None, mask=None, **options) -> Case:
    """A case of normal numbers.

    `bias` names the axes of `b n i j` that are full, the others are 1; None: no bias.
    """
    rng = np.random.default_rng(seed)
    size = sizes | {"n": sizes["h"] * sizes["g"]}
    keep = options.pop("dropout_keep", None)

    def normal(axes, kept="bnijhde"):
        shape = [size[axis] if axis in kept else 1 for axis in axes]
        return rng.normal(size=shape).astype(DTYPES[dtype])

    inputs = {"q": normal("bnid"), "k": normal("bhjd"), "v": normal("bhje")}
    inputs["d_out"] = normal("bnie")
    wide = np.float64 if dtype == "F64" else np.float32
    inputs["d_lse"] = rng.normal(size=[size[a] for a in "bni"]).astype(wide)
    if bias is not None:
        inputs["bias"] = normal("bnij", kept=bias)
    if mask is not None:
        inputs["mask"] = mask
    if keep is not None:
        inputs["dropout_keep"] = keep
    return Case("drawn", (), "", dtype, inputs, **options)


def answered(mask, shape) -> np.ndarray:
    """The mask of a predicate, found by asking it for every query and key alone."""
    mask, places = mask.bind(np.asarray), map(np.array, np.ndindex(shape))
    return np.array([mask(*place) for place in places], bool).reshape(shape)


def change(case: Case, **arrays) -> Case:
    """The case with other arrays; None takes one away."""
    inputs = {**case.inputs, **arrays}
    return replace(case, inputs={k: x for k, x in inputs.items() if x is not None})


def options(room, case: Case, **others) -> dict:
    """The keyword arguments of a case's call, arrays in the room's framework."""
    arrays = {k: room.array(case.inputs.get(k)) for k in ("mask", "bias")}
    arrays["dropout_keep"] = room.array(case.inputs.get("dropout_keep"))
    numbers = {"scale": case.scale, "softcap": case.softcap}
    return arrays | numbers | {"dropout_rate": case.dropout_rate} | others


def run(room, case: Case, **others) -> dict[str, np.ndarray]:
    """Every result of a case, as NumPy arrays.  `others` replace its options."""
    with room.framework.precision(case.dtype):
        q, k, v = (room.array(case.inputs[name]) for name in "qkv")
        keywords = options(room, case, **others)
        steps = room.attention_steps(q, k, v, **keywords)
        d_out, d_lse = (room.array(case.inputs.get(x)) for x in ("d_out", "d_lse"))
        gradients = room.attention_vjp(d_out, q, k, v, **keywords, d_lse=d_lse)
        results = steps._asdict() | dict(zip(GRADIENTS, gradients, strict=True))
        return {name: room.numpy(array) for name, array in results.items()}


def tolerance(case: Case) -> dict[str, np.ndarray]:
    """The most by which two computations of a case in its accumulation type differ.

    By the standard model, fl(x∘y) = (x∘y)(1 + ε) with |ε| ≤ u, a result lies within
    n·u of its *magnitude*: its formula with every term's absolute value, where n counts
    the roundings on the longest way from an input to it.  Two results lie within 2·n·u.
    """
    return {
        name: 2 * roundings(case) * UNIT[case.dtype] * magnitude
        for name, magnitude in _magnitudes(case).items()
    }


def roundings(case: Case) -> int:
    """On the longest way: sums over every axis, and at most 4 for each of what is done
    once an entry: scale, softcap, bias, shift, exponential, quotient, dropout, vjp.
    """
    size = case.sizes
    return size["d"] + size["e"] + 2 * size["j"] + size["g"] * size["i"] + 32


def _magnitudes(case: Case) -> dict[str, np.ndarray]:
    want, g = expected(case), case.sizes["g"]
    q, d_out = (abs(case.inputs[x].astype(np.float64)) for x in ("q", "d_out"))
    k, v = (abs(case.inputs[x].astype(np.float64)).repeat(g, axis=1) for x in "kv")
    scores = np.einsum("bnid,bnjd->bnij", q, k)
    scaled = abs(case.scale_value) * scores
    bias = abs(case.inputs.get("bias", np.zeros((1, 1, 1, 1))).astype(np.float64))
    logits = scaled + np.where(np.isfinite(bias), bias, 0)

    # A logit's error a, after d + 8 roundings, is one of e^(s ± a) / e^s − 1 ≤ 2·a in
    # its exponential, and of as much again in the sum that this is divided by.
    share = (case.sizes["d"] + 8) / roundings(case)
    p = want.weights * (1 + 4 * share * logits.max(axis=-1, keepdims=True, initial=0))
    keep = case.inputs.get("dropout_keep", np.True_) / (1 - case.dropout_rate)
    d_weights = np.einsum("bnie,bnje->bnij", d_out, v) * keep
    d_lse = abs(case.inputs.get("d_lse", np.zeros((1, 1, 1))))[..., None]
    d_logits = p * (d_weights + (p * d_weights).sum(-1, keepdims=True) + d_lse)
    d_scores = abs(case.scale_value) * d_logits * _slope(case, want, scaled, share)
    found = {
        "scores": scores,
        "logits": logits,
        "masked": logits,
        "weights": p,
        "lse": 1 + logits.max(axis=-1, initial=0) + np.log(case.sizes["j"] + 1),
        "output": np.einsum("bnij,bnje->bnie", p * keep, v),
        "dq": np.einsum("bnij,bnjd->bnid", d_scores, k),
        "dk": _per_head(np.einsum("bnij,bnid->bnjd", d_scores, q), g),
        "dv": _per_head(np.einsum("bnij,bnie->bnje", p * keep, d_out), g),
    }
    if "bias" in case.inputs:
        full = tuple(a for a, n in enumerate(case.inputs["bias"].shape) if n == 1)
        found["dbias"] = d_logits.sum(axis=full, keepdims=True)
    return found


def _slope(case, want, scaled, share):
    """1 − tanh²(x / c); it moves by less than 1/c a unit of x; 1 is rounded twice."""
    if case.softcap is None:
        return 1
    x = case.scale_value * np.where(want.visible, want.scores, 0)
    moved = share * scaled / case.softcap + 2 / roundings(case)
    return np.cosh(x / case.softcap) ** -2.0 + moved


def _per_head(x: np.ndarray, g: int) -> np.ndarray:
    b, n, *rest = x.shape
    return x.reshape(b, n // g, g, *rest).sum(axis=2)


def assert_defined(
    case: Case, results: dict[str, np.ndarray], like: Case | None = None
):
    """All `results` are the definition's, within the tolerance.

    `like` is a case with the same expected values, where that of `case` holds numbers
    that are not finite.
    """
    want, allowed = expected(like or case), tolerance(like or case)
    for name, array in results.items():
        if array is not None:
            _assert_within(name, array, getattr(want, name), allowed[name], case)


def _assert_within(name, got, want, allowed, case):
    assert got.shape == want.shape, name
    seen = expected(case).visible if name in ("scores", "logits") else True
    same = (got == want) | (np.isnan(want) & np.isnan(got))
    rounded = name in ("output", *GRADIENTS) and case.dtype in ("F16", "BF16")
    wide = got.astype(np.float64)
    if rounded:
        allowed = allowed + _half_ulp(abs(want) + allowed, case.dtype)
    with np.errstate(invalid="ignore"):  # −∞ − −∞, which `same` has seen
        near = abs(wide - want) <= allowed
    wrong = np.argwhere(np.broadcast_to(seen & ~(same | near), got.shape))
    for at in map(tuple, wrong[:1]):
        raise AssertionError(f"{name}{list(at)} is {got[at]}, not {want[at]}")


def _half_ulp(x, dtype):
    """Half the distance between numbers of a 16-bit type, at most, up to x ≥ 0."""
    bits, least = {"F16": (11, 2.0**-24), "BF16": (8, 2.0**-133)}[dtype]
    return np.maximum(x * 2.0**-bits, least / 2)

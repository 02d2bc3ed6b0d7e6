"""What the pages answer questions with: small experiments, most of them in float64.

Each function is one experiment; what it returns is written to the evidence under its
name, and measured again by the tests.
"""

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import ml_dtypes
import numpy as np
import sentence

from attnref.numpy import attention, attention_steps, attention_vjp, softmax
from attnref.spec import causal

KEYS = 128
WIDTHS = (4, 16, 64, 256, 1024, 4096)


def measure() -> dict[str, Any]:
    """Every experiment, by its name."""
    return {experiment.__name__: experiment() for experiment in EXPERIMENTS}


def scale_by_width() -> list[dict[str, float]]:
    """What the width of a head does to softmax, with the scale and without.

    Queries and keys are normal and independent, of variance 1; rows of 128 keys.
    """
    rows = []
    for d in WIDTHS:
        q, k = _normal(d, (1, 1, 256, d), (1, 1, KEYS, d))
        raw = q @ k.swapaxes(-1, -2)
        row = {"d": d, "std": raw.std(), "std_scaled": (raw * d**-0.5).std()}
        for name, logits in (("raw", raw), ("scaled", raw * d**-0.5)):
            row |= {f"{what}_{name}": x for what, x in _shape(logits).items()}
        rows.append(row)
    return rows


def scale_of_the_model() -> dict[str, float]:
    """1/√d with the head's own width, and with the model's, in a trained layer."""
    heads = sentence.heads(sentence.LAYER)
    raw = heads["q"] @ heads["k"].swapaxes(-1, -2)
    _, n, _, d = heads["q"].shape
    c = n * d
    return {
        "d": d,
        "c": c,
        "entropy_d": _shape(raw * d**-0.5)["entropy"],
        "entropy_c": _shape(raw * c**-0.5)["entropy"],
        "entropy_raw": _shape(raw)["entropy"],
        "entropy_uniform": np.log(raw.shape[-1]),
    }


def fills() -> dict[str, dict[str, float]]:
    """The weight left on blocked keys by each way of blocking them, float32.

    Half of 128 keys are blocked; once the logits are ordinary, once those that are live
    lie at −25600, as a strong bias or a large scale makes them.
    """
    (q, k) = _normal(0, (1, 1, 64, 32), (1, 1, KEYS, 32))
    logits = (q @ k.swapaxes(-1, -2) * 32**-0.5).astype(np.float32)
    blocked = np.arange(KEYS) % 2 == 1
    low = np.where(blocked, logits, logits - np.float32(25600))
    ways: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
        "times_0": lambda x: softmax(np.where(blocked, x * 0, x))[0],
        "add_-1e4": lambda x: softmax(x + np.float32(-1e4) * blocked)[0],
        "add_-1e9": lambda x: softmax(x + np.float32(-1e9) * blocked)[0],
        "fill_-inf": lambda x: softmax(np.where(blocked, -np.inf, x))[0],
    }
    return {
        name: {
            "ordinary": float(way(logits)[..., blocked].sum(-1).max()),
            "low": float(way(low)[..., blocked].sum(-1).max()),
        }
        for name, way in ways.items()
    }


def zero_after() -> dict[str, float]:
    """What is lost if blocked weights are zeroed after softmax: the row's sum."""
    case = sentence.attention_case("F64")
    steps = attention_steps(*(case.inputs[n] for n in "qkv"))
    left = (steps.weights * sentence.CAUSAL).sum(-1)[0, sentence.HEADS["pronoun"][1]]
    return {"least": float(left.min()), "greatest": float(left.max())}


def heads_cost() -> list[dict[str, float]]:
    """Parameters, multiplications and the rank of scores, by the number of heads."""
    c, length = 384, 64
    (x, *w) = _normal(1, (1, length, c), *[(c, c)] * 2)
    rows = []
    for n in (1, 2, 4, 8, 16):
        d = c // n
        q, k = ((x @ m / c**0.5).reshape(1, length, n, d).swapaxes(1, 2) for m in w)
        raw = q @ k.swapaxes(-1, -2)
        rows.append(
            {
                "heads": n,
                "width": d,
                "parameters": 4 * c * n * d,
                "products": 4 * length * c * c + 2 * length * length * n * d,
                "rank": int(np.linalg.matrix_rank(raw[0, 0])),
            }
        )
    return rows


def one_projection() -> dict[str, float]:
    """With one matrix for queries and keys, scores are symmetric by construction."""
    (x, w_q, w_k) = _normal(2, (10, 32), (32, 32), (32, 32))
    shared, own = (x @ w_q) @ (x @ w_q).T, (x @ w_q) @ (x @ w_k).T
    return {
        "shared": float(np.abs(shared - shared.T).max() / np.abs(shared).max()),
        "own": float(np.abs(own - own.T).max() / np.abs(own).max()),
        "diagonal_largest_shared": float((shared.argmax(-1) == np.arange(10)).mean()),
    }


def identity_values() -> dict[str, float]:
    """With the identity as values, the output is the weights themselves."""
    case = sentence.attention_case("F64")
    q, k = case.inputs["q"], case.inputs["k"]
    v = np.broadcast_to(np.eye(10), (1, 12, 10, 10))
    steps = attention_steps(q, k, v)
    return {"difference": float(np.abs(steps.output - steps.weights).max())}


def no_positions() -> dict[str, float]:
    """Without positions, attention of permuted tokens is the permuted attention."""
    case = sentence.attention_case("F64")
    q, k, v = (case.inputs[n] for n in "qkv")
    order = np.random.default_rng(3).permutation(10)
    moved = attention(q[:, :, order], k[:, :, order], v[:, :, order])
    return {"difference": float(np.abs(moved - attention(q, k, v)[:, :, order]).max())}


def cache() -> dict[str, float]:
    """One query at a time with a cache of keys and values, against all at once."""
    case = sentence.attention_case("F64")
    q, k, v = (case.inputs[n] for n in "qkv")
    whole = attention(q, k, v, mask=causal())
    decoded = [
        attention(
            q[:, :, [t]], k[:, :, : t + 1], v[:, :, : t + 1], mask=causal(offset=t)
        )
        for t in range(10)
    ]
    upper_left = attention(q[:, :, [9]], k, v, mask=causal())
    return {
        "decoded": float(np.abs(np.concatenate(decoded, 2) - whole).max()),
        "upper_left": float(
            np.linalg.norm(upper_left - whole[:, :, [9]])
            / np.linalg.norm(whole[:, :, [9]])
        ),
    }


def head_order() -> dict[str, float]:
    """Grouped heads as (g h) instead of (h g); and a reshape for a transpose."""
    (q, k, v) = _normal(4, (1, 8, 16, 8), (1, 2, 16, 8), (1, 2, 16, 8))
    right = attention(q, k, v)
    tiled = attention(q, np.tile(k, (1, 4, 1, 1)), np.tile(v, (1, 4, 1, 1)))
    x = _normal(5, (1, 16, 64))[0]
    split = x.reshape(1, 16, 8, 8).swapaxes(1, 2)
    wrong = x.reshape(1, 8, 16, 8)
    return {
        "tiled": _relative(tiled, right),
        "reshaped": _relative(attention(wrong, wrong, wrong), attention(*[split] * 3)),
    }


def softmax_in_16_bits() -> dict[str, float]:
    """The error of the weights with softmax in float16 and in float32, 512 keys."""
    (q, k) = _normal(6, (1, 1, 64, 64), (1, 1, 512, 64))
    logits = (q @ k.swapaxes(-1, -2) * 0.125).astype(np.float16)
    exact = softmax(logits.astype(np.float64))[0]
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    total = powers[..., 0]
    for j in range(1, 512):  # a sum in float16, one addition after the other
        total = (total + powers[..., j]).astype(np.float16)
    narrow = powers / total[..., None]
    wide = softmax(logits.astype(np.float32))[0].astype(np.float16)
    return {
        "float16": float((np.abs(narrow - exact) / exact).max()),
        "float32": float((np.abs(wide - exact) / exact).max()),
        "row_sum_float16": float(narrow.astype(np.float64).sum(-1).min()),
    }


def formats() -> list[dict[str, Any]]:
    """What the storage types can hold."""
    rows = []
    for name in ("float32", "bfloat16", "float16"):
        info = ml_dtypes.finfo(name)
        numbers = {"largest": info.max, "smallest": info.tiny, "step": info.eps}
        rows.append(
            {"type": name, "bits": info.bits, "digits": info.nmant + 1}
            | {key: float(value) for key, value in numbers.items()}
        )
    return rows


def rounding_places() -> list[dict[str, Any]]:
    """The error of the output by what is rounded to 16 bits, 512 keys of width 64.

    Relative to the largest element; q, k and v are what the type can hold.
    """
    rows: list[dict[str, Any]] = [{"rounded": name} for name in ROUNDED]
    for name in ("bfloat16", "float16"):
        narrow = _rounder(name)
        q, k, v = (
            narrow(x) for x in _normal(10, (1, 1, 64, 64), *[(1, 1, 512, 64)] * 2)
        )
        exact = attention(q, k, v)
        for row, rounds in zip(rows, ROUNDED.values(), strict=True):
            got = narrow(_rounding(narrow, rounds, q, k, v))
            row[name] = float(np.abs(got - exact).max() / np.abs(exact).max())
            row[f"{name}_over"] = row[name] / rows[0][name]
    for row in rows:
        row["ratio"] = row["bfloat16"] / row["float16"]
    return rows


ROUNDED: dict[str, frozenset[str]] = {
    "nothing": frozenset(),
    "the weights, before their product": frozenset({"weights"}),
    "the scores, too": frozenset({"weights", "scores"}),
    "exponentials and their running sum": frozenset({"weights", "softmax"}),
    "the running sum of the output": frozenset({"weights", "output"}),
    "the running sums of the scores": frozenset({"weights", "scores", "dots"}),
}
"""What is rounded beside the result: kernels do the second, careless code the rest."""


def _rounder(name: str) -> Callable[[np.ndarray], np.ndarray]:
    """To the numbers of a type, in float64."""
    return lambda x: x.astype(ml_dtypes.finfo(name).dtype).astype(np.float64)


def _rounding(
    narrow: Callable[[np.ndarray], np.ndarray],
    rounds: frozenset[str],
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
) -> np.ndarray:
    """Attention in float64, where nothing is rounded on the way but what is said."""
    scores, k = q @ k.swapaxes(-1, -2), k.swapaxes(-1, -2)
    if "dots" in rounds:
        products = (q[..., [c]] * k[..., [c], :] for c in range(q.shape[-1]))
        scores = reduce(lambda total, x: narrow(total + x), products)
    x = scores * q.shape[-1] ** -0.5
    x = narrow(x) if "scores" in rounds else x
    p = np.exp(x - x.max(-1, keepdims=True))
    total = p.sum(-1, keepdims=True)
    if "softmax" in rounds:
        columns = (narrow(p[..., [j]]) for j in range(p.shape[-1]))
        total = reduce(lambda sum_, x: narrow(sum_ + x), columns)
    p = narrow(p) if "weights" in rounds else p
    if "output" in rounds:
        terms = (p[..., [j]] * v[..., [j], :] for j in range(p.shape[-1]))
        return reduce(lambda sum_, x: narrow(sum_ + x), terms) / total
    return p @ v / total


def loss_scaling() -> list[dict[str, float]]:
    """The error of dq in 16 bits by the size of what training sends back.

    Relative, in the norm.  Once as it comes, once times 2¹⁶ in float16, and dq divided
    by it in float32.
    """
    q, k, v, d_out = _normal(11, (1, 1, 64, 32), *[(1, 1, 128, 32)] * 2, (1, 1, 64, 32))
    rows = []
    for power in (-4, -8, -16, -20, -24):
        row: dict[str, float] = {"power": power}
        for name, factor in (("bfloat16", 1), ("float16", 1), ("scaled", 2.0**16)):
            dtype = ml_dtypes.finfo(
                "bfloat16" if name == "bfloat16" else "float16"
            ).dtype
            sent = (d_out * 2.0**power * factor).astype(dtype)
            dq = attention_vjp(sent, *(x.astype(dtype) for x in (q, k, v)))[0]
            exact = attention_vjp(
                d_out * 2.0**power, *(x.astype(dtype).astype(float) for x in (q, k, v))
            )[0]
            row[name] = _relative(dq.astype(np.float64) / factor, exact)
        rows.append(row)
    return rows


def overflow() -> dict[str, float]:
    """A dot product of ordinary numbers that float16 cannot hold."""
    q = np.full(64, 200, np.float16)
    with np.errstate(over="ignore"):
        return {
            "exact": float(q.astype(np.float64) @ q),
            "largest": float(np.finfo(np.float16).max),
            "is_infinite": float(np.isinf((q * q).sum(dtype=np.float16))),
        }


def vanishing() -> list[dict[str, float]]:
    """The gradient of a query's logits, its norm in the median row and the mean one."""
    rows = []
    for d in WIDTHS:
        q, k, v, d_out = _normal(
            d, (1, 1, 256, d), (1, 1, KEYS, d), (1, 1, KEYS, 8), (1, 1, 256, 8)
        )
        row: dict[str, float] = {"d": d}
        for name, factor in (("scaled", d**-0.5), ("raw", 1.0)):
            p = attention_steps(q, k, v, scale=factor).weights
            d_weights = d_out @ v.swapaxes(-1, -2)
            d_logits = p * (d_weights - (p * d_weights).sum(-1, keepdims=True))
            norms = np.linalg.norm(d_logits, axis=-1)
            row |= {f"median_{name}": np.median(norms), f"mean_{name}": norms.mean()}
        rows.append(row)
    return rows


def padding_waste() -> dict[str, float]:
    """Of batches of 8 sentences, how much is padding: as they come, and by length."""
    lengths = np.random.default_rng(7).integers(5, 129, 512)

    def padded(order: np.ndarray) -> float:
        batches = order.reshape(-1, 8)
        return float((8 * batches.max(1)).sum() / order.sum())

    def scores(order: np.ndarray) -> float:
        batches = order.reshape(-1, 8)
        return float((8 * batches.max(1) ** 2).sum() / (order**2).sum())

    return {
        "tokens_as_they_come": padded(lengths),
        "tokens_by_length": padded(np.sort(lengths)),
        "scores_as_they_come": scores(lengths),
        "scores_by_length": scores(np.sort(lengths)),
    }


def blocked() -> dict[str, float]:
    """The error in float32, whole, and in 8 blocks of 64 keys that are merged."""
    q, k, v = (x.astype(np.float32) for x in _normal(8, *[(1, 4, 512, 64)] * 3))
    exact = attention(*(x.astype(np.float64) for x in (q, k, v)))
    blocks = [slice(j, j + 64) for j in range(0, 512, 64)]
    parts = [attention_steps(q, k[:, :, b], v[:, :, b]) for b in blocks]
    shares, _ = softmax(np.stack([part.lse for part in parts], axis=-1))
    merged = sum(
        shares[..., [n]] * part.output for n, part in enumerate(parts)
    )  # each block by its share of the denominator
    whole = attention(q, k, v)
    return {
        "whole": float(np.abs(whole - exact).max()),
        "blocked": float(np.abs(merged - exact).max()),
        "apart": float(np.abs(merged - whole).max()),
    }


def rope() -> dict[str, float]:
    """Scores with the two layouts of rotary positions, and with one permuted."""
    (q, k) = _normal(9, (10, 16), (10, 16))
    angles = np.arange(10)[:, None] * 10000.0 ** (-np.arange(8) / 8)

    def turned(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        cos, sin = np.cos(angles), np.sin(angles)
        return a * cos - b * sin, b * cos + a * sin

    def halves(x: np.ndarray) -> np.ndarray:
        return np.concatenate(turned(x[:, :8], x[:, 8:]), -1)

    def pairs(x: np.ndarray) -> np.ndarray:
        return np.stack(turned(x[:, ::2], x[:, 1::2]), -1).reshape(x.shape)

    order = np.arange(16).reshape(2, 8).T.ravel()  # 0 8 1 9 …: halves as pairs
    want = halves(q) @ halves(k).T
    return {
        "mixed": _relative(pairs(q) @ pairs(k).T, want),
        "permuted": float(
            np.abs(pairs(q[:, order]) @ pairs(k[:, order]).T - want).max()
        ),
    }


def low_rank() -> list[dict[str, float]]:
    """How much of a head's weights a matrix of low rank does not hold."""
    rows: list[dict[str, float]] = [{"rank": rank} for rank in (1, 2, 4, 8)]
    for name in ("pronoun", "previous"):
        layer, head = sentence.HEADS[name]
        weights = sentence.results_of(layer).weights[0, head]
        values = np.linalg.svd(weights, compute_uv=False)
        for row in rows:
            kept = np.sum(values[: row["rank"]] ** 2) / np.sum(values**2)
            row[name] = float(np.sqrt(1 - min(kept, 1.0)))
    return rows


def sparse() -> dict[str, float]:
    """How many of the scores a causal window of 256 keys leaves, by length."""
    return {
        str(n): float((256 * n - 256 * 255 / 2) / (n * (n + 1) / 2))
        for n in (512, 4096, 32768)
    }


def memory() -> list[dict[str, float]]:
    """The scores' bytes in float32, by length: one head, and batch 32 with 8 heads."""
    return [
        {"length": n, "one": 4 * n**2 / 2**20, "batch": 32 * 8 * 4 * n**2 / 2**30}
        for n in (512, 2048, 8192, 32768)
    ]


def _normal(seed: int, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape) for shape in shapes]


def _shape(logits: np.ndarray) -> dict[str, float]:
    """How even the weights are, mean over the rows."""
    p, lse = softmax(logits)
    return {
        "top": float(p.max(-1).mean()),
        "entropy": float((lse - (p * logits).sum(-1)).mean()),
        "slope": float((p * (1 - p)).sum(-1).mean()),
    }


def _relative(got: np.ndarray, want: np.ndarray) -> float:
    return float(np.linalg.norm(got - want) / np.linalg.norm(want))


EXPERIMENTS = (
    scale_by_width,
    scale_of_the_model,
    fills,
    zero_after,
    heads_cost,
    one_projection,
    identity_values,
    no_positions,
    cache,
    head_order,
    softmax_in_16_bits,
    formats,
    rounding_places,
    loss_scaling,
    overflow,
    vanishing,
    padding_waste,
    blocked,
    rope,
    low_rank,
    sparse,
    memory,
)

"""Variants: how far the rooms are from their definitions, and what is shown of them.

The cases are those of the judge's smoke set, of every operation beside attention; the
rooms are measured on one or two of each.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import agreement
import numpy as np

from attncheck.case import DTYPES, FORWARD, Case
from attncheck.definition import Expected, expected
from attncheck.operations import OPERATIONS
from attncheck.subjects.attnref import room_subject
from attncheck.suite import operation_cases
from attncheck.variants import OPERATION_VARIANTS, Variant, backward
from attnref.numpy import attention, attention_steps
from attnref.numpy.variants import (
    LatentParams,
    alibi_attention,
    cosine_attention,
    latent_attention,
    rotary_attention,
    rotate,
    sink_attention,
)
from attnref.spec import alibi_slopes, causal, shaw_row, t5_bucket

Cells = dict[str, dict[str, dict[str, float]]]
"""Result → type → the greatest error, and the greatest share of a budget."""


MEASURED = {
    "rotary_attention": ("rotary-halves",),
    "shaw_attention": ("shaw-keys-and-values",),
    "t5_attention": ("t5-both-ways",),
    "alibi_attention": ("alibi-six-heads",),
    "sink_attention": ("sinks",),
    "additive_attention": ("additive",),
    "cosine_attention": ("cosine",),
    "latent_attention": ("latent", "latent-absorbed"),
    "linear_attention": ("linear", "linear-causal"),
    "performer_attention": ("performer", "performer-causal"),
    "linformer_attention": ("linformer",),
    "nystrom_attention": ("nystrom",),
}
"""Operation → the cases in which every room is measured."""


def measure(room: str, dtypes: Sequence[str] = tuple(DTYPES)) -> dict[str, Cells]:
    """Operation → how far a room is from its definition, in the measured cases.

    All gradients together are one result.

    Raises:
        AssertionError: the room is not within its budget.
    """
    subject = room_subject(room)
    found: dict[str, Cells] = {name: {} for name in OPERATIONS}
    cases = operation_cases("smoke", dtypes)
    for case in (c for c in cases if c.id.split("/")[0] in MEASURED[c.op]):
        for name, cell in agreement.judged(subject, case).items():
            result = name if name in ("output", "lse") else "gradients"
            kept = found[case.op].setdefault(result, {}).setdefault(case.dtype, cell)
            for number in cell:
                kept[number] = max(kept[number], cell[number])
    return found


def counts() -> dict[str, int]:
    """Operation → how many cases it has in a type."""
    cases = operation_cases("smoke", ["F32"])
    return {name: sum(case.op == name for case in cases) for name in OPERATIONS}


Mistakes = dict[str, dict[str, dict[str, Any]]]
"""Operation → name → sentence, effect, and the case in which that is greatest."""


def mistakes() -> Mistakes:
    """The known mistakes, and the most that each changes.

    Of the output the relative error, of the log-sum-exp the difference.
    """
    return _effects([v for v in _known() if v not in GRADIENTS], _mistake)


def gradient_mistakes() -> Mistakes:
    """Those that only gradients show: the relative error of one."""
    return _effects(GRADIENTS, _gradient_mistake)


def _known() -> list[Variant]:
    return [variant for variant in OPERATION_VARIANTS if not variant.rounds]


GRADIENTS = [v for v in _known() if v.model.__module__ == backward.__name__]


def _effects(variants: Sequence[Variant], measured: Callable) -> Mistakes:
    pairs = [(case, expected(case)) for case in operation_cases("smoke", ["F32"])]
    return {
        name: {
            v.name: {"sentence": v.sentence}
            | measured(v, [pair for pair in pairs if pair[0].op == name])
            for v in some
        }
        for name in OPERATIONS
        if (some := [v for v in variants if v.model.op == name])
    }


def _mistake(
    variant: Variant, pairs: Iterable[tuple[Case, Expected]]
) -> dict[str, Any]:
    effects = {case.id: _effect(variant, case, want) for case, want in pairs}
    worst = max(effects, key=lambda name: [*np.nan_to_num(effects[name], nan=np.inf)])
    return {
        "output": _shown(effects[worst][0]),
        "lse": _shown(np.max([lse for _, lse in effects.values()])),
        "case": worst.split("/")[0],
    }


def _shown(change: float) -> float | str:
    if np.isnan(change):
        return "NaN"
    return round(float(change), 6) if np.isfinite(change) else "∞"


def _effect(variant: Variant, case: Case, want: Expected) -> tuple[float, float]:
    wrong = variant.results(case)
    output = round(_relative(wrong["output"], want.output), 9)  # no rounding errors
    if "lse" not in case.wants:
        return output, 0.0
    apart = wrong["lse"] != want.lse  # −∞ is equal to −∞
    return output, float(np.abs(wrong["lse"][apart] - want.lse[apart]).max(initial=0))


NOTHING = 1e-9
"""What is no larger is 0 but for rounding: a share of it says nothing."""


def _gradient_mistake(
    variant: Variant, pairs: Iterable[tuple[Case, Expected]]
) -> dict[str, Any]:
    effects = {}
    for case, want in pairs:
        wrong = variant.results(case)
        for name in (n for n in case.wants if n not in FORWARD):
            right = getattr(want, name)
            if np.abs(right).max() > NOTHING:
                effects[case.id, name] = round(_relative(wrong[name], right), 9)
    case_id, result = max(effects, key=lambda place: effects[place])
    return {
        "error": round(effects[case_id, result], 6),
        "result": result,
        "case": case_id.split("/")[0],
    }


def shown() -> dict[str, Any]:
    """What the pages draw, and answer questions with, all of it in float64."""
    return {experiment.__name__: experiment() for experiment in EXPERIMENTS}


def turns() -> list[dict[str, float]]:
    """How far some pairs of a width of 64 turn in a step, and how long a turn takes."""
    thetas = 10000.0 ** (-np.arange(32) / 32)
    return [
        {"pair": t, "theta": thetas[t], "turn": 2 * np.pi / thetas[t]}
        for t in (0, 1, 8, 16, 24, 31)
    ]


def products() -> list[dict[str, float]]:
    """A product of two vectors of ones that have turned, by how far apart they are.

    Over the width, 64, so that it is 1 at distance 0.
    """
    distances = np.unique(np.geomspace(1, 4096, 120).round().astype(int))
    ones = np.ones((1, 1, len(distances), 64))
    rows = [{"distance": int(distance)} for distance in distances]
    for name, base in (("short", 10000.0), ("long", 500000.0)):
        far = rotate(ones, distances, base=base)
        for row, product in zip(rows, far.sum(-1)[0, 0] / 64, strict=True):
            row[name] = float(product)
    return rows


def rotary() -> dict[str, float]:
    """What does not change when all positions move, and what does when one does not."""
    q, k, v = _normal(0)
    at_0, _ = rotary_attention(q, k, v)
    moved = [rotate(x, np.arange(10) + 1000) for x in (q, k)]
    last = causal(offset=9)
    whole, _ = rotary_attention(q, k, v, mask=causal())
    step, _ = rotary_attention(q[:, :, 9:], k, v, mask=last, offset=9)
    wrong, _ = rotary_attention(q[:, :, 9:], k, v, mask=last)
    narrow = rotate(q.astype(np.float32), np.arange(10) + 100000)
    return {
        "moved": float(np.abs(attention(*moved, v) - at_0).max()),
        "step": float(np.abs(step - whole[:, :, 9:]).max()),
        "step_at_0": _relative(wrong, whole[:, :, 9:]),
        "float32_far": _relative(narrow, rotate(q, np.arange(10) + 100000)),
    }


def shaw_rows() -> list[list[int]]:
    """The rows of a table of five for eight queries and keys."""
    i, j = np.ogrid[:8, :8]
    return shaw_row(j - i, 2).tolist()


def t5_buckets() -> list[dict[str, int]]:
    """The buckets of keys before and after the query, of 32 and up to 128."""
    return [
        {
            "distance": distance,
            "before": t5_bucket(-distance, 32, 128, True),
            "after": t5_bucket(distance, 32, 128, True),
            "causal": t5_bucket(-distance, 32, 128, False),
        }
        for distance in range(1, 161)
    ]


def t5_far() -> dict[str, int]:
    """The distance from which on all keys share the last bucket."""
    every = range(2000)
    return {
        "both": min(x for x in every if t5_bucket(-x, 32, 128, True) == 15),
        "causal": min(x for x in every if t5_bucket(-x, 32, 128, False) == 31),
    }


def alibi_bias() -> list[list[float]]:
    """The bias of the head whose slope is 1/2, for eight queries and keys."""
    i, j = np.ogrid[:8, :8]
    return (0.0 - 0.5 * abs(j - i)).tolist()  # 0, not −0


def slopes() -> list[dict[str, float]]:
    """The slopes of twelve heads: the published rule's, and a plain series."""
    return [
        {"head": k, "slope": slope, "plain": 2 ** (-8 * k / 12)}
        for k, slope in enumerate(alibi_slopes(12), 1)
    ]


def alibi_weights() -> list[dict[str, float]]:
    """How far back a head looks: equal scores, the last of 1024 queries, 8 heads."""
    nothing = np.zeros((1, 8, 1, 1))
    keys, far = np.zeros((1, 8, 1024, 1)), np.arange(1023, -1, -1.0)
    values = np.broadcast_to(far[:, None], keys.shape)
    mean, _ = alibi_attention(nothing, keys, values, offset=1023)
    itself, _ = alibi_attention(nothing, keys, (values == 0) * 1.0, offset=1023)
    return [
        {"head": k, "slope": slope, "distance": float(d), "itself": float(w)}
        for k, (slope, d, w) in enumerate(
            zip(alibi_slopes(8), mean[0, :, 0, 0], itself[0, :, 0, 0], strict=True), 1
        )
    ]


def sinks() -> list[dict[str, float]]:
    """What a sink leaves of the weights of normal scores on ten keys."""
    q, k, _ = _normal(1)
    ones = np.ones((1, 4, 10, 1))
    rows = []
    for sink in (-4.0, -2.0, 0.0, 2.0, 4.0, 8.0):
        left, lse = sink_attention(q, k, ones, sinks=np.full(4, sink))
        rows.append(
            {
                "sink": sink,
                "least": float(left.min()),
                "mean": float(left.mean()),
                "greatest": float(left.max()),
                "lse": float(lse.mean()),
            }
        )
    return rows


def sink_afterwards() -> dict[str, float]:
    """Plain attention times 1 / (1 + e^(sink − lse)) is attention with the sink."""
    q, k, v = _normal(1)
    sinks = np.array([-1.0, 0.0, 1.0, 2.0])
    want, _ = sink_attention(q, k, v, sinks=sinks)
    steps = attention_steps(q, k, v)
    rows = {}
    for name, base in (("natural", 1.0), ("base_2", np.log(2))):
        left = 1 / (1 + np.exp(sinks[:, None] - steps.lse / base))
        rows[name] = _relative(steps.output * left[..., None], want)
    return rows


def cosines() -> list[dict[str, float]]:
    """The largest logit, and the entropy of weights, of vectors of several sizes."""
    q, k, _ = _normal(2)
    rows = []
    for size in (0.1, 1.0, 10.0, 100.0):
        plain = attention_steps(size * q, size * k, k)
        unit = [x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (q, k)]
        cosine = attention_steps(*unit, k, scale=10.0)
        _, lse = cosine_attention(size * q, size * k, k)
        rows.append(
            {
                "size": size,
                "dot": float(np.abs(plain.logits).max()),
                "dot_entropy": _entropy(plain.weights),
                "cosine": float(np.abs(cosine.logits).max()),
                "cosine_entropy": _entropy(cosine.weights),
                "apart": float(np.abs(lse - cosine.lse).max()),
            }
        )
    return rows


def hidden() -> list[dict[str, float]]:
    """What additive scores form for one head of width 64: float32, a = 64."""
    return [
        {
            "length": n,
            "tanh": 64 * n * n,
            "hidden": 4 * 64 * n * n / 2**20,
            "scores": 4 * n * n / 2**20,
        }
        for n in (128, 512, 2048)
    ]


V2 = {"n": 128, "d": 128, "p": 64, "e": 128, "r": 512}
"""The sizes of DeepSeek-V2 (arXiv 2405.04434, section 3.1.2)."""


def latent() -> dict[str, Any]:
    """What is kept of a position, what either form multiplies, how far apart they are.

    Products of one head and query with 4096 keys, the last token's and all tokens'.
    """
    n, d, p, e, r = (V2[axis] for axis in "ndper")
    keys, width = 4096, r + p
    rows = []
    for name, queries in (("one query", 1), ("4096 queries", 4096)):
        plain = keys * r * (d + e) + queries * keys * (d + p + e)
        absorbed = queries * r * (d + e) + queries * keys * (width + r)
        rows.append(
            {
                "name": name,
                "plain": plain,
                "absorbed": absorbed,
                "ratio": plain / absorbed,
            }
        )
    kept = {"heads": n * (d + e), "latent": width, "ratio": n * (d + e) / width}
    return {"kept": kept, "products": rows, "apart": _apart()}


def _apart() -> dict[str, float]:
    """The greatest difference of both forms over the greatest output, by type."""
    rng = np.random.default_rng(3)
    shapes = [(32, 4, 8), (32, 4, 4), (32, 4), (32, 16), (16, 4, 8), (16, 4, 8)]
    weights = [rng.standard_normal(s) / s[0] ** 0.5 for s in [*shapes, (4, 8, 32)]]
    x = rng.standard_normal((1, 64, 32))
    found = {}
    for name in ("float64", "float32"):
        params = LatentParams(*(w.astype(name) for w in weights))
        plain, absorbed = (
            latent_attention(params, x.astype(name), mask=causal(), absorbed=a)
            for a in (False, True)
        )
        found[name] = float(np.abs(plain - absorbed).max() / np.abs(plain).max())
    return found


def _normal(seed: int) -> tuple[np.ndarray, ...]:
    """q, k and v of four heads, ten tokens and width 16, normal."""
    return tuple(np.random.default_rng(seed).standard_normal((3, 1, 4, 10, 16)))


def _entropy(weights: np.ndarray) -> float:
    logs = np.log(np.where(weights > 0, weights, 1))
    return float(-(weights * logs).sum(-1).mean())


def _relative(got: np.ndarray, want: np.ndarray) -> float:
    return float(np.linalg.norm(got - want) / np.linalg.norm(want))


EXPERIMENTS: Sequence[Any] = (
    turns,
    products,
    rotary,
    shaw_rows,
    t5_buckets,
    t5_far,
    alibi_bias,
    slopes,
    alibi_weights,
    sinks,
    sink_afterwards,
    cosines,
    hidden,
    latent,
)


def evidence(rooms: Mapping[str, Any]) -> dict[str, Any]:
    """All of it, beside what the rooms gave."""
    return {
        "profile": "strict",
        "measured": MEASURED,
        "cases": counts(),
        "rooms": rooms,
        "mistakes": mistakes(),
        "gradient_mistakes": gradient_mistakes(),
        "shown": shown(),
    }

"""Approximations and sparse patterns against exact attention: error beside cost.

Real heads are all those of MiniLM on the first tokens of the project's licence; random
ones are of normal numbers.  Nothing is trained for an approximation: this is what
replacing attention costs a model that does not know of it.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import text

from attncheck import minilm
from attnref.numpy import attention
from attnref.numpy.variants import (
    linear_attention,
    linformer_attention,
    nystrom_attention,
    performer_attention,
)
from attnref.spec import (
    Mask,
    block_local,
    causal,
    dilated_window,
    fixed,
    global_positions,
    listed_blocks,
    strided,
    window,
)

LENGTH, WIDTH = 256, 32
TILE = 16
"""Positions of a block: what blocked code visits is counted in such blocks."""

DRAWS = (16, 32, 64, 128, 256)

Heads = Mapping[str, np.ndarray]


class Way(NamedTuple):
    """One way to replace exact attention, at one size."""

    family: str
    size: str
    """What is large or small about it, in words."""
    output: Callable[[Heads], np.ndarray]
    operations: float
    """Of the products of one head, a multiplication and an addition each."""
    numbers: float
    """Between the products of one head: weights, features, or sums of them."""
    is_causal: bool = False
    """Whether exact attention is causal too."""


def measure() -> dict[str, Any]:
    """Both kinds of heads through every way, and how the error of features falls."""
    return {
        "length": LENGTH,
        "width": WIDTH,
        "tile": TILE,
        "exact": {"operations": _exact(LENGTH**2), "numbers": LENGTH**2},
        "real": _measured(real()),
        "random": _measured(drawn()),
        "slope": slope(),
        "rank": rank(),
    }


@cache
def real() -> Heads:
    """All heads of all layers, as one layer's: `1 n i d`, n = 72."""
    found: list[Heads] = []

    def record(params, x, mask):
        found.append(minilm.project(params, x))
        return minilm.exact_attention(params, x, mask)

    minilm.encode(record, text.licence(LENGTH))
    return {x: np.concatenate([layer[x] for layer in found], 1) for x in "qkv"}


@cache
def drawn() -> Heads:
    """Twelve heads of normal numbers."""
    rng = np.random.default_rng(0)
    return {x: rng.standard_normal((1, 12, LENGTH, WIDTH)) for x in "qkv"}


def slope() -> dict[str, Any]:
    """Performer's error by the number of features, over 8 sets of draws, and its slope.

    On random heads of a quarter of the size: the variance of an estimated weight grows
    with e^(|q + k|²·scale), and only where it is small do so few features show the law.
    """
    heads = {x: y[:, :4] / 4 for x, y in drawn().items()}
    exact = attention(*heads.values())
    rows = []
    for count in DRAWS:
        found = [performed(heads, count, seed) for seed in range(8)]
        error = np.sqrt(np.mean([_error(x, exact) ** 2 for x in found]))
        rows.append({"features": count, "error": float(error)})
    logs = [np.log([row[x] for row in rows]) for x in ("features", "error")]
    return {"rows": rows, "slope": float(np.polyfit(*logs, 1)[0])}


def rank() -> dict[str, float]:
    """The laws: at full rank, or with all keys as landmarks, it is exact attention."""
    heads = {x: y[:, :4] * 2 for x, y in drawn().items()}
    exact = attention(*heads.values())
    whole, _ = linformer_attention(*heads.values(), w_e=np.eye(LENGTH))
    landmarks = nystrom_attention(*heads.values(), landmarks=LENGTH)
    return {
        "linformer": float(np.abs(whole - exact).max()),
        "nystrom": float(np.abs(landmarks - exact).max()),
    }


def performed(heads: Heads, count: int, seed: int) -> np.ndarray:
    """Performer's output with so many normal draws."""
    draws = np.random.default_rng(100 + seed).standard_normal((count, WIDTH))
    return performer_attention(*heads.values(), draws=draws)[0]


def ways() -> Iterator[Way]:
    """Every way, the cheap ones of a family first."""
    yield from _low_rank()
    yield from _kernels()
    yield from _sparse()


def _low_rank() -> Iterator[Way]:
    n, d = LENGTH, WIDTH
    for r in (8, 16, 32, 64, 128):
        draws = np.random.default_rng(r).standard_normal((n, r)) / r**0.5
        means = np.repeat(np.eye(r), n // r, axis=0) * r / n
        for family, w in (("Linformer, random", draws), ("Linformer, means", means)):
            yield Way(
                family,
                f"r = {r}",
                _combined(w),
                2 * 2 * n * r * d + _exact(n * r),
                n * r,
            )
    for m in (8, 16, 32, 64):
        operations = _exact(2 * n * m) + _exact(m * m) + 22 * m**3
        yield Way("Nyström", f"r = {m}", _landmarked(m), operations, 2 * n * m + m * m)


def _kernels() -> Iterator[Way]:
    n, d = LENGTH, WIDTH
    sums = d * (d + 1)
    yield Way("elu + 1", f"r = {d}", _linear, 4 * n * sums, 2 * n * d + sums)
    for r in DRAWS:
        operations = 4 * n * r * d + 4 * n * r * (d + 1)
        numbers = 2 * n * r + r * (d + 1)
        yield Way("Performer", f"r = {r}", _performer(r), operations, numbers)


def _sparse() -> Iterator[Way]:
    rng = np.random.default_rng(3)
    for size in (16, 32, 64, 128):
        yield _masked("window", f"± {size // 2}", window(size // 2, size // 2))
    for size in (16, 32, 64, 128):
        yield _masked("block-local", f"blocks of {size}", block_local(size))
    for size in (8, 16, 32):
        dilated = dilated_window(size, size, 2)
        yield _masked("dilated", f"± {size} · 2", dilated)
    for size in (16, 32, 64):
        longformer = window(size // 2, size // 2) | global_positions([0])
        yield _masked("Longformer", f"± {size // 2}, 1 global", longformer)
    for size, listed in product((16,), (1, 2, 4)):
        blocks = [rng.permutation(LENGTH // size)[:listed].tolist() for _ in range(16)]
        near = block_local(size, 1, 1) | global_positions([0])
        big_bird = near | listed_blocks(blocks, size)
        yield _masked("Big Bird", f"{listed} random blocks", big_bird)
    for stride in (8, 16, 32):
        yield _masked("strided", f"l = {stride}", strided(stride), is_causal=True)
    for length, summary in ((16, 2), (32, 4), (64, 8)):
        pattern = fixed(length, summary)
        yield _masked("fixed", f"l = {length}, c = {summary}", pattern, is_causal=True)


def _masked(family: str, size: str, mask: Mask, is_causal: bool = False) -> Way:
    visited = _visited(mask)

    def output(heads: Heads) -> np.ndarray:
        return attention(*heads.values(), mask=mask)

    return Way(family, size, output, _exact(visited), visited, is_causal)


def _visited(mask: Mask) -> int:
    """Entries of the blocks that the mask does not empty."""
    starts = range(0, LENGTH, TILE)
    claims = [mask.block(i, i + TILE, j, j + TILE) for i, j in product(starts, starts)]
    return TILE**2 * (len(claims) - claims.count("empty"))


def _exact(entries: int) -> int:
    """Operations of attention that computes so many entries of the weights."""
    return 4 * entries * WIDTH


def _combined(w: np.ndarray) -> Callable[[Heads], np.ndarray]:
    return lambda heads: linformer_attention(*heads.values(), w_e=w)[0]


def _landmarked(count: int) -> Callable[[Heads], np.ndarray]:
    return lambda heads: nystrom_attention(*heads.values(), landmarks=count)


def _performer(count: int) -> Callable[[Heads], np.ndarray]:
    return lambda heads: performed(heads, count, 0)


def _linear(heads: Heads) -> np.ndarray:
    return linear_attention(*heads.values())[0]


def _measured(heads: Heads) -> dict[str, list[dict[str, Any]]]:
    """Family → its sizes, each with costs as shares of the exact ones, and errors."""
    exact = {
        is_causal: attention(*heads.values(), mask=causal() if is_causal else None)
        for is_causal in (False, True)
    }
    whole = {False: LENGTH**2, True: _visited(causal())}
    found: dict[str, list[dict[str, Any]]] = {}
    for way in ways():
        errors = _error(way.output(heads), exact[way.is_causal])
        low, middle, high = np.quantile(errors, (0.1, 0.5, 0.9))
        found.setdefault(way.family, []).append(
            {
                "size": way.size,
                "operations": way.operations / _exact(whole[way.is_causal]),
                "numbers": way.numbers / whole[way.is_causal],
                "error": float(middle),
                "low": float(low),
                "high": float(high),
            }
        )
    return found


def _error(got: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """The norm of the difference over that of the exact output, for each head."""
    norms = [np.linalg.norm(x, axis=(-2, -1)) for x in (got - exact, exact)]
    return (norms[0] / norms[1])[0]

"""Approximations of attention, each defined in float64, and how much error is legal.

A definition is of the approximation itself: what a room computes by sums of features,
prefix sums or an inverse is here a whole matrix of weights, row by row.  The bound is a
forward error analysis in the standard model, fl(a∘b) = (a∘b)(1 + ε) with |ε| ≤ u; it is
derived in `docs/variants/approximations.md`.

    γ_n = n·u / (1 − n·u)        any order of a sum of n terms
    A ≤ A⁺                       the weights, and the most that they may come out as

Arrays are `b n i d`, `b h j d`, `b h j e`, as of attention.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

Array = np.ndarray

EXP = 4
"""Roundings of an exponential or a logarithm: two units in the last place."""

TINY = 2.0**-126
"""What an accumulator may flush to 0; in float64 it is far below, and no less legal."""

SVD = 8
"""Backward error of singular values, in units of r·u times the largest: measured on
the rooms' pseudo-inverse, not derived (LAPACK promises a modest function of r)."""


class Approximation(NamedTuple):
    """What is expected, and how far from it a result may lie before its rounding."""

    output: Array
    """`b n i e`."""
    bound: Array
    """`b n i e`; infinite where nothing can be said."""
    lse: Array | None = None
    """`b n i`, the log of the denominator, where there is one."""
    lse_bound: Array | None = None


def gamma(n: int, u: float) -> float:
    """The relative error of a sum of n products, in any order."""
    return n * u / (1 - n * u)


def linear(
    q: Array,
    k: Array,
    v: Array,
    *,
    u: float,
    feature: str | Callable[[Array], Array] = "elu+1",
    seen: Array | None = None,
) -> Approximation:
    """Weights φ(q)·φ(k) over their sum.

    Args:
        u: the unit roundoff of the accumulation type.
        feature: as of the rooms; a callable's own results count as five roundings too.
        seen: boolean, broadcast to `b n i j`.
    """
    q, k, v = _wide(q, k, v)
    features_q, features_k = _mapped(q, feature), _mapped(k, feature)
    weights = np.einsum("bnir,bnjr->bnij", features_q, features_k)
    most = weights * (1 + (EXP + 1) * u) ** 2
    return _quotient(weights, most, v, seen, u, features_q.shape[-1])


def performer(
    q: Array,
    k: Array,
    v: Array,
    *,
    u: float,
    draws: Array,
    scale: float | None = None,
    seen: Array | None = None,
) -> Approximation:
    """Weights that are means of products of positive random features."""
    q, k, v = _wide(q, k, v)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    draws = draws.astype(np.float64)
    logs_q, error_q = _drawn(q, draws, scale, u)
    logs_k, error_k = _drawn(k, draws, scale, u)
    if seen is not None:  # keys that no query sees are in no maximum
        full = np.broadcast_to(seen, (*q.shape[:3], k.shape[2]))
        anyone = np.logical_or.reduce(full, axis=2)
        logs_k = np.where(anyone[..., None], logs_k, -np.inf)
    top_q, top_k = _top(logs_q, -1), _top(logs_k, (-2, -1))
    # Taking the maximum off rounds once more, relative to both.
    error_q += u * (abs(logs_q) + abs(top_q))
    error_k += u * (np.where(np.isfinite(logs_k), abs(logs_k), 0) + abs(top_k))
    features = [np.exp(logs_q - top_q), np.exp(logs_k - top_k)]
    most = [
        feature * np.exp(error) * (1 + EXP * u) + TINY
        for feature, error in zip(features, (error_q, error_k), strict=True)
    ]
    found = _quotient(
        np.einsum("bnir,bnjr->bnij", *features),
        np.einsum("bnir,bnjr->bnij", *most),
        v,
        seen,
        u,
        len(draws),
    )
    assert found.lse is not None
    assert found.lse_bound is not None
    shifts = (top_q + top_k)[..., 0]
    rounded = 3 * u * (abs(top_q) + abs(top_k))[..., 0] + 4 * u * np.log(len(draws))
    return found._replace(
        lse=found.lse + shifts - np.log(len(draws)),
        lse_bound=found.lse_bound + rounded + 3 * u * _finite(abs(found.lse)),
    )


def linformer(
    q: Array,
    k: Array,
    v: Array,
    *,
    u: float,
    w_e: Array,
    w_f: Array,
    scale: float | None = None,
    seen: Array | None = None,
) -> Approximation:
    """Attention to combinations of keys; `seen` is `b j`: which keys there are."""
    q, k, v = _wide(q, k, v)
    w_e, w_f = _wide(w_e, w_f)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    seen = np.ones((len(k), k.shape[2]), bool) if seen is None else seen
    k, v = (np.where(seen[:, None, :, None], x, 0) for x in (k, v))
    keys, error_k = _combined(k, w_e, u)
    values, error_v = _combined(v, w_f, u)
    logits, error = _logits(q, keys, 0, error_k, scale, u)
    found = _softmax(logits, error, values, u, error_v)
    gone = ~np.logical_or.reduce(seen, axis=-1)[:, None, None]
    assert found.lse is not None
    return found._replace(
        output=np.where(gone[..., None], 0, found.output),
        bound=np.where(gone[..., None], 0, found.bound),
        lse=np.where(gone, -np.inf, found.lse),
    )


def nystrom(
    q: Array,
    k: Array,
    v: Array,
    *,
    u: float,
    landmarks: int,
    scale: float | None = None,
) -> Approximation:
    """softmax(q·k̃ᵀ)·softmax(q̃·k̃ᵀ)⁻¹·softmax(q̃·kᵀ)·v; infinite bounds where it has none.

    Its middle matrix must be invertible with room to spare: the bound is infinite if
    its inverse could be another one under the error that it is computed with.
    """
    q, k, v = _wide(q, k, v)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    (few_q, error_q), (few_k, error_k) = (_means(x, landmarks, u) for x in (q, k))
    identity = np.broadcast_to(np.eye(landmarks), (*q.shape[:2], landmarks, landmarks))
    first = _softmax(*_logits(q, few_k, 0, error_k, scale, u), identity, u)
    core = _softmax(*_logits(few_q, few_k, error_q, error_k, scale, u), identity, u)
    last = _softmax(*_logits(few_q, k, error_q, 0, scale, u), v, u)

    inverse = np.linalg.inv(core.output)
    size = np.linalg.norm(inverse, 2, axis=(-2, -1))[..., None, None]
    largest = np.linalg.norm(core.output, 2, axis=(-2, -1))[..., None, None]
    norms = np.linalg.norm(core.bound, axis=(-2, -1))[..., None, None]
    backward = norms + SVD * landmarks * u * largest
    with np.errstate(divide="ignore", invalid="ignore"):
        moved = size**2 * backward / (1 - size * backward) + SVD * landmarks * u * size
    moved = np.where(2 * size * backward < 1, moved, np.inf)

    most_first, most_last = first.output + first.bound, abs(last.output) + last.bound
    product = inverse @ last.output
    error = first.bound @ abs(product) + most_first @ (abs(inverse) @ last.bound)
    # What moves of the inverse is known by its norm only.
    lengths = np.linalg.norm(most_first, axis=-1)[..., None]
    columns = np.linalg.norm(most_last, axis=-2)[..., None, :]
    error = error + moved * lengths * columns
    sums = gamma(2 * landmarks + 2, u) * (
        most_first @ (abs(inverse) @ most_last) + moved * lengths * columns
    )
    return Approximation(first.output @ product, error + sums)


def _softmax(
    logits: Array, error: Array, values: Array, u: float, moved: Array | float = 0.0
) -> Approximation:
    """Softmax of logits that are wrong by `error`, over values wrong by `moved`."""
    top = _top(logits, -1)
    least = logits - top
    # What is taken off cancels, but rounds once.
    error = error + u * (abs(logits) + abs(top) + 2 * error)
    weights = np.exp(least)
    most = weights * np.exp(error) * (1 + EXP * u) + TINY
    found = _quotient(weights, most, values, None, u, 0, moved)
    assert found.lse is not None
    assert found.lse_bound is not None
    slack = 2 * u * (abs(top)[..., 0] + _finite(abs(found.lse)))
    return found._replace(
        lse=found.lse + top[..., 0], lse_bound=found.lse_bound + slack
    )


def _quotient(
    weights: Array,
    most: Array,
    v: Array,
    seen: Array | None,
    u: float,
    r: int,
    moved: Array | float = 0.0,
) -> Approximation:
    """Σ_j A_ij v_j / Σ_j A_ij, of weights that come out as `most` at most.

    Sums have j terms, and before that r, and each term two products and a rounding.
    """
    seen = np.broadcast_to(True if seen is None else seen, weights.shape)
    weights, most = (np.where(seen, x, 0.0) for x in (weights, most))
    excess = most * (1 + gamma(weights.shape[-1] + r + 3, u)) - weights
    total = weights.sum(axis=-1, keepdims=True)
    is_empty = total == 0
    safe = np.where(is_empty, 1, total)
    output = np.where(is_empty, 0, weights @ v / safe)
    wrong, wrong_total = excess @ abs(v), excess.sum(axis=-1, keepdims=True)
    wrong = wrong + (weights + excess) @ (np.zeros_like(v) + moved)
    left = total - wrong_total
    with np.errstate(divide="ignore", invalid="ignore"):
        bound = (wrong + abs(output) * wrong_total) / left
        bound = bound + u * (abs(output) + bound)
        relative = np.log1p(wrong_total / left)
    is_known = is_empty | (left > 0)
    lse = np.where(is_empty, -np.inf, np.log(safe))
    lse_bound = relative + EXP * u * abs(np.log(safe))
    return Approximation(
        output,
        np.where(is_empty, 0, np.where(is_known, bound, np.inf)),
        lse[..., 0],
        np.where(is_empty, 0, np.where(is_known, lse_bound, np.inf))[..., 0],
    )


def _wide(*arrays: Array) -> list[Array]:
    """In float64, and keys and values as many times as their query heads need."""
    arrays = tuple(x.astype(np.float64) for x in arrays)
    if len(arrays) < 3:
        return list(arrays)
    q, k, v = arrays
    g = q.shape[1] // k.shape[1]
    return [q, k.repeat(g, axis=1), v.repeat(g, axis=1)]


def _mapped(x: Array, feature: str | Callable[[Array], Array]) -> Array:
    if callable(feature):
        return feature(x)
    if feature == "relu":
        return np.maximum(x, 0)
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))


def _drawn(x: Array, draws: Array, scale: float, u: float) -> tuple[Array, Array]:
    """ln φ(x), and its error: the scaling rounds twice, each sum as it is long."""
    x = x * scale**0.5
    products = np.einsum("bnid,rd->bnir", x, draws)
    halves = (x * x).sum(axis=-1, keepdims=True) / 2
    largest = np.einsum("bnid,rd->bnir", abs(x), abs(draws)) + halves
    return products - halves, gamma(x.shape[-1] + 6, u) * largest


def _combined(x: Array, w: Array, u: float) -> tuple[Array, Array]:
    error = gamma(x.shape[2], u) * np.einsum("bnjx,jr->bnrx", abs(x), abs(w))
    return np.einsum("bnjx,jr->bnrx", x, w), error


def _means(x: Array, count: int, u: float) -> tuple[Array, Array]:
    b, n, length, d = x.shape
    parts = x.reshape(b, n, count, length // count, d)
    return parts.mean(axis=3), gamma(length // count + 1, u) * abs(parts).mean(axis=3)


def _logits(
    q: Array, k: Array, wrong_q: Array | float, wrong_k: Array | float, scale, u: float
) -> tuple[Array, Array]:
    """Scaled products of queries and keys that are wrong themselves."""
    most_q, most_k = abs(q) + wrong_q, abs(k) + wrong_k
    wrong_q, wrong_k = np.zeros_like(q) + wrong_q, np.zeros_like(k) + wrong_k
    flip = (0, 1, 3, 2)
    error = wrong_q @ most_k.transpose(flip) + abs(q) @ wrong_k.transpose(flip)
    error = error + gamma(q.shape[-1] + 2, u) * (most_q @ most_k.transpose(flip))
    return scale * (q @ k.transpose(flip)), abs(scale) * error


def _top(x: Array, axis) -> Array:
    top = x.max(axis=axis, keepdims=True, initial=-np.inf)
    return np.where(np.isfinite(top), top, 0)


def _finite(x: Array) -> Array:
    return np.where(np.isfinite(x), x, 0)

"""Attention in blocks, so that the matrix over (i, j) is never whole in memory.

Queries and keys are cut into blocks.  The logits of one block of queries and one block
of keys are a *tile*; tiles that the mask empties are skipped, and those that it leaves
whole are not masked.  The tiles of a block of queries come one after the other, and
what is known of its rows so far are three running numbers: with S the tile,

    m' = max(m, max_j S_ij)                the running maximum, −∞ at first
    a  = e^(m − m')                        the rescaling of all that came before
    l' = a·l + Σ_j e^(S_ij − m')           the running total, 0 at first
    o' = a·o + Σ_j e^(S_ij − m')·v_j       the running sum, 0 at first

At the end the output is o / l and the log-sum-exp is m + ln l.  The gradients need no
weights in memory either: P_ij = e^(S_ij − lse_i) is computed anew, tile by tile.

Source: Milakov and Gimelshein, Online normalizer calculation for softmax (arXiv
1805.02867); Rabe and Staats, Self-attention does not need O(n²) memory (arXiv
2112.05682); Dao et al., FlashAttention (arXiv 2205.14135).
"""

from itertools import product
from typing import Any, NamedTuple

import numpy as np

from attnref.spec import patterns
from attnref.spec.checks import (
    check_attention,
    check_blocks,
    check_gradients,
    check_mask,
    check_parts,
    dtype_name,
)
from attnref.spec.masks import Mask, extent

from .attend import apply_dropout
from .gradients import _softcap_slope, _sum_to
from .mask import apply_mask, forget_blocked
from .scores import accumulate, add_bias, apply_scale, apply_softcap
from .threads import in_threads

BLOCK_Q = 512
BLOCK_K = 512
"""A float32 tile of 1 MiB: the products are large enough to run at their full rate, and
what is done to a tile between them still finds most of it in the cache.  Square, so
that a causal mask visits few tiles that it half empties."""


def attention_blocked(
    q,
    k,
    v,
    *,
    mask=None,
    bias=None,
    scale=None,
    softcap=None,
    dropout_rate=0.0,
    dropout_keep=None,
    block_q=BLOCK_Q,
    block_k=BLOCK_K,
):
    """`attention` in memory of the size of a block, beyond its arguments and results.

    Args:
        block_q: how many queries a block has, at least 1; the last one may have fewer.
        block_k: how many keys a block has, likewise.

    The other arguments, and the errors, are those of `attention`.  A mask that is a
    predicate is only ever asked about a tile.

    Returns:
        the output `b n i e`, in the dtype of the inputs, rounded once, and the
        log-sum-exp `b n i`, in the accumulation type.
    """
    call = _check(
        q,
        k,
        v,
        mask=mask,
        bias=bias,
        scale=scale,
        softcap=softcap,
        dropout_rate=dropout_rate,
        dropout_keep=dropout_keep,
        block_q=block_q,
        block_k=block_k,
    )
    return _forward(call, q.dtype)


def attention_blocked_vjp(
    d_out,
    q,
    k,
    v,
    *,
    mask=None,
    bias=None,
    scale=None,
    softcap=None,
    dropout_rate=0.0,
    dropout_keep=None,
    d_lse=None,
    block_q=BLOCK_Q,
    block_k=BLOCK_K,
):
    """The gradients of `attention_blocked`, in as little memory.

    The formulas are those of `attention_vjp`, one tile at a time, with

        P_ij = e^(S_ij − lse_i)        D_i = dO_i · O_i − dlse_i

    Args:
        d_out: gradient of the output, `b n i e`, in the dtype of the inputs.
        d_lse: gradient of the log-sum-exp, `b n i`, in the accumulation type, or None.

    The other arguments, and the errors, are those of `attention_blocked`.

    Returns:
        (dq, dk, dv, dbias) in the shapes and the dtype of the arguments, rounded once.
        dbias is summed over the bias's broadcast axes, and None without a bias.
    """
    call = _check(
        q,
        k,
        v,
        mask=mask,
        bias=bias,
        scale=scale,
        softcap=softcap,
        dropout_rate=dropout_rate,
        dropout_keep=dropout_keep,
        block_q=block_q,
        block_k=block_k,
    )
    check_gradients(np.ndarray, d_out, d_lse, call.sizes, dtype_name(q))
    output, lse = _forward(call, accumulate(q[:0]).dtype)
    gradients = _backward(call, d_out, d_lse, output, lse)
    return tuple(None if x is None else x.astype(q.dtype) for x in gradients)


def merge_parts(outputs, lses):
    """Attention over all keys, from attention over each of some disjoint parts of them.

    With lse = ln Σ_k e^(lse_k), the output is Σ_k e^(lse_k − lse)·o_k.  A part that
    leaves a query no key, with log-sum-exp −∞, adds nothing to it.

    Args:
        outputs: arrays `b n i e`, one a part.
        lses: their log-sum-exps `b n i`, in the accumulation type.

    Returns:
        the output, in the dtype of `outputs`, rounded once, and the log-sum-exp.

    Raises:
        TypeError, ValueError: no part, or parts that do not fit each other.
    """
    check_parts(np.ndarray, outputs, lses)
    with np.errstate(invalid="ignore"):  # NaN is a result like any other
        top = np.maximum.reduce(lses)
        shift = np.where(top == -np.inf, 0, top)
        shares = [np.exp(lse - shift) for lse in lses]
        total = np.add.reduce(shares)
        empty = top == -np.inf
        total = np.where(empty, 1, total)
        merged = sum(
            (share / total)[..., None] * accumulate(output)
            for share, output in zip(shares, outputs, strict=True)
        )
        lse = np.where(empty, -np.inf, shift + np.log(total))
    return np.where(empty[..., None], 0, merged).astype(outputs[0].dtype), lse


class _Call(NamedTuple):
    """The arguments of a call, checked, and the sizes of its axes."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    mask: Any
    bias: np.ndarray | None
    scale: float
    softcap: float | None
    dropout_rate: float
    dropout_keep: np.ndarray | None
    block_q: int
    block_k: int
    sizes: dict[str, int]


class _Tile(NamedTuple):
    """One head's queries and keys in a block of each; all axes of `b n i j` kept."""

    keys: slice
    q: np.ndarray
    """Times the scale."""
    k: np.ndarray
    v: np.ndarray
    mask: np.ndarray | None
    scaled: np.ndarray
    """The scaled scores."""
    logits: np.ndarray
    """−∞ where blocked; the memory of `scaled` where nothing is done to it."""
    keep: np.ndarray | None


def _check(q, k, v, *, mask, scale, block_q, block_k, **options):
    sizes = check_attention(np.ndarray, q, k, v, mask=mask, scale=scale, **options)
    check_blocks(block_q=block_q, block_k=block_k)
    if isinstance(mask, Mask):
        mask.check(sizes)
        mask = mask.bind(np.asarray)
    scale = sizes["d"] ** -0.5 if scale is None else scale
    blocks = {"block_q": block_q, "block_k": block_k}
    return _Call(q, k, v, mask=mask, scale=scale, sizes=sizes, **blocks, **options)


def _blocks(length, size):
    return [slice(x, min(x + size, length)) for x in range(0, length, size)]


def _forward(call, dtype):
    """The output in `dtype` and the log-sum-exp."""
    wide = accumulate(call.q[:0]).dtype
    output = np.empty([call.sizes[axis] for axis in patterns.OUTPUT.split()], dtype)
    lse = np.empty([call.sizes[axis] for axis in patterns.LSE.split()], wide)

    def work(job):
        output[job], lse[job] = _attend(call, *job)

    b, n, i = (call.sizes[axis] for axis in patterns.LSE.split())
    heads = product(_blocks(b, 1), _blocks(n, 1), _blocks(i, call.block_q))
    in_threads(work, heads)
    return output, lse


@np.errstate(invalid="ignore")  # NaN is a result like any other
def _attend(call, b, n, rows):
    """Output and log-sum-exp of a block of queries, by the running numbers."""
    shape = (1, 1, rows.stop - rows.start)
    wide = accumulate(call.q[:0]).dtype
    top = np.full((*shape, 1), -np.inf, wide)
    total = np.zeros((*shape, 1), wide)
    output = np.zeros((*shape, call.sizes["e"]), wide)
    for tile in _tiles(call, b, n, rows):
        before, top = top, np.maximum(top, tile.logits.max(axis=-1, keepdims=True))
        shift = np.where(top == -np.inf, 0, top)
        exps = np.subtract(tile.logits, shift, out=tile.logits)
        np.exp(exps, out=exps)
        rescaling = np.exp(before - shift)
        total = rescaling * total + exps.sum(axis=-1, keepdims=True)
        dropped = apply_dropout(exps, call.dropout_rate, tile.keep)
        output = rescaling * output + dropped @ tile.v
    empty = top == -np.inf
    total = np.where(empty, 1, total)
    lse = np.where(empty, -np.inf, top + np.log(total))
    # An empty row's sum is 0, also where 0·NaN = NaN.
    return np.where(empty, 0, output / total), lse[..., 0]


def _tiles(call, b, n, rows):
    """The tiles of a block of queries in which some query sees some key."""
    h = n.start // call.sizes["g"]
    query = apply_scale(accumulate(call.q[b, n, rows]), call.scale)
    for keys in _blocks(call.sizes["j"], call.block_k):
        place = (b, n, rows, keys)
        seen, mask = _visible(call.mask, *place)
        if seen == "empty":
            continue
        k, v = (accumulate(x[b, h : h + 1, keys]) for x in (call.k, call.v))
        q, k, v = forget_blocked(query, k, v, mask)
        scaled = q @ k.swapaxes(-1, -2)
        capped = apply_softcap(scaled, call.softcap)
        logits = apply_mask(add_bias(capped, _cut(call.bias, *place)), mask)
        keep = _cut(call.dropout_keep, *place)
        yield _Tile(keys, q, k, v, mask, scaled, logits, keep)


def _visible(mask, b, n, rows, keys):
    """How much of a tile is visible, and its mask where that is a part."""
    seen = extent(mask, rows, keys)
    if seen != "partial":
        return seen, None
    if callable(mask):
        grids = np.ogrid[b, n, rows, keys]
        part = mask(*grids)
        sizes = {axis: grid.size for axis, grid in zip("bnij", grids, strict=True)}
        check_mask("mask", part, sizes, np.ndarray)
    else:
        part = _cut(mask, b, n, rows, keys)
    if part.all():
        return "full", None
    return ("partial", part) if part.any() else ("empty", None)


def _cut(array, *place):
    """The part of an array that lies at a place; an axis of 1 is the same at all."""
    if array is None:
        return None
    axes = zip(array.shape, place, strict=True)
    return array[tuple(slice(None) if size == 1 else at for size, at in axes)]


def _backward(call, d_out, d_lse, output, lse):
    """dq, dk, dv and dbias in the accumulation type."""
    bias, g = call.bias, call.sizes["g"]
    dq, dk, dv = (np.zeros(x.shape, lse.dtype) for x in (call.q, call.k, call.v))
    dbias = None if bias is None else np.zeros(bias.shape, lse.dtype)

    def work(heads):
        for (b, n), rows in product(heads, _blocks(call.sizes["i"], call.block_q)):
            at, h = (b, n, rows), n.start // g
            gradients = (dq[at], dk[b, h : h + 1], dv[b, h : h + 1], dbias)
            _add_gradients(call, at, d_out, d_lse, output, lse, gradients)

    in_threads(work, _apart(call))
    return dq, dk, dv, dbias


def _apart(call):
    """The heads, in groups that add to no gradient in common."""
    b, n = call.sizes["b"], call.sizes["n"]
    groups: dict[tuple, list] = {}
    for batch, head in product(range(b), range(n)):
        owner = (batch, head // call.sizes["g"])
        if call.bias is not None and call.bias.shape[0] == 1 < b:
            owner = (0, *owner[1:])
        if call.bias is not None and call.bias.shape[1] == 1 < n:
            owner = (owner[0], 0)
        place = slice(batch, batch + 1), slice(head, head + 1)
        groups.setdefault(owner, []).append(place)
    return groups.values()


@np.errstate(invalid="ignore")  # NaN is a result like any other
def _add_gradients(call, at, d_out, d_lse, output, lse, gradients):
    """Adds what a block of queries contributes to the gradients."""
    dq, dk, dv, dbias = gradients
    empty = lse[at] == -np.inf
    lse = np.where(empty, 0, lse[at])[..., None]
    # An empty row contributes nothing, whatever its incoming gradients hold.
    d_out = np.where(empty[..., None], 0, accumulate(d_out[at]))
    delta = (d_out * output[at]).sum(axis=-1)
    if d_lse is not None:
        delta -= np.where(empty, 0, d_lse[at])
    delta = delta[..., None]
    for tile in _tiles(call, *at):
        blocked = None if _all_live(call, tile) else tile.logits == -np.inf
        weights = np.exp(tile.logits - lse)
        if blocked is not None:  # also in a row that NaN has made NaN
            weights[blocked] = 0
        dropped = apply_dropout(weights, call.dropout_rate, tile.keep)
        d_dropped = d_out @ tile.v.swapaxes(-1, -2)
        d_logits = apply_dropout(d_dropped, call.dropout_rate, tile.keep) - delta
        d_logits *= weights
        if blocked is not None:
            d_logits[blocked] = 0
        d_scores = d_logits * _softcap_slope(tile.scaled, call.softcap)
        parts = forget_blocked(
            d_scores @ tile.k,
            d_scores.swapaxes(-1, -2) @ tile.q,
            dropped.swapaxes(-1, -2) @ d_out,
            tile.mask,
        )
        dq += apply_scale(parts[0], call.scale)
        dk[..., tile.keys, :] += parts[1]
        dv[..., tile.keys, :] += parts[2]
        if dbias is not None:
            place = _cut(dbias, *at, tile.keys)
            place += _sum_to(d_logits, place.shape)


def _all_live(call, tile):
    """Whether no logit of a tile can be −∞ but by an overflow."""
    return tile.mask is None and call.bias is None

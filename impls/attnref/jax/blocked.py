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

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

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

from .attend import apply_dropout, attend
from .mask import _carried, apply_mask, forget_blocked
from .scores import (
    accumulate,
    add_bias,
    apply_scale,
    apply_softcap,
    contract,
    group,
    scores,
    ungroup,
)

BLOCK_Q = 512
BLOCK_K = 256
"""A tile has all heads, so that each operation is one call for many of them.  The
backward pass keeps several, and takes twice as long where they leave the cache."""


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

    So are its gradients, by `jax.vjp` or `jax.grad`.  There is no forward mode, and no
    gradient of a gradient: the loops over blocks end where the mask says.

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
    output, lse = _blocked(call.options, call.arrays)
    return output.astype(q.dtype), lse


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

    With X the scaled scores, P the weights and P̃ the weights after dropout:

        P_ij = e^(S_ij − lse_i)            D_i = dO_i · O_i − dlse_i
        dV = P̃ᵀ dO          dP = dropout(dO Vᵀ)
        dS = P ∘ (dP − D)    dX = dS ∘ (1 − tanh²(X / softcap))
        dQ = scale·dX K      dK = scale·dXᵀ Q         dbias = dS

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
    check_gradients(jax.Array, d_out, d_lse, call.sizes, dtype_name(q))
    output, lse = _forward(call.options, call.arrays)
    d_lse = jnp.zeros_like(lse) if d_lse is None else d_lse
    found = _backward(call.options, call.arrays, accumulate(d_out), d_lse, output, lse)
    return tuple(found)


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
    check_parts(jax.Array, outputs, lses)
    lses = jnp.stack(tuple(lses))
    top = jax.lax.stop_gradient(lses).max(axis=0)  # cancels: no gradient through it
    empty = top == -jnp.inf
    top = jnp.where(empty, 0, top)
    shares = jnp.exp(lses - top)
    total = jnp.where(empty, 1, shares.sum(axis=0))
    shares = (shares / total)[..., None]
    merged = sum(s * accumulate(x) for s, x in zip(shares, outputs, strict=True))
    lse = jnp.where(empty, -jnp.inf, top + jnp.log(total))
    return jnp.where(empty[..., None], 0, merged).astype(outputs[0].dtype), lse


class _Options(NamedTuple):
    """What is static under jit."""

    scale: float
    softcap: float | None
    dropout_rate: float
    block_q: int
    block_k: int
    has_whole: bool
    """Some tiles need no mask."""
    has_partial: bool
    """Some tiles do."""
    callable: Callable | None
    """The mask, if it is a plain function."""


class _Arrays(NamedTuple):
    q: jax.Array
    k: jax.Array
    v: jax.Array
    bias: jax.Array | None
    mask: Any
    dropout_keep: jax.Array | None
    order: Any
    """Row of blocks of queries → blocks of keys: whole, then partial, then empty."""
    whole: Any
    """Row → how many of them are whole."""
    visited: Any
    """Row → how many of them are not empty."""


class _Call(NamedTuple):
    """The arguments of a call, checked, and the sizes of its axes."""

    arrays: _Arrays
    options: _Options
    sizes: dict[str, int]


class _Tile(NamedTuple):
    """A block of queries and a block of keys, of all heads."""

    q: jax.Array
    """Times the scale."""
    k: jax.Array
    v: jax.Array
    mask: jax.Array | None
    scaled: jax.Array
    """The scaled scores."""
    logits: jax.Array
    """−∞ where blocked."""
    keep: jax.Array | None


def _check(q, k, v, *, mask, bias, dropout_keep, scale, block_q, block_k, **options):
    arrays = {"mask": mask, "bias": bias, "dropout_keep": dropout_keep}
    sizes = check_attention(jax.Array, q, k, v, scale=scale, **arrays, **options)
    check_blocks(block_q=block_q, block_k=block_k)
    accumulate(q[:0])  # float64 without x64 raises
    if isinstance(mask, Mask):
        mask.check(sizes)
        arrays["mask"] = mask.bind(_carried)
    plain = callable(mask) and not isinstance(mask, Mask)
    if plain:
        arrays["mask"] = None
    block_q, block_k = min(block_q, sizes["i"]), min(block_k, sizes["j"])
    extents = _extents(mask, sizes, block_q, block_k)
    static = _Options(
        scale=sizes["d"] ** -0.5 if scale is None else scale,
        block_q=block_q,
        block_k=block_k,
        has_whole=any("full" in row for row in extents),
        has_partial=any("partial" in row for row in extents),
        callable=mask if plain else None,
        **options,
    )
    return _Call(_Arrays(q, k, v, **arrays, **_visits(extents)), static, sizes)


def _extents(mask, sizes, block_q, block_k):
    """How much of every tile is visible: a row for each block of queries."""
    if sizes["i"] == 0 or sizes["j"] == 0:
        return []
    rows = [_block(x, sizes["i"], block_q) for x in range(-(-sizes["i"] // block_q))]
    keys = [_block(x, sizes["j"], block_k) for x in range(-(-sizes["j"] // block_k))]
    extents = [[extent(mask, row, key) for key in keys] for row in rows]
    if sizes["j"] % block_k:  # the last block masks what it repeats
        for row in extents:
            row[-1] = "partial" if row[-1] == "full" else row[-1]
    return extents


def _visits(extents):
    """The order in which every block of queries visits the blocks of keys."""
    rank = ("full", "partial", "empty").index
    ranks = [[rank(x) for x in row] for row in extents]
    order = [sorted(range(len(row)), key=row.__getitem__) for row in ranks]
    return {
        "order": jnp.array(order, int),
        "whole": jnp.array([row.count(0) for row in ranks], int),
        "visited": jnp.array([len(row) - row.count(2) for row in ranks], int),
    }


def _block(number, length, size):
    """A block of an axis; the last one ends where the axis does, whatever is before."""
    start = min(number * size, length - size)
    return slice(start, start + size)


def _start(number, length, size):
    """Where `_block` begins, of a number under jit."""
    return jnp.minimum(number * size, length - size)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _blocked(options, arrays):
    return _forward(options, arrays)


def _blocked_fwd(options, arrays):
    results = _forward(options, arrays)
    return results, (arrays, *results)


def _blocked_bwd(options, saved, gradients):
    arrays, output, lse = saved
    dq, dk, dv, dbias = _backward(options, arrays, *gradients, output, lse)
    return (_Arrays(dq, dk, dv, dbias, None, None, None, None, None),)


_blocked.defvjp(_blocked_fwd, _blocked_bwd)


@partial(jax.jit, static_argnums=0)
def _forward(options, arrays):
    """Output and log-sum-exp in the accumulation type."""
    q, e = arrays.q, arrays.v.shape[3]
    wide = accumulate(q[:0]).dtype
    output = jnp.zeros((*q.shape[:3], e), wide)
    lse = jnp.full(q.shape[:3], -jnp.inf, wide)

    def step(row, results):
        start = _start(row, q.shape[2], options.block_q)
        found = _attend(options, arrays, row)
        return tuple(
            lax.dynamic_update_slice_in_dim(whole, part, start, axis=2)
            for whole, part in zip(results, found, strict=True)
        )

    return _loop(len(arrays.visited), step, (output, lse))


def _attend(options, arrays, row):
    """Output and log-sum-exp of a block of queries, by the running numbers."""
    query = _query(options, arrays, row)
    top = jnp.full((*query.shape[:3], 1), -jnp.inf, query.dtype)
    total = jnp.zeros_like(top)
    output = jnp.zeros((*query.shape[:3], arrays.v.shape[3]), query.dtype)

    def step(tile, key, running):
        before, total, output = running
        top = jnp.maximum(before, tile.logits.max(axis=-1, keepdims=True))
        shift = jnp.where(top == -jnp.inf, 0, top)
        exps = jnp.exp(tile.logits - shift)
        rescaling = jnp.exp(before - shift)
        total = rescaling * total + exps.sum(axis=-1, keepdims=True)
        dropped = apply_dropout(exps, options.dropout_rate, tile.keep)
        return top, total, rescaling * output + attend(dropped, tile.v)

    running = (top, total, output)
    top, total, output = _over_tiles(step, options, arrays, row, query, running)
    empty = top == -jnp.inf
    total = jnp.where(empty, 1, total)
    lse = jnp.where(empty, -jnp.inf, top + jnp.log(total))
    # An empty row's sum is 0, also where 0·NaN = NaN.
    return jnp.where(empty, 0, output / total), lse[..., 0]


def _over_tiles(step, options, arrays, row, query, running):
    """`running = step(tile, key, running)` over the tiles that are not empty."""

    def visit(is_partial, place, running):
        key = arrays.order[row, place]
        return step(_tile(options, arrays, row, key, query, is_partial), key, running)

    whole, visited = arrays.whole[row], arrays.visited[row]
    if options.has_whole:
        running = lax.fori_loop(0, whole, partial(visit, False), running)
    if options.has_partial:
        running = lax.fori_loop(whole, visited, partial(visit, True), running)
    return running


def _query(options, arrays, row):
    """A block of queries, times the scale."""
    start = _start(row, arrays.q.shape[2], options.block_q)
    block = lax.dynamic_slice_in_dim(arrays.q, start, options.block_q, axis=2)
    return apply_scale(accumulate(block), options.scale)


def _keys(options, array, key):
    """A block of keys or values, in the accumulation type."""
    start = _start(key, array.shape[2], options.block_k)
    size = options.block_k
    return accumulate(lax.dynamic_slice_in_dim(array, start, size, axis=2))


def _tile(options, arrays, row, key, query, is_partial):
    k, v = (_keys(options, x, key) for x in (arrays.k, arrays.v))
    mask = _mask_of(options, arrays, row, key) if is_partial else None
    q, k, v = forget_blocked(query, k, v, mask)
    scaled = scores(q, k)
    capped = apply_softcap(scaled, options.softcap)
    bias = _cut(options, arrays, arrays.bias, row, key)
    logits = apply_mask(add_bias(capped, bias), mask)
    keep = _cut(options, arrays, arrays.dropout_keep, row, key)
    return _Tile(q, k, v, mask, scaled, logits, keep)


def _mask_of(options, arrays, row, key):
    """The mask of a tile, without the keys that the last block repeats."""
    b, n, i, _ = arrays.q.shape
    j, sizes = arrays.k.shape[2], (options.block_q, options.block_k)
    starts = _start(row, i, sizes[0]), _start(key, j, sizes[1])
    rows, keys = (s + jnp.arange(x) for s, x in zip(starts, sizes, strict=True))
    fresh = keys >= key * options.block_k
    mask = arrays.mask if options.callable is None else options.callable
    if mask is None:
        return fresh[None, None, None]
    if callable(mask):
        grids = jnp.ix_(jnp.arange(b), jnp.arange(n), rows, keys)
        mask = mask(*grids)
        tile = dict(zip("bnij", (b, n, *sizes), strict=True))
        check_mask("mask", mask, tile, jax.Array)
    else:
        mask = _cut(options, arrays, mask, row, key)
    return mask & fresh


def _cut(options, arrays, array, row, key):
    """The part of an array that lies in a tile; an axis of 1 is the same in all."""
    if array is None:
        return None
    _, _, i, j = array.shape
    if i > 1:
        start = _start(row, i, options.block_q)
        array = lax.dynamic_slice_in_dim(array, start, options.block_q, axis=2)
    if j > 1:
        start = _start(key, j, options.block_k)
        array = lax.dynamic_slice_in_dim(array, start, options.block_k, axis=3)
    return array


@partial(jax.jit, static_argnums=0)
def _backward(options, arrays, d_out, d_lse, output, lse):
    """dq, dk, dv and dbias in the dtype of the inputs."""
    leaves = {"dq": arrays.q, "dk": arrays.k, "dv": arrays.v, "dbias": arrays.bias}
    found = {
        name: None if x is None else jnp.zeros(x.shape, lse.dtype)
        for name, x in leaves.items()
    }

    def step(row, found):
        start = _start(row, lse.shape[2], options.block_q)
        incoming = [
            lax.dynamic_slice_in_dim(x, start, options.block_q, axis=2)
            for x in (d_out, d_lse, output, lse)
        ]
        # The last block repeats queries of the one before, which have been counted.
        fresh = start + jnp.arange(options.block_q) >= row * options.block_q
        return _add_gradients(options, arrays, row, fresh, incoming, found)

    found = _loop(len(arrays.visited), step, found)
    return [
        None if x is None else found[name].astype(x.dtype) for name, x in leaves.items()
    ]


def _add_gradients(options, arrays, row, fresh, incoming, found):
    """`found` and what a block of queries contributes to the gradients.

    `incoming` is d_out, d_lse, the output and the log-sum-exp of these queries.
    """
    d_out, d_lse, output, lse = incoming
    h, rate = arrays.k.shape[1], options.dropout_rate
    i0 = _start(row, arrays.q.shape[2], options.block_q)
    # An empty row contributes nothing, whatever its incoming gradients hold.
    absent = (lse == -jnp.inf) | ~fresh
    lse = jnp.where(absent, 0, lse)[..., None]
    d_out = jnp.where(absent[..., None], 0, d_out)
    delta = (d_out * output).sum(axis=-1) - jnp.where(absent, 0, d_lse)
    grouped = group(d_out, h)

    def step(tile, key, found):
        live = (tile.logits != -jnp.inf) & ~absent[..., None]
        # Exactly 0 where the logit is −∞, also in a row that NaN has made NaN.
        weights = jnp.where(live, jnp.exp(tile.logits - lse), 0)
        dropped = group(apply_dropout(weights, rate, tile.keep), h)
        d_dropped = ungroup(contract(patterns.GRAD_WEIGHTS, grouped, tile.v))
        d_weights = apply_dropout(d_dropped, rate, tile.keep)
        d_logits = jnp.where(live, weights * (d_weights - delta[..., None]), 0)
        d_scaled = d_logits * _softcap_slope(tile.scaled, options.softcap)
        d_scores = group(d_scaled, h)
        dq, dk, dv = forget_blocked(
            ungroup(contract(patterns.GRAD_QUERY, d_scores, tile.k)),
            contract(patterns.GRAD_KEY, d_scores, group(tile.q, h)),
            contract(patterns.GRAD_VALUE, dropped, grouped),
            tile.mask,
        )
        j0 = _start(key, arrays.k.shape[2], options.block_k)
        return {
            "dq": _add_at(found["dq"], apply_scale(dq, options.scale), (i0, 0)),
            "dk": _add_at(found["dk"], dk, (j0, 0)),
            "dv": _add_at(found["dv"], dv, (j0, 0)),
            "dbias": _add_summed(found["dbias"], d_logits, (i0, j0)),
        }

    query = _query(options, arrays, row)
    return _over_tiles(step, options, arrays, row, query, found)


def _loop(count, step, start):
    """`lax.fori_loop` that traces no step where there is none."""
    return lax.fori_loop(0, count, step, start) if count else start


def _add_at(array, part, place):
    """`array` with `part` added where the last two axes begin at `place`."""
    place = (0, 0, *place)
    sum_ = lax.dynamic_slice(array, place, part.shape) + part
    return lax.dynamic_update_slice(array, sum_, place)


def _add_summed(dbias, d_logits, place):
    """`dbias` with a tile's gradient added, summed over the axes that are 1 in it."""
    if dbias is None:
        return None
    axes = tuple(axis for axis, size in enumerate(dbias.shape) if size == 1)
    part = d_logits.sum(axis=axes, keepdims=True)
    sizes = zip(dbias.shape[2:], place, strict=True)
    return _add_at(dbias, part, [0 if size == 1 else at for size, at in sizes])


def _softcap_slope(scaled, softcap):
    """The derivative of c·tanh(x / c): 1 − tanh²(x / c)."""
    return 1 if softcap is None else 1 - jnp.tanh(scaled / float(softcap)) ** 2

"""Attention over sequences that are sharded over devices, by a ring.

Every device keeps its queries.  Keys and values go around: after R steps all queries
have met all keys, and no device ever held more than two shards of them.  What a step
gives is attention over disjoint keys, so `merge_parts` puts the steps together.
Backward, the gradients of keys and values travel with them, and are home after R steps.

Source: Liu et al., Ring attention with blockwise transformers (arXiv 2310.01889); the
balanced order: Brandon et al., Striped attention (arXiv 2311.09431), in two stripes.

On several machines every process calls `jax.distributed.initialize(coordinator, count,
id)` first; then `jax.devices()` has the devices of all, a mesh of them is the ring, and
all processes make the same call on global arrays.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec

from attnref.spec.checks import check_attention, check_blocks, check_ring
from attnref.spec.masks import shifted
from attnref.spec.rings import chunks_of

from .blocked import (
    BLOCK_K,
    BLOCK_Q,
    _Arrays,
    _backward,
    _extents,
    _forward,
    _Options,
    _visits,
    merge_parts,
)
from .mask import _carried
from .scores import accumulate


def ring_attention(
    q,
    k,
    v,
    *,
    mesh,
    axis,
    mask=None,
    scale=None,
    softcap=None,
    balanced=False,
    block_q=BLOCK_Q,
    block_k=BLOCK_K,
):
    """`attention_blocked` of arrays whose positions are sharded over a mesh's axis.

    Args:
        q, k, v: `b n i d`, `b h j d` and `b h j e`, whole arrays; i and j are sharded.
        mesh: a `jax.sharding.Mesh`.
        axis: the name of the mesh axis that is the ring.
        mask: a predicate over the whole sequence, such as `causal()`, or None.
        scale, softcap, block_q, block_k: those of `attention_blocked`.
        balanced: the positions are in the order of `attnref.spec.balanced_order`, in
            which causal masks give every device as much to do.  The mask speaks of the
            positions in the sequence, before.

    Returns:
        the output `b n i e` in the dtype of the inputs and the log-sum-exp `b n i`,
        sharded like q.

    Raises:
        TypeError, ValueError: wrong input, or lengths that the ring does not divide.
    """
    sizes = check_attention(jax.Array, q, k, v, mask=mask, scale=scale, softcap=softcap)
    check_blocks(block_q=block_q, block_k=block_k)
    shards = mesh.shape[axis]
    check_ring(mask, sizes, shards, balanced)
    chunks = 2 * shards if balanced else shards
    part = sizes | {"i": sizes["i"] // chunks, "j": sizes["j"] // chunks}
    block_q, block_k = min(block_q, part["i"]), min(block_k, part["j"])
    extents = [
        [_extents(shifted(mask, i, j), part, block_q, block_k) for j in starts]
        for starts in [range(0, sizes["j"], part["j"])]
        for i in range(0, sizes["i"], part["i"])
    ]
    seen = {x for rows in extents for table in rows for row in table for x in row}
    options = _Options(
        scale=sizes["d"] ** -0.5 if scale is None else scale,
        softcap=softcap,
        dropout_rate=0.0,
        block_q=block_q,
        block_k=block_k,
        has_whole="full" in seen,
        has_partial="partial" in seen,
        callable=None,
    )
    ring = _Ring(axis, shards, balanced, options)
    visits = [[_visits(table) for table in rows] for rows in extents]
    visits = jax.tree.map(
        lambda *x: jnp.stack(x),
        *[jax.tree.map(lambda *x: jnp.stack(x), *rows) for rows in visits],
    )
    bound = None if mask is None else mask.bind(_carried)
    over = PartitionSpec(None, None, axis)
    whole = PartitionSpec()
    local = jax.shard_map(
        partial(_ring, ring),
        mesh=mesh,
        in_specs=(over, over, over, whole, whole),
        out_specs=(over, over),
        check_vma=False,
    )
    output, lse = local(q, k, v, bound, visits)
    return output.astype(q.dtype), lse


class _Ring(NamedTuple):
    """What is static under jit."""

    axis: str
    shards: int
    balanced: bool
    options: _Options


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _ring(ring, q, k, v, mask, visits):
    return _ring_forward(ring, q, k, v, mask, visits)


def _ring_fwd(ring, *arguments):
    results = _ring_forward(ring, *arguments)
    return results, (*arguments, *results)


def _ring_bwd(ring, saved, gradients):
    return *_ring_backward(ring, *saved, *gradients), None, None


_ring.defvjp(_ring_fwd, _ring_bwd)


def _ring_forward(ring, q, k, v, mask, visits):
    """Output and log-sum-exp of this device's queries, in the accumulation type."""
    wide = accumulate(q[:0]).dtype
    output = jnp.zeros((*q.shape[:3], v.shape[3]), wide)
    lse = jnp.full(q.shape[:3], -jnp.inf, wide)

    def step(number, carried):
        (k, v), found = carried
        for rows, _, arrays in _pairs(ring, number, q, k, v, mask, visits):
            so_far = [x[:, :, rows] for x in found]
            new = _forward(ring.options, arrays)
            merged = merge_parts(*zip(so_far, new, strict=True))
            found = [
                x.at[:, :, rows].set(part)
                for x, part in zip(found, merged, strict=True)
            ]
        return _passed_on(ring, (k, v)), found

    _, (output, lse) = lax.fori_loop(0, ring.shards, step, ((k, v), [output, lse]))
    return output, lse


def _ring_backward(ring, q, k, v, mask, visits, output, lse, d_out, d_lse):
    """dq of this device's queries and dk, dv of its keys."""
    dq, dk, dv = (jnp.zeros(x.shape, lse.dtype) for x in (q, k, v))

    def step(number, carried):
        (k, v, dk, dv), dq = carried
        for rows, keys, arrays in _pairs(ring, number, q, k, v, mask, visits):
            arrays = arrays._replace(
                **{x: accumulate(getattr(arrays, x)) for x in "qkv"}
            )
            incoming = (x[:, :, rows] for x in (d_out, d_lse, output, lse))
            found = _backward(ring.options, arrays, *incoming)
            dq = dq.at[:, :, rows].add(found[0])
            dk = dk.at[:, :, keys].add(found[1])
            dv = dv.at[:, :, keys].add(found[2])
        return _passed_on(ring, (k, v, dk, dv)), dq

    start = ((k, v, dk, dv), dq)
    (_, _, dk, dv), dq = lax.fori_loop(0, ring.shards, step, start)
    return tuple(d.astype(x.dtype) for d, x in ((dq, q), (dk, k), (dv, v)))


def _passed_on(ring, arrays):
    """Every device's arrays go to the next one."""
    around = [(rank, (rank + 1) % ring.shards) for rank in range(ring.shards)]
    return lax.ppermute(arrays, ring.axis, around)


def _pairs(ring, number, q, k, v, mask, visits):
    """This device's stretches of queries, with the stretches of keys that are here."""
    rank = lax.axis_index(ring.axis)
    source = (rank - number) % ring.shards
    queries, keys = (chunks_of(x, ring.shards, ring.balanced) for x in (rank, source))
    i, j = q.shape[2] // len(queries), k.shape[2] // len(keys)
    for at, query in enumerate(queries):
        rows = slice(at * i, (at + 1) * i)
        for place, key in enumerate(keys):
            columns = slice(place * j, (place + 1) * j)
            arrays = _Arrays(
                q[:, :, rows],
                k[:, :, columns],
                v[:, :, columns],
                bias=None,
                mask=shifted(mask, query * i, key * j),
                dropout_keep=None,
                **{name: x[query, key] for name, x in visits.items()},
            )
            yield rows, columns, arrays

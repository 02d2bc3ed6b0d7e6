"""Attention over sequences that are sharded over processes, by a ring.

Every process keeps its queries.  Keys and values go around: after R steps all queries
have met all keys, and no process ever held more than two shards of them.  What a step
gives is attention over disjoint keys, so `merge_parts` puts the steps together.
Backward, the gradients of keys and values travel with them, and are home after R steps.

Source: Liu et al., Ring attention with blockwise transformers (arXiv 2310.01889); the
balanced order: Brandon et al., Striped attention (arXiv 2311.09431), in two stripes.

It starts as any program of `torch.distributed` does, one process a rank: on each of two
machines `torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint
HOST:29500 program.py`, and `init_process_group("nccl")`, or `"gloo"` on CPUs, in the
program.  The timeout given there is how long a step waits for a neighbour.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from attnref.spec.checks import check_attention, check_blocks, check_ring
from attnref.spec.masks import shifted
from attnref.spec.rings import chunks_of

from .blocked import (
    BLOCK_K,
    BLOCK_Q,
    _backward,
    _Call,
    _forward,
    _Options,
    merge_parts,
)
from .scores import accumulate


def ring_attention(
    q,
    k,
    v,
    *,
    group=None,
    mask=None,
    scale=None,
    softcap=None,
    balanced=False,
    block_q=BLOCK_Q,
    block_k=BLOCK_K,
):
    """`attention_blocked` of arrays whose positions are sharded over processes.

    Every process of the group makes the same call, each with its own shards.

    Args:
        q, k, v: this rank's shards, `b n i d`, `b h j d` and `b h j e`; the ranks'
            shards, one after the other, are the sequence.
        group: the process group that is the ring; the default one if None.
        mask: a predicate over the whole sequence, such as `causal()`, or None.
        scale, softcap, block_q, block_k: those of `attention_blocked`.
        balanced: the positions are in the order of `attnref.spec.balanced_order`, in
            which causal masks give every rank as much to do.  The mask speaks of the
            positions in the sequence, before.

    Returns:
        the output `b n i e` of this rank's queries, in their dtype, and the log-sum-exp
        `b n i`.

    Raises:
        TypeError, ValueError: wrong input, or shards that cannot be halved.
        RuntimeError: a neighbour is gone, or does not answer within the timeout.
    """
    sizes = check_attention(
        torch.Tensor, q, k, v, mask=mask, scale=scale, softcap=softcap
    )
    check_blocks(block_q=block_q, block_k=block_k)
    group = dist.group.WORLD if group is None else group
    rank, shards = dist.get_rank(group), dist.get_world_size(group)
    whole = sizes | {"i": sizes["i"] * shards, "j": sizes["j"] * shards}
    check_ring(mask, whole, shards, balanced)
    if mask is not None:
        mask = mask.bind(lambda x: torch.as_tensor(x, device=q.device))
    chunks = 2 if balanced else 1
    options = _Options(
        scale=sizes["d"] ** -0.5 if scale is None else scale,
        softcap=softcap,
        dropout_rate=0.0,
        block_q=block_q,
        block_k=block_k,
        sizes=sizes | {"i": sizes["i"] // chunks, "j": sizes["j"] // chunks},
    )
    ring = _Ring(group, rank, shards, balanced, mask, options)
    output, lse = _RingAttention.apply(q, k, v, ring)
    return output.to(q.dtype), lse


@dataclass(frozen=True)
class _Ring:
    """A rank's place in the ring, and what is the same for all."""

    group: Any
    rank: int
    shards: int
    balanced: bool
    mask: Any
    options: _Options


class _RingAttention(torch.autograd.Function):
    """Output and log-sum-exp in the accumulation type, with their gradients."""

    @staticmethod
    def forward(ctx, q, k, v, ring):
        output, lse = _ring_forward(ring, q, k, v)
        ctx.ring = ring
        ctx.save_for_backward(q, k, v, output, lse)
        return output, lse

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, d_output, d_lse):
        q, k, v, output, lse = ctx.saved_tensors
        incoming = d_output, d_lse, output, lse
        return *_ring_backward(ctx.ring, q, k, v, incoming), None


def _ring_forward(ring, q, k, v):
    """Output and log-sum-exp of this rank's queries, in the accumulation type."""
    found: dict[int, tuple] = {}
    for number in range(ring.shards):
        is_last = number == ring.shards - 1
        coming = None if is_last else _pass_on(ring, (k, v))
        for rows, _, call in _pairs(ring, number, q, k, v):
            new = _forward(call)
            if rows.start in found:
                new = merge_parts(*zip(found[rows.start], new, strict=True))
            found[rows.start] = new
        if coming is not None:
            k, v = coming()
    return tuple(torch.cat(x, dim=2) for x in zip(*found.values(), strict=True))


def _ring_backward(ring, q, k, v, incoming):
    """dq of this rank's queries and dk, dv of its keys.

    `incoming` is d_out, d_lse, the output and the log-sum-exp of these queries.
    """
    dtype = q.dtype
    q, k, v = (accumulate(x) for x in (q, k, v))
    dq, dk, dv = (torch.zeros_like(x) for x in (q, k, v))
    for number in range(ring.shards):
        for rows, keys, call in _pairs(ring, number, q, k, v):
            found = _backward(call, *(x[:, :, rows] for x in incoming))
            dq[:, :, rows] += found[0]
            dk[:, :, keys] += found[1]
            dv[:, :, keys] += found[2]
        k, v, dk, dv = _pass_on(ring, (k, v, dk, dv))()
    return tuple(x.to(dtype) for x in (dq, dk, dv))


def _pass_on(ring, tensors):
    """Sends tensors to the next rank; the function returned gives those that come."""
    if ring.shards == 1:
        return lambda: tensors
    after, before = (
        dist.get_global_rank(ring.group, (ring.rank + step) % ring.shards)
        for step in (1, -1)
    )
    sent = [x.contiguous() for x in tensors]
    received = [torch.empty_like(x) for x in sent]
    work = dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, x, after, ring.group) for x in sent]
        + [dist.P2POp(dist.irecv, x, before, ring.group) for x in received]
    )

    def arrived():
        for one in work:
            one.wait()
        return received

    return arrived


def _pairs(ring, number, q, k, v):
    """This rank's stretches of queries, with the stretches of keys that are here.

    Those of which the mask leaves nothing cost nothing: all their tiles are skipped.
    """
    source = (ring.rank - number) % ring.shards
    i, j = ring.options.sizes["i"], ring.options.sizes["j"]
    for at, query in enumerate(chunks_of(ring.rank, ring.shards, ring.balanced)):
        rows = slice(at * i, (at + 1) * i)
        for place, key in enumerate(chunks_of(source, ring.shards, ring.balanced)):
            keys = slice(place * j, (place + 1) * j)
            mask = shifted(ring.mask, query * i, key * j)
            parts = q[:, :, rows], k[:, :, keys], v[:, :, keys]
            yield rows, keys, _Call(*parts, mask, None, None, ring.options)

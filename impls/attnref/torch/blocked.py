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

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

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
from .mask import apply_mask, forget_blocked
from .scores import (
    accumulate,
    add_bias,
    apply_scale,
    apply_softcap,
    contract,
    group,
    scores,
    ungroup,
    without_autocast,
)

BLOCK_Q = 512
BLOCK_K = 512
"""A tile has all heads, so that each operation is one call for many of them."""


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

    So are its gradients, by autograd or `torch.func`.

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
    output, lse = _Blocked.apply(q, k, v, call.mask, bias, dropout_keep, call.options)
    return output.to(q.dtype), lse


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
    check_gradients(torch.Tensor, d_out, d_lse, call.sizes, dtype_name(q))
    output, lse = _forward(call)
    d_lse = torch.zeros_like(lse) if d_lse is None else d_lse
    return _backward(call, accumulate(d_out), d_lse, output, lse)


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
    check_parts(torch.Tensor, outputs, lses)
    lses = torch.stack(tuple(lses))
    top = lses.detach().amax(dim=0)  # cancels, so no gradient flows through it
    empty = top == -torch.inf
    top = torch.where(empty, 0, top)
    shares = torch.exp(lses - top)
    total = torch.where(empty, 1, shares.sum(dim=0))
    shares = (shares / total)[..., None]
    merged = sum(s * accumulate(x) for s, x in zip(shares, outputs, strict=True))
    lse = torch.where(empty, -torch.inf, top + torch.log(total))
    return torch.where(empty[..., None], 0, merged).to(outputs[0].dtype), lse


@dataclass(frozen=True)
class _Options:
    scale: float
    softcap: float | None
    dropout_rate: float
    block_q: int
    block_k: int
    sizes: dict[str, int]


class _Call(NamedTuple):
    """The arguments of a call, checked, and the sizes of its axes."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    mask: Any
    bias: torch.Tensor | None
    dropout_keep: torch.Tensor | None
    options: _Options

    @property
    def sizes(self):
        return self.options.sizes


class _Tile(NamedTuple):
    """A block of queries and a block of keys, of all heads."""

    keys: int
    """The place of the block of keys."""
    q: torch.Tensor
    """Times the scale."""
    k: torch.Tensor
    v: torch.Tensor
    mask: torch.Tensor | None
    scaled: torch.Tensor
    """The scaled scores."""
    logits: torch.Tensor
    """−∞ where blocked."""
    keep: torch.Tensor | None


class _Blocked(torch.autograd.Function):
    """Output and log-sum-exp in the accumulation type, with their gradients."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*arguments):
        return _forward(_Call(*arguments))

    @staticmethod
    def setup_context(ctx, inputs, output):
        *arrays, ctx.options = inputs
        ctx.mask = None if torch.is_tensor(arrays[3]) else arrays[3]
        arrays = [x if torch.is_tensor(x) else None for x in arrays]
        ctx.save_for_backward(*arrays, *output)

    @staticmethod
    def backward(ctx, d_output, d_lse):
        q, k, v, mask, bias, keep, output, lse = ctx.saved_tensors
        mask = ctx.mask if mask is None else mask
        call = _Call(q, k, v, mask, bias, keep, ctx.options)
        dq, dk, dv, dbias = _backward(call, d_output, d_lse, output, lse)
        return dq, dk, dv, None, dbias, None, None


def _check(q, k, v, *, mask, bias, dropout_keep, scale, block_q, block_k, **options):
    arrays = {"mask": mask, "bias": bias, "dropout_keep": dropout_keep}
    sizes = check_attention(torch.Tensor, q, k, v, scale=scale, **arrays, **options)
    check_blocks(block_q=block_q, block_k=block_k)
    if isinstance(mask, Mask):
        mask.check(sizes)
        arrays["mask"] = mask.bind(lambda x: torch.as_tensor(x, device=q.device))
    scale = sizes["d"] ** -0.5 if scale is None else scale
    blocks = {"block_q": block_q, "block_k": block_k}
    static = _Options(scale=scale, sizes=sizes, **blocks, **options)
    return _Call(q, k, v, **arrays, options=static)


def _blocks(length, size):
    """The blocks of an axis; one without anything where the axis is empty."""
    starts = range(0, max(length, 1), size)
    return [slice(start, min(start + size, length)) for start in starts]


def _forward(call):
    """Output and log-sum-exp in the accumulation type."""
    block_q = call.options.block_q
    with without_autocast(call.q.device):
        parts = [_attend(call, rows) for rows in _blocks(call.sizes["i"], block_q)]
    return tuple(torch.cat(x, dim=2) for x in zip(*parts, strict=True))


def _attend(call, rows):
    """Output and log-sum-exp of a block of queries, by the running numbers."""
    query = accumulate(call.q[:, :, rows])
    top = query.new_full((*query.shape[:3], 1), -torch.inf)
    total = torch.zeros_like(top)
    output = query.new_zeros((*query.shape[:3], call.sizes["e"]))
    for tile in _tiles(call, rows):
        before = top
        top = torch.maximum(top, tile.logits.amax(dim=-1, keepdim=True))
        shift = torch.where(top == -torch.inf, 0, top)
        exps = (tile.logits - shift).exp_()
        rescaling = torch.exp(before - shift)
        total = rescaling * total + exps.sum(dim=-1, keepdim=True)
        dropped = apply_dropout(exps, call.options.dropout_rate, tile.keep)
        output = rescaling * output + attend(dropped, tile.v)
    empty = top == -torch.inf
    total = torch.where(empty, 1, total)
    lse = torch.where(empty, -torch.inf, top + torch.log(total))
    # An empty row's sum is 0, also where 0·NaN = NaN.
    return torch.where(empty, 0, output / total), lse[..., 0]


def _tiles(call, rows):
    """The tiles of a block of queries in which some query may see some key."""
    options = call.options
    query = apply_scale(accumulate(call.q[:, :, rows]), options.scale)
    for number, keys in enumerate(_blocks(call.sizes["j"], options.block_k)):
        seen = extent(call.mask, rows, keys)
        if seen == "empty" or keys.start == keys.stop:
            continue
        mask = None if seen == "full" else _mask_of(call, rows, keys)
        k, v = (accumulate(x[:, :, keys]) for x in (call.k, call.v))
        q, k, v = forget_blocked(query, k, v, mask)
        scaled = scores(q, k)
        capped = apply_softcap(scaled, options.softcap)
        logits = apply_mask(add_bias(capped, _cut(call.bias, rows, keys)), mask)
        keep = _cut(call.dropout_keep, rows, keys)
        yield _Tile(number, q, k, v, mask, scaled, logits, keep)


def _mask_of(call, rows, keys):
    """The mask of a tile."""
    if not callable(call.mask):
        return _cut(call.mask, rows, keys)
    device, b, n = call.q.device, call.sizes["b"], call.sizes["n"]
    sizes = {"b": b, "n": n, "i": rows.stop - rows.start, "j": keys.stop - keys.start}
    starts = (0, 0, rows.start, keys.start)
    grids = [
        torch.arange(start, start + size, device=device).view(place)
        for start, size, place in zip(starts, sizes.values(), _PLACES, strict=True)
    ]
    part = call.mask(*grids)
    check_mask("mask", part, sizes, torch.Tensor)
    return part


_PLACES = ((-1, 1, 1, 1), (1, -1, 1, 1), (1, 1, -1, 1), (1, 1, 1, -1))
"""The shapes of index grids over `b n i j`."""


def _cut(array, rows, keys):
    """The part of an array that lies in a tile; an axis of 1 is the same in all."""
    if array is None:
        return None
    _, _, i, j = array.shape
    array = array if i == 1 else array[:, :, rows]
    return array if j == 1 else array[..., keys]


def _backward(call, d_out, d_lse, output, lse):
    """dq, dk, dv and dbias in the dtype of the inputs."""
    keys = _blocks(call.sizes["j"], call.options.block_k)
    dk, dv = ([_zeros(x[:, :, at], lse) for at in keys] for x in (call.k, call.v))
    dq, dbias = [], []
    with without_autocast(call.q.device):
        for rows in _blocks(call.sizes["i"], call.options.block_q):
            incoming = [x[:, :, rows] for x in (d_out, d_lse, output, lse)]
            biases = None if call.bias is None else [None] * len(keys)
            dq.append(_add_gradients(call, rows, incoming, dk, dv, biases))
            dbias.append(biases)
    gradients = [torch.cat(x, dim=2).to(call.q.dtype) for x in (dq, dk, dv)]
    return *gradients, _joined_bias(call, keys, dbias, lse)


def _add_gradients(call, rows, incoming, dk, dv, dbias):
    """dq of a block of queries; adds its part of the others to their blocks of keys.

    `incoming` is d_out, d_lse, the output and the log-sum-exp of these queries.
    """
    d_out, d_lse, output, lse = incoming
    h, rate = call.sizes["h"], call.options.dropout_rate
    empty = lse == -torch.inf
    lse = torch.where(empty, 0, lse)[..., None]
    # An empty row contributes nothing, whatever its incoming gradients hold.
    d_out = torch.where(empty[..., None], 0, d_out)
    delta = (d_out * output).sum(dim=-1) - torch.where(empty, 0, d_lse)
    grouped, dq = group(d_out, h), _zeros(call.q[:, :, rows], lse)
    for tile in _tiles(call, rows):
        at, live = tile.keys, tile.logits != -torch.inf
        # Exactly 0 where the logit is −∞, also in a row that NaN has made NaN.
        weights = torch.where(live, torch.exp(tile.logits - lse), 0)
        dropped = group(apply_dropout(weights, rate, tile.keep), h)
        d_dropped = ungroup(contract(patterns.GRAD_WEIGHTS, grouped, tile.v))
        d_weights = apply_dropout(d_dropped, rate, tile.keep)
        d_logits = torch.where(live, weights * (d_weights - delta[..., None]), 0)
        d_scaled = d_logits * _softcap_slope(tile.scaled, call.options.softcap)
        d_scores = group(d_scaled, h)
        parts = forget_blocked(
            ungroup(contract(patterns.GRAD_QUERY, d_scores, tile.k)),
            contract(patterns.GRAD_KEY, d_scores, group(tile.q, h)),
            contract(patterns.GRAD_VALUE, dropped, grouped),
            tile.mask,
        )
        dq, dk[at], dv[at] = dq + parts[0], dk[at] + parts[1], dv[at] + parts[2]
        if dbias is not None:
            dbias[at] = d_logits
            for axis, size in enumerate(call.bias.shape):
                if size == 1:
                    dbias[at] = dbias[at].sum(dim=axis, keepdim=True)
    return apply_scale(dq, call.options.scale)


def _joined_bias(call, keys, blocks, like):
    """The bias's gradient from those of tiles: added where all have it, else joined."""
    if call.bias is None:
        return None
    rows = _blocks(call.sizes["i"], call.options.block_q)
    joined = [
        _joined(
            3,
            call.bias,
            [
                _zeros(_cut(call.bias, row, key), like) if part is None else part
                for key, part in zip(keys, parts, strict=True)
            ],
        )
        for row, parts in zip(rows, blocks, strict=True)
    ]
    return _joined(2, call.bias, joined).to(call.bias.dtype)


def _joined(axis, bias, parts):
    return sum(parts) if bias.shape[axis] == 1 else torch.cat(parts, dim=axis)


def _zeros(x, like):
    return torch.zeros_like(x, dtype=like.dtype)


def _softcap_slope(scaled, softcap):
    """The derivative of c·tanh(x / c): 1 − tanh²(x / c)."""
    return 1 if softcap is None else 1 - torch.tanh(scaled / float(softcap)) ** 2

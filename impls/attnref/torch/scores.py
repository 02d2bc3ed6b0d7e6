"""Dot products of queries with keys, and what is done to them before the mask."""

from contextlib import nullcontext

import torch
from einops import einsum, rearrange

from attnref.spec import patterns


def accumulate(x):
    """`x` in the accumulation type: float32, or float64 for float64.

    16-bit types are cast before any arithmetic, so nothing but a final result is ever
    rounded to them.
    """
    return x.to(torch.float64 if x.dtype == torch.float64 else torch.float32)


def without_autocast(device):
    """A context in which autocast does not round operands to 16 bits again."""
    if torch.amp.is_autocast_available(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()  # such as the meta device


def contract(pattern, *operands):
    """The sum of products that `pattern` says, in the accumulation type."""
    with without_autocast(operands[0].device):
        return einsum(*map(accumulate, operands), pattern)  # type: ignore[call-overload]


def group(x, h):
    """Query heads n as (h g): `b n i x` → `b h g i x`."""
    return rearrange(x, patterns.GROUP, h=h)


def ungroup(x):
    """Grouped heads (h g) as query heads n: `b h g i x` → `b n i x`."""
    return rearrange(x, patterns.UNGROUP)


def scores(q, k):
    """Raw dot products q·k, each query head with its key/value head.

    Args:
        q: `b n i d`, with n = h·g; heads `h·g … h·g + g − 1` use key head `h`.
        k: `b h j d`.

    Returns:
        `b n i j`, in the accumulation type.
    """
    return ungroup(contract(patterns.SCORES, group(q, k.shape[1]), k))


def apply_scale(scores, scale):
    """`scores` (`b n i j`) times `scale`."""
    return scores * float(scale)


def apply_softcap(logits, softcap=None):
    """c·tanh(logits / c): bounded to ±c.  None leaves `logits` as they are.

    Source: Gemma 2 (arXiv 2408.00118), section 2.
    """
    if softcap is None:
        return logits
    softcap = float(softcap)
    return softcap * torch.tanh(logits / softcap)


def add_bias(logits, bias=None):
    """`logits + bias`; `bias` has axes `b n i j`, each full or 1, or is None."""
    return logits if bias is None else logits + accumulate(bias)

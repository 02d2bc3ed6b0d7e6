"""A call of the spec in terms that fused kernels share.

What the axiom says does not exist is cut away here, once for all backends: unseen keys,
queries without a key, a scale that is not above 0.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch.nn.functional import pad

from attnref.spec.checks import check_attention
from attnref.spec.masks import Mask, causal, window_of

from ..mask import forget_blocked, mask_array


class Call(NamedTuple):
    """What is left of a call for a kernel to do."""

    q: torch.Tensor
    """`b n i d`."""
    k: torch.Tensor
    """`b h j d`."""
    v: torch.Tensor
    """`b h j e`."""
    scale: float
    """Above 0."""
    softcap: float | None
    bias: torch.Tensor | None
    diagonal: int | None
    """Key j is visible to query i iff j ≤ i + diagonal; None: no such triangle."""
    mask: torch.Tensor | None
    """Any other mask as a boolean array `b n i j`, each axis full or 1."""
    predicate: Callable | None
    """What `diagonal` or `mask` says, as a function of index grids, where it is one."""
    wants_lse: bool
    leading: int
    """Queries before the first of `q`; they are left no key."""

    @property
    def is_empty(self) -> bool:
        """Whether there is no batch element, no query or no key."""
        return not (self.q.shape[0] and self.q.shape[2] and self.k.shape[2])


def translate(q, k, v, *, mask, bias, scale, softcap, lse) -> Call:
    """Checks a call of the spec and translates it.

    Raises:
        TypeError, ValueError: as `attention` does.
    """
    options = {"mask": mask, "bias": bias, "scale": scale, "softcap": softcap}
    sizes = check_attention(torch.Tensor, q, k, v, **options)
    q, scale = above_zero(q, sizes["d"] ** -0.5 if scale is None else float(scale))
    call = Call(q, k, v, scale, softcap, bias, None, None, None, lse, 0)
    if mask is None:
        return call
    offset = _offset(mask)
    if offset is not None:
        return _triangle(call, offset)
    array = mask_array(mask, sizes, q.device)
    q, k, v = forget_blocked(q, k, v, array)
    predicate = mask if callable(mask) else None
    return call._replace(q=q, k=k, v=v, mask=array, predicate=predicate)


def restore(call: Call, output, lse):
    """The results with the rows that `translate` took out: 0, and −∞."""
    if call.mask is not None:
        seeing = call.mask.any(dim=3)
        output = torch.where(seeing[..., None], output, 0)
        lse = None if lse is None else torch.where(seeing, lse, -torch.inf)
    if call.leading:
        output = pad(output, (0, 0, call.leading, 0))
        lse = None if lse is None else pad(lse, (call.leading, 0), value=-torch.inf)
    return output, lse


def nothing(call: Call):
    """Output and log-sum-exp where there is nothing to compute; gradients are 0."""
    shape = (*call.q.shape[:3], call.v.shape[3])
    never = torch.zeros((), dtype=torch.bool, device=call.q.device)
    others = (x.sum() for x in (call.k, call.v, call.bias) if x is not None)
    output = torch.where(never, sum(others, call.q[..., :1]), 0)
    output = output.repeat(1, 1, 1, shape[3])
    wide = torch.float64 if call.q.dtype == torch.float64 else torch.float32
    return output, call.q.new_full(shape[:3], -torch.inf, dtype=wide)


def same_width(q, k, v):
    """Keys and values of one width: zeros add nothing to a product."""
    missing = q.shape[-1] - v.shape[-1]
    if missing > 0:
        return q, k, pad(v, (0, missing))
    return (pad(q, (0, -missing)), pad(k, (0, -missing)), v) if missing else (q, k, v)


def above_zero(q, scale):
    """The same scaled scores by a scale above 0, exactly.

    A kernel that blocks before it scales makes −∞ · 0 or ∞ of a blocked score, and one
    that looks for the largest unscaled score finds the least.
    """
    if scale > 0:
        return q, scale
    return (q * 0, 1.0) if scale == 0 else (-q, -scale)


def _offset(mask) -> int | None:
    """The offset of a plain causal mask that is the same for the whole batch."""
    found = window_of(mask)
    is_causal = found is not None and found[:2] == (None, 0)
    return found[2] if found and is_causal and isinstance(found[2], int) else None


def _triangle(call: Call, offset: int) -> Call:
    """The call without the keys that no query sees, and without queries before all.

    Then offset 0 aligns the upper-left corners and j − i the lower-right ones: one of
    the two is what a kernel has, whichever of them was asked for.
    """
    i, j = call.q.shape[2], call.k.shape[2]
    leading, keys = min(max(-offset, 0), i), min(max(i + offset, 0), j)
    diagonal: int | None = max(offset, 0)
    if diagonal is not None and diagonal >= keys - 1:  # the first query sees them all
        diagonal = None
    return call._replace(
        q=call.q[:, :, leading:],
        k=call.k[:, :, :keys],
        v=call.v[:, :, :keys],
        bias=_part(call.bias, leading, keys),
        diagonal=diagonal,
        predicate=None if diagonal is None else causal(diagonal),
        leading=leading,
    )


def _part(bias, leading: int, keys: int):
    """The bias of the queries from `leading` on and of the first `keys` keys."""
    if bias is None:
        return None
    bias = bias[:, :, leading:] if bias.shape[2] > 1 else bias
    return bias[..., :keys] if bias.shape[3] > 1 else bias


def triangle(call: Call) -> torch.Tensor:
    """The boolean array `1 1 i j` of `diagonal`."""
    i, j = call.q.shape[2], call.k.shape[2]
    assert call.diagonal is not None
    ones = torch.ones(1, 1, i, j, dtype=torch.bool, device=call.q.device)
    return ones.tril(call.diagonal)


def bound(predicate: Callable, device) -> Callable:
    """A predicate whose carried arrays are tensors on the device."""
    if not isinstance(predicate, Mask):
        return predicate
    return predicate.bind(lambda values: torch.as_tensor(values, device=device))

"""Sequences of different lengths, packed one after the other without padding."""

import inspect
from collections.abc import Sequence
from typing import NamedTuple

import torch

from attnref.spec.checks import bind_axes, check_arrays, check_scale
from attnref.spec.masks import window_of

from .call import above_zero, same_width


def varlen(q, k, v, *, q_lengths, k_lengths, mask=None, scale=None):
    """Attention within each of several sequences, by PyTorch's `varlen_attn` on CUDA.

    Args:
        q: `i n d`, the queries of all sequences one after the other.
        k: `j h d`, their keys; v: `j h e`.
        q_lengths: how many queries each sequence has; Python integers, or a tensor,
            whose values have to be read.
        k_lengths: how many keys, likewise.
        mask: None, `causal(offset)` or `window(left, right, offset)` within each
            sequence, where the kernel has them: the last query at the last key, so
            that the offset of a sequence is its keys less its queries.
        scale: finite number, 1/√d by default.

    Returns:
        `i n e`; a query with no key left gets 0.

    Raises:
        TypeError, ValueError: wrong input.
        NotImplementedError: the kernel cannot do the call, and why.
    """
    check_arrays(torch.Tensor, {"q": q, "k": k, "v": v})
    axes = {"q": (q, "i n d"), "k": (k, "j h d"), "v": (v, "j h e")}
    sizes = bind_axes(axes)
    check_scale(scale)
    queries = Lengths.of("q", q_lengths, sizes["i"])
    keys = Lengths.of("k", k_lengths, sizes["j"])
    if len(queries.each) != len(keys.each):
        raise ValueError(
            f"`q_lengths` and `k_lengths` must be of as many sequences, but are of "
            f"{len(queries.each)} and {len(keys.each)}"
        )
    left, right = _window(mask, queries, keys)
    attend = _kernel(q)
    seeing, seen = _visible(left, right, queries, keys, q.device)
    q, scale = above_zero(q, sizes["d"] ** -0.5 if scale is None else float(scale))
    q = torch.where(seeing, q, 0)
    k, v = (torch.where(seen, x, 0) for x in (k, v))
    output = attend(
        *same_width(q, k, v),
        queries.cumulated(q.device),
        keys.cumulated(q.device),
        max(queries.each, default=0),
        max(keys.each, default=0),
        scale=scale,
        window_size=tuple(-1 if end is None else end for end in (left, right)),
        **_grouped(sizes["n"] != sizes["h"]),
    )
    return torch.where(seeing, output[..., : sizes["e"]], 0)


class Lengths(NamedTuple):
    """How long each sequence is."""

    each: list[int]

    @classmethod
    def of(cls, name: str, given, total: int) -> "Lengths":
        """Raises ValueError where they do not add up to what is packed."""
        each = [int(x) for x in (given.tolist() if hasattr(given, "tolist") else given)]
        if min(each, default=0) < 0 or sum(each) != total:
            raise ValueError(
                f"`{name}_lengths` must be at least 0 and add up to the {total} "
                f"positions of `{name}`, but are {each}"
            )
        return cls(each)

    def cumulated(self, device) -> torch.Tensor:
        """Where each sequence begins, and where the last ends: `(b + 1,)`."""
        ends = torch.tensor([0, *self.each], dtype=torch.int32).cumsum(0)
        return ends.to(device, torch.int32)

    def positions(self, device) -> torch.Tensor:
        """The place of every position in its own sequence."""
        ones = [torch.arange(length, device=device) for length in self.each]
        return torch.cat([torch.arange(0, device=device), *ones])

    def spread(self, values: Sequence[int], device) -> torch.Tensor:
        """One value a sequence → one a position."""
        repeats = torch.tensor(self.each, device=device)
        return torch.tensor(values, device=device).repeat_interleave(repeats)


def _window(mask, queries: Lengths, keys: Lengths) -> tuple[int | None, int | None]:
    """Both ends of the window that the kernel has for the mask."""
    if mask is None:
        return None, None
    found = window_of(mask)
    if found is None:
        raise NotImplementedError("varlen_attn has causal masks and windows only")
    left, right, offset = found
    corner = [j - i for i, j in zip(queries.each, keys.each, strict=True)]
    given = [offset] * len(corner) if isinstance(offset, int) else list(offset)
    if [int(x) for x in given] != corner:
        raise NotImplementedError(
            "varlen_attn aligns the last query of a sequence with its last key, so the "
            f"offsets must be {corner}, but are {given}"
        )
    return left, right


def _kernel(q):
    """PyTorch's function, where it is one that takes what is needed here."""
    if not q.is_cuda:
        raise NotImplementedError(
            f"varlen_attn has a CUDA kernel, and the tensors are on {q.device.type}"
        )
    return varlen_attn()


def varlen_attn():
    """PyTorch's function.

    Raises:
        NotImplementedError: this PyTorch has none, or one without scale or windows.
    """
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        raise NotImplementedError(
            f"PyTorch {torch.__version__} has no torch.nn.attention.varlen"
        ) from None
    has = inspect.signature(varlen_attn).parameters
    for name in ("scale", "window_size"):
        if name not in has:
            raise NotImplementedError(
                f"varlen_attn of PyTorch {torch.__version__} takes no `{name}`"
            )
    return varlen_attn


def _grouped(is_grouped: bool) -> dict[str, bool]:
    """The flag for grouped heads; before there was one, its kernel took them so."""
    has = inspect.signature(varlen_attn()).parameters
    return {"enable_gqa": is_grouped} if "enable_gqa" in has else {}


def _visible(left, right, queries: Lengths, keys: Lengths, device):
    """Which queries see a key, `i 1 1`, and which keys are seen, `j 1 1`."""
    pairs = list(zip(queries.each, keys.each, strict=True))
    corner = [j - i for i, j in pairs]
    last = queries.positions(device) + queries.spread(corner, device)
    seeing = queries.spread([j for _, j in pairs], device) > 0
    seen = keys.spread([i for i, _ in pairs], device) > 0
    if right is not None:
        seeing &= last + right >= 0
    if left is not None:
        seen &= keys.positions(device) >= keys.spread(corner, device) - left
    return seeing[:, None, None], seen[:, None, None]

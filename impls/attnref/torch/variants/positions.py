"""Where queries and keys stand: query i at i + offset, key j at j."""

import torch

from attnref.spec.variants import check_offset


def query_positions(offset, sizes, device=None):
    """The positions of the queries, `i`, or `b i` where each batch element has its own.

    Args:
        offset: an int, or integers `b`, as of a causal mask.
        sizes: axis letter → size.
        device: where they are.
    """
    offset = check_offset(offset, sizes)
    steps = torch.arange(sizes["i"], device=device)
    if isinstance(offset, int):
        return steps + offset
    return steps + torch.as_tensor(offset, dtype=steps.dtype, device=device)[:, None]


def key_positions(sizes, device=None):
    """The positions of the keys: `j`."""
    return torch.arange(sizes["j"], device=device)


def distances(offset, sizes, device=None):
    """j − (i + offset): how far key j is after query i; `b i j`, with b full or 1."""
    at_q, at_k = query_positions(offset, sizes, device), key_positions(sizes, device)
    found = at_k - at_q[..., None]
    return found if found.ndim == 3 else found[None]

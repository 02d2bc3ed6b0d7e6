"""Grouped heads for a library that has no groups."""

from collections.abc import Mapping
from typing import Any

SHARED = {
    "w_k": "m h d -> m (h g) d",
    "w_v": "m h e -> m (h g) e",
    "b_k": "h d -> (h g) d",
    "b_v": "h e -> (h g) e",
}
"""Parameter of key/value heads → one copy for each query head of the group."""


def ungrouped(params: Mapping[str, Any]) -> dict[str, Any]:
    """The same attention with a key/value head for every query head.

    Each head is repeated for the g query heads that share it, in the spec's order
    `(h g)`: tiled, they would belong to other queries.

    Args:
        params: arrays by the names of `MultiHeadParams`.
    """
    from einops import repeat  # the site reads layouts where there is none

    n, h = params["w_q"].shape[1], params["w_k"].shape[1]
    return {
        name: repeat(array, SHARED[name], g=n // h)
        if name in SHARED and array is not None
        else array
        for name, array in params.items()
    }

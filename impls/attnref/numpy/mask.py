"""Masks: a blocked key does not exist for its query."""

import numpy as np
from einops import reduce

from attnref.spec import patterns
from attnref.spec.checks import check_mask
from attnref.spec.masks import Mask


def mask_array(mask, sizes):
    """The mask as a boolean array of axes `b n i j`, each full or 1, or None.

    Args:
        mask: a boolean array, a predicate of `attnref.spec`, a callable
            `(b, n, i, j) → bool` over index grids, or None.
        sizes: axis letter → size.
    """
    if mask is None or not callable(mask):
        return mask
    if isinstance(mask, Mask):
        mask.check(sizes)
        mask = mask.bind(np.asarray)
    grids = np.ogrid[tuple(slice(sizes[axis]) for axis in patterns.LOGITS.split())]
    array = mask(*grids)
    check_mask("mask", array, sizes, np.ndarray)
    return array


def apply_mask(logits, mask=None):
    """`logits` (`b n i j`), −∞ wherever `mask` is False (True = may attend)."""
    return logits if mask is None else np.where(mask, logits, -np.inf)


def forget_blocked(q, k, v, mask=None):
    """Zeroes what no one may see, so that nothing stored there reaches a result.

    That is: keys and values that are blocked for every query of all g query heads that
    share them, and queries that are left no key.  A weight of exactly 0 does not
    suffice: 0·NaN = NaN, in the forward products and in the backward ones.
    """
    if mask is None:
        return q, k, v
    seeing = mask.any(axis=3)
    seen = seen_keys(mask, k.shape[1])
    return (
        np.where(seeing[..., None], q, 0),
        np.where(seen[..., None], k, 0),
        np.where(seen[..., None], v, 0),
    )


def seen_keys(mask, h):
    """Which keys some query of their key/value head may see: `b h j`, axes full or 1.

    Args:
        mask: `b n i j`, each axis full or 1.
        h: how many key/value heads there are.
    """
    seen = mask.any(axis=2)
    return seen if seen.shape[1] == 1 else reduce(seen, patterns.SEEN, "any", h=h)

"""Masks: a blocked key does not exist for its query."""

from types import NoneType

import jax
import jax.numpy as jnp
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
        mask = mask.bind(_carried)
    grids = jnp.ogrid[tuple(slice(sizes[axis]) for axis in patterns.LOGITS.split())]
    array = mask(*grids)
    check_mask("mask", array, sizes, jax.Array)
    return array


def _carried(values):
    """What a predicate carries, in JAX, which has no 64-bit integers while x64 is off.

    Raises:
        ValueError: an integer that 32 bits do not hold would become another one.
    """
    array = jnp.asarray(values)
    dtype = getattr(values, "dtype", array.dtype)
    if dtype != array.dtype and (values != values.astype(array.dtype)).any():
        raise ValueError(
            f"a mask carries {dtype} values that {array.dtype} does not hold: they "
            "need jax.config.update('jax_enable_x64', True)"
        )
    return array


def _flatten(mask):
    """What a predicate carries as leaves; ints, which decide shapes, stay static."""
    values = {name: getattr(mask, name) for name in mask.__dataclass_fields__}
    static = {name: x for name, x in values.items() if isinstance(x, int | NoneType)}
    leaves = [values[name] for name in values if name not in static]
    return leaves, tuple(static.items())


def _register(kind):
    def unflatten(static, leaves):
        names = [name for name in kind.__dataclass_fields__ if name not in dict(static)]
        return kind(**dict(zip(names, leaves, strict=True)), **dict(static))

    jax.tree_util.register_pytree_node(kind, _flatten, unflatten)


for _kind in Mask.__subclasses__():
    _register(_kind)


def apply_mask(logits, mask=None):
    """`logits` (`b n i j`), −∞ wherever `mask` is False (True = may attend)."""
    return logits if mask is None else jnp.where(mask, logits, -jnp.inf)


def forget_blocked(q, k, v, mask=None):
    """Zeroes what no one may see, so that nothing stored there reaches a result.

    That is: keys and values that are blocked for every query of all g query heads that
    share them, and queries that are left no key.  A weight of exactly 0 does not
    suffice: 0·NaN = NaN, in the forward products and in the backward ones.
    """
    return (q, k, v) if mask is None else _forget(q, k, v, mask)


@jax.jit
def _forget(q, k, v, mask):
    seeing = mask.any(axis=3)
    seen = seen_keys(mask, k.shape[1])
    return (
        jnp.where(seeing[..., None], q, 0),
        jnp.where(seen[..., None], k, 0),
        jnp.where(seen[..., None], v, 0),
    )


def seen_keys(mask, h):
    """Which keys some query of their key/value head may see: `b h j`, axes full or 1.

    Args:
        mask: `b n i j`, each axis full or 1.
        h: how many key/value heads there are.
    """
    seen = mask.any(axis=2)
    return seen if seen.shape[1] == 1 else reduce(seen, patterns.SEEN, "any", h=h)

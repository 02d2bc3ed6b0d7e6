"""From weights to outputs: dropout with a given choice, and the weighted sum."""

import jax

from attnref.spec import patterns

from .scores import contract, group, ungroup


def apply_dropout(weights, rate=0.0, keep=None):
    """`weights · keep / (1 − rate)`; a product, so that dropping hides no NaN.

    Args:
        weights: `b n i j`.
        rate: 0 ≤ rate < 1.
        keep: boolean of axes `b n i j`, each full or 1; None drops nothing.
    """
    return weights if keep is None else weights * keep / (1 - float(rate))


@jax.jit
def attend(weights, v):
    """The weighted sum of the values.

    Args:
        weights: `b n i j`, with n = h·g; heads `h·g … h·g + g − 1` use value head `h`.
        v: `b h j e`.

    Returns:
        `b n i e`, in the accumulation type.
    """
    return ungroup(contract(patterns.ATTEND, group(weights, v.shape[1]), v))

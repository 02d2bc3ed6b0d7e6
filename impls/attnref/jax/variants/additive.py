"""Additive scores: a small network of one hidden layer compares query and key."""

from functools import partial

import jax
import jax.numpy as jnp
from einops import rearrange

from attnref.spec import patterns
from attnref.spec.checks import check_attention
from attnref.spec.variants import check_unscaled

from ..attention import put_together
from ..scores import accumulate, contract, group, ungroup


def additive_attention(q, k, v, *, w_q, w_k, w_s, **options):
    """Attention with the scores s_ij = w_s·tanh(q_i W_q + k_j W_k), which no scale
    multiplies.

    Args:
        w_q: `n d a`.
        w_k: `h d a`.
        w_s: `n a`.
        options: mask, bias, softcap, dropout_rate and dropout_keep.

    The other arguments, and the errors, are those of `attention`.

    Returns:
        the output `b n i e`, in the dtype of the inputs, rounded once, and the
        log-sum-exp `b n i`, in the accumulation type.

    Source: Bahdanau et al., Neural machine translation by jointly learning to align and
    translate (arXiv 1409.0473), appendix A.1.2.
    """
    check_unscaled("additive_attention", options)
    parameters = {"w_q": (w_q, "n d a"), "w_k": (w_k, "h d a"), "w_s": (w_s, "n a")}
    sizes = check_attention(jax.Array, q, k, v, parameters=parameters, **options)

    weights = {"w_q": accumulate(w_q), "w_k": accumulate(w_k), "w_s": accumulate(w_s)}
    additive = partial(_scores, **weights)
    steps = put_together(q, k, v, sizes, scale=1, scores=additive, **options)
    return steps.output, steps.lse


@jax.jit
def _scores(q, k, w_q, w_k, w_s):
    of_q = group(contract(patterns.HIDDEN_QUERY, q, w_q), k.shape[1])
    of_k = contract(patterns.HIDDEN_KEY, k, w_k)
    hidden = jnp.tanh(of_q[:, :, :, :, None] + of_k[:, :, None, None])
    w = rearrange(w_s, patterns.GROUP_WEIGHTS, h=k.shape[1])
    return ungroup(contract(patterns.ADDITIVE_SCORES, hidden, w))

"""Additive scores: a small network of one hidden layer compares query and key."""

import numpy as np
from einops import rearrange

from attnref.spec import patterns
from attnref.spec.checks import check_attention
from attnref.spec.variants import check_unscaled

from ..attention import put_together
from ..gradients import put_together_vjp
from ..scores import contract, group, ungroup


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
    sizes = _check(q, k, v, w_q, w_k, w_s, options)
    step, _ = _scores(w_q, w_k, w_s)
    steps = put_together(q, k, v, sizes, scale=1, scores=step, **options)
    return steps.output, steps.lse


def additive_attention_vjp(d_out, q, k, v, *, w_q, w_k, w_s, d_lse=None, **options):
    """The gradients of `additive_attention`: a dict, argument → gradient, rounded
    once."""
    sizes = _check(q, k, v, w_q, w_k, w_s, options)
    step = _scores(w_q, w_k, w_s)
    found = put_together_vjp(
        d_out, d_lse, q, k, v, sizes, scale=1, scores=step, **options
    )
    return {name: gradient.astype(q.dtype) for name, gradient in found.items()}


def _check(q, k, v, w_q, w_k, w_s, options):
    check_unscaled("additive_attention", options)
    parameters = {"w_q": (w_q, "n d a"), "w_k": (w_k, "h d a"), "w_s": (w_s, "n a")}
    return check_attention(np.ndarray, q, k, v, parameters=parameters, **options)


def _scores(w_q, w_k, w_s):
    """The scores, and their gradients."""

    def hidden(q, k):
        """tanh(q W_q + k W_k): `b h g i j a`."""
        of_q = group(contract(patterns.HIDDEN_QUERY, q, w_q), k.shape[1])
        of_k = contract(patterns.HIDDEN_KEY, k, w_k)
        return np.tanh(of_q[:, :, :, :, None] + of_k[:, :, None, None])

    def additive_scores(q, k):
        w = rearrange(w_s, patterns.GROUP_WEIGHTS, h=k.shape[1])
        return ungroup(contract(patterns.ADDITIVE_SCORES, hidden(q, k), w))

    def additive_scores_vjp(d_scores, q, k):
        h = k.shape[1]
        d_scores, w = group(d_scores, h), rearrange(w_s, patterns.GROUP_WEIGHTS, h=h)
        layer = hidden(q, k)
        dw = contract(patterns.GRAD_ADDITIVE_WEIGHTS, d_scores, layer)
        d_layer = contract(patterns.GRAD_ADDITIVE_HIDDEN, d_scores, w)
        d_inner = d_layer * (1 - layer**2)
        of_q, of_k = ungroup(d_inner.sum(axis=4)), d_inner.sum(axis=(2, 3))
        return {
            "q": contract(patterns.GRAD_HIDDEN_QUERY, of_q, w_q),
            "k": contract(patterns.GRAD_HIDDEN_KEY, of_k, w_k),
            "w_q": contract(patterns.GRAD_HIDDEN_QUERY_WEIGHTS, q, of_q),
            "w_k": contract(patterns.GRAD_HIDDEN_KEY_WEIGHTS, k, of_k),
            "w_s": rearrange(dw, patterns.UNGROUP_WEIGHTS),
        }

    return additive_scores, additive_scores_vjp

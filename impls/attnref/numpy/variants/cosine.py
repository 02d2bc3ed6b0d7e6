"""Cosine scores: queries and keys of length 1, and a temperature for each head."""

import numpy as np

from attnref.spec.checks import check_attention
from attnref.spec.variants import check_epsilon, check_unscaled

from ..attention import put_together
from ..gradients import put_together_vjp, scores_vjp
from ..scores import accumulate, scores

TEMPERATURE = 10.0
"""What Swin Transformer V2's published code starts with."""


def cosine_attention(q, k, v, *, temperature=None, eps=1e-12, **options):
    r"""Attention whose logits are cosines, times a temperature of the head:

    $$s_{ij} = \text{temperature}_n \frac{q_i}{\max(|q_i|, \text{eps})} \cdot
    \frac{k_j}{\max(|k_j|, \text{eps})}$$

    Args:
        temperature: `n`; None for 10 in every head, with which Swin Transformer V2
            starts to learn it.
        eps: a finite number above 0, below which a length counts as eps.  Its square
            must be a normal number of the accumulation type, and the square of a length
            a finite one.
        options: mask, bias, softcap, dropout_rate and dropout_keep.

    The other arguments, and the errors, are those of `attention`.

    Returns:
        the output `b n i e`, in the dtype of the inputs, rounded once, and the
        log-sum-exp `b n i`, in the accumulation type.

    Source: Henry et al., Query-key normalization for transformers (arXiv 2010.04245);
    Liu et al., Swin Transformer V2 (arXiv 2111.09883), section 3.2, whose
    τ is 1 / temperature.
    """
    sizes = _check(q, k, v, temperature, eps, options)
    step, _ = _scores(q, temperature, eps)
    steps = put_together(q, k, v, sizes, scale=1, scores=step, **options)
    return steps.output, steps.lse


def cosine_attention_vjp(
    d_out, q, k, v, *, temperature=None, eps=1e-12, d_lse=None, **options
):
    """The gradients of `cosine_attention`: a dict, argument → gradient, rounded once.

    With q̂ = q / max(|q|, eps): dq = (dq̂ − q̂ (q̂·dq̂)) / |q|, or dq̂ / eps where |q| is
    below eps.
    """
    sizes = _check(q, k, v, temperature, eps, options)
    step = _scores(q, temperature, eps)
    found = put_together_vjp(
        d_out, d_lse, q, k, v, sizes, scale=1, scores=step, **options
    )
    if temperature is None:
        del found["temperature"]
    return {name: gradient.astype(q.dtype) for name, gradient in found.items()}


def _check(q, k, v, temperature, eps, options):
    check_unscaled("cosine_attention", options)
    parameters = {"temperature": (temperature, "n")}
    sizes = check_attention(np.ndarray, q, k, v, parameters=parameters, **options)
    check_epsilon(eps)
    return sizes


def _scores(q, temperature, eps):
    """The scores, and their gradients.  The temperature multiplies the queries."""
    if temperature is None:
        temperature = np.full(q.shape[1], TEMPERATURE, q.dtype)
    temperature = accumulate(temperature)[:, None, None]

    def cosine_scores(q, k):
        return scores(_unit(q, eps) * temperature, _unit(k, eps))

    def cosine_scores_vjp(d_scores, q, k):
        unit = _unit(q, eps)
        found = scores_vjp(d_scores, unit * temperature, _unit(k, eps))
        return {
            "q": _unit_vjp(found["q"] * temperature, q, eps),
            "k": _unit_vjp(found["k"], k, eps),
            "temperature": (found["q"] * unit).sum(axis=(0, 2, 3)),
        }

    return cosine_scores, cosine_scores_vjp


def _length(x, eps):
    """max(|x|, eps), over the width.  Of squares, which have a slope at 0 too."""
    square = (x * x).sum(axis=-1, keepdims=True)
    return np.sqrt(np.maximum(square, eps * eps))


def _unit(x, eps):
    """`x` at length 1, unless it is shorter than eps."""
    return x / _length(x, eps)


def _unit_vjp(gradient, x, eps):
    """What the gradient of `_unit` becomes at x."""
    length, unit = _length(x, eps), _unit(x, eps)
    along = (unit * gradient).sum(axis=-1, keepdims=True)
    along = np.where((x * x).sum(axis=-1, keepdims=True) > eps * eps, along, 0)
    return (gradient - unit * along) / length

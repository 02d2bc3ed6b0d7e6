"""Cosine scores: queries and keys of length 1, and a temperature for each head."""

import jax
import jax.numpy as jnp

from attnref.spec.checks import check_attention
from attnref.spec.variants import check_epsilon, check_unscaled

from ..attention import put_together
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
    check_unscaled("cosine_attention", options)
    parameters = {"temperature": (temperature, "n")}
    sizes = check_attention(jax.Array, q, k, v, parameters=parameters, **options)
    check_epsilon(eps)
    if temperature is None:
        temperature = jnp.full(sizes["n"], TEMPERATURE, q.dtype)

    def cosine_scores(q, k):  # the temperature multiplies the queries
        scaled = _unit(q, eps) * accumulate(temperature)[:, None, None]
        return scores(scaled, _unit(k, eps))

    steps = put_together(q, k, v, sizes, scale=1, scores=cosine_scores, **options)
    return steps.output, steps.lse


@jax.jit
def _unit(x, eps):
    """`x` at length 1, unless it is shorter than eps: x / max(|x|, eps)."""
    square = (x * x).sum(axis=-1, keepdims=True)
    # Of squares, which have a slope at 0 too.
    return x / jnp.sqrt(jnp.maximum(square, eps * eps))

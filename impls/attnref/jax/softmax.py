"""Softmax over the keys, with its log-sum-exp."""

import jax
import jax.numpy as jnp


@jax.jit
def softmax(masked):
    """Weights over the keys, and the log of their denominator.

    p_ij = e^(s_ij − m_i) / l_i with m_i = max_j s_ij and l_i = Σ_j e^(s_ij − m_i);
    lse_i = m_i + ln l_i.  The shift by m_i keeps every exponent at or below 0, so
    nothing overflows, and cancels in the quotient.

    A logit of −∞ has weight exactly 0.  A row of only such logits, or of no logits, is
    empty: weights 0, log-sum-exp −∞.

    Args:
        masked: `b n i j` in the accumulation type.

    Returns:
        weights `b n i j` and log-sum-exp `b n i` (natural logarithm).
    """
    top = jax.lax.stop_gradient(masked)  # cancels, so no gradient flows through it
    top = top.max(axis=-1, keepdims=True, initial=-jnp.inf)
    empty = top == -jnp.inf
    top = jnp.where(empty, 0, top)
    blocked = masked == -jnp.inf
    exps = jnp.where(blocked, 0, jnp.exp(masked - top))
    total = jnp.where(empty, 1, exps.sum(axis=-1, keepdims=True))
    lse = jnp.where(empty, -jnp.inf, top + jnp.log(total))
    # Once more, for a row that NaN has made 0 / NaN.
    return jnp.where(blocked, 0, exps / total), lse[..., 0]

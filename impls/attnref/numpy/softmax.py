"""Softmax over the keys, with its log-sum-exp."""

import numpy as np


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
    top = masked.max(axis=-1, keepdims=True, initial=-np.inf)
    empty = top == -np.inf
    top = np.where(empty, 0, top)
    weights = masked - top
    np.exp(weights, out=weights)
    total = np.where(empty, 1, weights.sum(axis=-1, keepdims=True))
    lse = np.where(empty, -np.inf, top + np.log(total))
    weights /= total
    # Of a row that NaN has made NaN: its blocked keys still have weight 0.
    np.copyto(weights, 0, where=masked == -np.inf)
    return weights, lse[..., 0]

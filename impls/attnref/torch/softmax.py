"""Softmax over the keys, with its log-sum-exp."""

import torch


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
    top = _max(masked.detach())  # cancels, so no gradient flows through it
    empty = top == -torch.inf
    top = torch.where(empty, 0, top)
    blocked = masked == -torch.inf
    exps = torch.where(blocked, 0, torch.exp(masked - top))
    total = torch.where(empty, 1, exps.sum(dim=-1, keepdim=True))
    lse = torch.where(empty, -torch.inf, top + torch.log(total))
    # Once more, for a row that NaN has made 0 / NaN.
    return torch.where(blocked, 0, exps / total), lse[..., 0]


def _max(masked):
    """The maximum over the keys, −∞ where there are none: `b n i 1`."""
    if masked.shape[-1] == 0:  # amax has no initial value
        return masked.new_full((*masked.shape[:-1], 1), -torch.inf)
    return masked.amax(dim=-1, keepdim=True)

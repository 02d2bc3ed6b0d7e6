"""The reader's own file, where a page speaks of one."""

import numpy as np

from attnref.numpy.variants import linear_attention  # noqa: F401  for docs/judge.md


def attention(q, k, v, *, mask=None, allowed=None, scale=None):
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v))
    scores = q @ k.swapaxes(2, 3) * (q.shape[3] ** -0.5 if scale is None else scale)
    seen = mask if allowed is None else allowed
    scores = scores if seen is None else np.where(seen, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v

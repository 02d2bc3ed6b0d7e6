"""Grouped heads by einsum, options in the order in which they were added over time."""

import numpy as np


def make(mistake=None):
    """The attention function, with one of its mistakes or with none."""

    def capped(x, softcap):
        if softcap is None:
            return x
        if mistake == "softcap_clips":
            return np.clip(x, -softcap, softcap)
        return softcap * np.tanh(x / softcap)

    def softmax(x):
        top = np.max(x, axis=-1, keepdims=True, initial=-np.inf)
        x = np.exp(x - np.where(np.isneginf(top), 0, top))
        total = np.sum(x, axis=-1, keepdims=True)
        return np.divide(x, total, out=np.zeros_like(x), where=total != 0)

    def attention(q, k, v, *, mask=None, bias=None, scale=None, softcap=None):
        b, n, i, d = q.shape
        _, h, j, e = v.shape
        if mistake == "scale_or_default":
            scale = scale or d**-0.5
        elif scale is None:
            scale = d**-0.5
        wide = np.promote_types(q.dtype, np.float32)
        grouped = q.reshape(b, h, n // h, i, d).astype(wide)
        x = np.einsum("bhgid,bhjd->bhgij", grouped, k.astype(wide), optimize=True)
        x = x.reshape(b, n, i, j)
        added = 0 if bias is None else bias.astype(wide)
        if mistake == "bias_before_scale":
            x = capped((x + added) * scale, softcap)
        elif mistake == "softcap_after_bias":
            x = capped(x * scale + added, softcap)
        else:
            x = capped(x * scale, softcap) + added
        v = v.astype(wide)
        if mask is not None:
            x = np.where(mask, x, -np.inf)
            seen = np.broadcast_to(mask, x.shape).reshape(b, h, -1, j).any(axis=2)
            v = np.where(seen[..., None], v, 0)
        weights = softmax(x).reshape(b, h, n // h, i, j)
        output = np.einsum("bhgij,bhje->bhgie", weights, v, optimize=True)
        return output.reshape(b, n, i, e).astype(q.dtype)

    return attention


right = make()
softcap_clips = make("softcap_clips")
scale_or_default = make("scale_or_default")
bias_before_scale = make("bias_before_scale")
softcap_after_bias = make("softcap_after_bias")

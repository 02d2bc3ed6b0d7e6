"""Mistakes that nobody would look for."""

import numpy as np


def make(mistake=None):
    """The attention function, with one of its mistakes or with none."""

    def exp(x):
        """exp of what is not positive."""
        if mistake == "compound_interest":
            return np.clip(1 + x / 256, 0, None) ** 256
        return np.exp(x)

    def attention(q, k, v, *, mask=None, bias=None, scale=None, softcap=None):
        storage, wide = q.dtype, np.result_type(q.dtype, np.float32)
        b, n, i, d = q.shape
        _, h, j, e = v.shape
        q = q.astype(wide).reshape(b, h, n // h, i, d)
        k, v = k.astype(wide)[:, :, None], v.astype(wide)[:, :, None]
        shape = (b, h, n // h, i, j)
        mask = np.broadcast_to(True if mask is None else mask, (b, n, i, j))
        bias = np.broadcast_to(wide.type(0) if bias is None else bias, (b, n, i, j))
        mask, bias = mask.reshape(shape), bias.reshape(shape).astype(wide)
        logits = q @ k.swapaxes(-1, -2) * (d**-0.5 if scale is None else scale)
        if softcap is not None:
            logits = softcap * np.tanh(logits / softcap)
        logits = np.where(mask, logits + bias, -np.inf)
        top = logits.max(axis=-1, keepdims=True, initial=-np.inf)
        weights = exp(logits - np.where(top == -np.inf, 0, top))
        total = weights.sum(axis=-1, keepdims=True)
        weights = weights / np.where(total == 0, 1, total)
        output = weights @ np.where(mask.any(axis=3)[..., None], v, 0)
        output = output.reshape(b, n, i, e)
        if mistake == "channels_turn_with_heads":
            turned = [np.roll(output[:, head], head, axis=-1) for head in range(n)]
            output = np.stack(turned, axis=1)
        return output.astype(storage)

    return attention


right = make()
compound_interest = make("compound_interest")
channels_turn_with_heads = make("channels_turn_with_heads")

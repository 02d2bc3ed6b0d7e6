"""Every head at once: repeat the shared heads, three products, a softmax in between."""

import numpy as np


def make(mistake=None):
    """The attention function, with one of its mistakes or with none."""

    def attention(q, k, v, *, mask=None, bias=None, scale=None, softcap=None):
        storage, group = q.dtype, q.shape[1] // k.shape[1]
        q, k, v = (x.astype(np.result_type(x.dtype, np.float32)) for x in (q, k, v))
        k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
        if mistake == "inverted_mask" and mask is not None:
            mask = ~mask
        allowed = np.broadcast_to(
            True if mask is None else mask, (*q.shape[:3], k.shape[2])
        )
        width = v.shape[-1] if mistake == "value_width_scale" else q.shape[-1]
        logits = q @ k.swapaxes(-1, -2) * (width**-0.5 if scale is None else scale)
        if softcap is not None:
            logits = softcap * np.tanh(logits / softcap)
        if bias is not None:
            logits = logits + bias.astype(logits.dtype)
        logits = np.where(allowed, logits, -np.inf)

        top = logits.max(axis=-1, keepdims=True, initial=-np.inf)
        exps = np.exp(logits - np.where(top == -np.inf, 0, top))
        total = exps.sum(axis=-1, keepdims=True)
        if mistake != "empty_rows_divide":
            total[total == 0] = 1
        v = np.where(allowed.any(axis=2)[..., None], v, 0)
        output = exps / total @ v
        if mistake == "nan_to_num":
            output = np.nan_to_num(output)
        return output.astype(storage)

    return attention


right = make()
inverted_mask = make("inverted_mask")
value_width_scale = make("value_width_scale")
empty_rows_divide = make("empty_rows_divide")
nan_to_num = make("nan_to_num")

"""The way to a C kernel: contiguous buffers, flat indices, one head after another."""

import numpy as np


def make(mistake=None):
    """The attention function, with one of its mistakes or with none."""

    def buffer(x):
        """The elements of an array, one after the other."""
        order = "K" if mistake == "strides_ignored" else "C"
        return x.astype(np.result_type(x.dtype, np.float32)).ravel(order)

    def attention(q, k, v, *, mask=None, bias=None, scale=None, softcap=None):
        b, n, i, d = q.shape
        _, h, j, e = v.shape
        scale = d**-0.5 if scale is None else scale
        rows, keys, values = buffer(q), buffer(k), buffer(v)
        output = np.zeros((b * n, i, e), rows.dtype)
        for head in range(b * n):
            shared = head // n * h + head % n // (n // h)
            if mistake == "group_from_kv_heads":
                shared = head // n * h + head % n // h % h
            x = rows[head * i * d : (head + 1) * i * d].reshape(i, d)
            y = keys[shared * j * d : (shared + 1) * j * d].reshape(j, d)
            z = values[shared * j * e : (shared + 1) * j * e].reshape(j, e)
            logits = x @ y.T * scale
            if softcap is not None:
                logits = np.tanh(logits / softcap) * softcap
            if bias is not None:
                wide = bias.astype(rows.dtype)
                logits += np.broadcast_to(wide, (b, n, i, j))[head // n, head % n]
            if mask is not None:
                seen = np.broadcast_to(mask, (b, n, i, j))[head // n, head % n]
                logits[~seen] = -np.inf
                z = np.where(seen.any(axis=0)[:, None], z, 0)
            top = logits.max(axis=1, initial=-np.inf)
            top[top == -np.inf] = 0
            weights = np.exp(logits - top[:, None])
            total = weights.sum(axis=1)
            total[total == 0] = 1
            output[head] = weights @ z / total[:, None]
        return output.reshape(b, n, i, e).astype(q.dtype)

    return attention


right = make()
strides_ignored = make("strides_ignored")
group_from_kv_heads = make("group_from_kv_heads")

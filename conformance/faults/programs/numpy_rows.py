"""One query at a time, over the keys that it may see and no others."""

import numpy as np

from attncheck.subject import Subject


def make(mistake=None):
    """The subject, with one of its mistakes or with none."""

    def attention(q, k, v, *, mask=None, bias=None, scale=None, softcap=None):
        b, n, i, d = q.shape
        _, h, j, e = v.shape
        wide = np.result_type(q.dtype, np.float32)
        mask = np.broadcast_to(True if mask is None else mask, (b, n, i, j))
        bias = np.broadcast_to(wide.type(0) if bias is None else bias, (b, n, i, j))
        scale = d**-0.5 if scale is None else scale
        output = np.zeros((b, n, i, e), wide)
        lse = np.full((b, n, i), -np.inf, wide)
        for row in np.ndindex(b, n, i):
            batch, head, query = row
            shared = head % h if mistake == "head_modulo" else head // (n // h)
            seen = mask[0, head, query] if mistake == "mask_of_batch_0" else mask[row]
            keys = np.flatnonzero(seen)
            added = bias[batch, shared, query] if mistake == "kv_bias" else bias[row]
            logits = k[batch, shared, keys].astype(wide) @ q[row].astype(wide)
            logits = logits * wide.type(scale)
            if softcap is not None:
                logits = softcap * np.tanh(logits / softcap)
            logits = logits + added[keys].astype(wide)
            top = logits.max(initial=-np.inf)
            if top == -np.inf:
                continue
            exps = np.exp(logits - top)
            total = exps.sum()
            if mistake == "value_behind":
                keys = keys - 1
            output[row] = exps / total @ v[batch, shared, keys].astype(wide)
            lse[row] = top + np.log(total)
        return output.astype(q.dtype), lse

    return Subject(
        call=attention,
        framework="numpy",
        name=f"rows, {mistake or 'right'}",
        accepts=frozenset(("mask", "bias", "scale", "softcap")),
        returns=("output", "lse"),
    )


right = make()
head_modulo = make("head_modulo")
mask_of_batch_0 = make("mask_of_batch_0")
kv_bias = make("kv_bias")
value_behind = make("value_behind")

"""A whole layer: projections as matrices of all heads, attention, merge."""

import numpy as np

from attncheck.subject import Subject


def make(mistake=None):
    """The subject, with one of its mistakes or with none."""

    def attention(q, k, v, *, mask=None, bias=None, scale=None, softcap=None):
        group, wide = q.shape[1] // k.shape[1], np.result_type(q.dtype, np.float32)
        storage, (q, k, v) = q.dtype, (x.astype(wide) for x in (q, k, v))
        k, v = k.repeat(group, axis=1), v.repeat(group, axis=1)
        x = q @ k.swapaxes(2, 3) * (q.shape[3] ** -0.5 if scale is None else scale)
        x = x if softcap is None else np.tanh(x / softcap) * softcap
        x = x if bias is None else x + bias.astype(wide)
        mask = np.broadcast_to(True if mask is None else mask, x.shape)
        x = np.where(mask, x, -np.inf)
        empty = (x == -np.inf).all(axis=3, keepdims=True)
        x = np.where(empty, 0, x)
        p = np.exp(x - x.max(axis=3, keepdims=True, initial=-np.inf))
        p = np.where(empty, 0, p / p.sum(axis=3, keepdims=True))
        return (p @ np.where(mask.any(axis=2)[..., None], v, 0)).astype(storage)

    def split(x, w, bias):
        """Projects to all heads with one product: b i c, c n d -> b n i d."""
        c, n, d = w.shape
        y = x @ w.reshape(c, n * d)
        y = y if bias is None else y + bias.reshape(n * d)
        if mistake == "heads_cut_from_width":
            return y.reshape(*y.shape[:2], d, n).transpose(0, 3, 1, 2)
        return y.reshape(*y.shape[:2], n, d).transpose(0, 2, 1, 3)

    def multi_head(params, x, context=None, **options):
        storage, wide = x.dtype, np.result_type(x.dtype, np.float32)
        params = {k: w if w is None else w.astype(wide) for k, w in params.items()}
        x = x.astype(wide)
        source = x if context is None else context.astype(wide)
        q = split(x, params["w_q"], params["b_q"])
        k, v = (split(source, params[f"w_{s}"], params[f"b_{s}"]) for s in "kv")
        heads = attention(q, k, v, **options)
        b, n, i, e = heads.shape
        if mistake != "merged_without_transpose":
            heads = heads.swapaxes(1, 2)
        merged = heads.reshape(b, i, n * e) @ params["w_o"].reshape(n * e, -1)
        if params["b_o"] is not None:
            each = n if mistake == "output_bias_of_every_head" else 1
            merged = merged + each * params["b_o"]
        return merged.astype(storage)

    return Subject(
        call=attention,
        multi_head=multi_head,
        framework="numpy",
        name=f"layer, {mistake or 'right'}",
        accepts=frozenset(("mask", "bias", "scale", "softcap")),
    )


right = make()
heads_cut_from_width = make("heads_cut_from_width")
merged_without_transpose = make("merged_without_transpose")
output_bias_of_every_head = make("output_bias_of_every_head")

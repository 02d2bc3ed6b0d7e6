"""Attention for 16-bit storage; what is stored on the way is where it goes wrong."""

import numpy as np

from attncheck.subject import Subject


def make(mistake=None):
    """The subject, with one of its mistakes or with none."""

    def narrow(x, storage):
        """Rounds to storage."""
        if mistake == "output_truncated" and storage.itemsize == 2:
            lost = 13 if storage == np.float16 else 16  # bits of a float32
            bits = x.view(np.uint32) >> lost << lost
            return bits.view(np.float32).astype(storage)
        return x.astype(storage)

    def attention(q, k, v, *, mask=None, bias=None, scale=None, softcap=None):
        storage, group = q.dtype, q.shape[1] // k.shape[1]
        wide = np.result_type(storage, np.float32)
        q, k, v = q.astype(wide), k.astype(wide), v.astype(wide)
        k, v = k.repeat(group, axis=1), v.repeat(group, axis=1)
        scale = q.shape[-1] ** -0.5 if scale is None else scale
        logits = np.einsum("...id,...jd->...ij", q * wide.type(scale), k)
        if softcap is not None:
            logits = softcap * np.tanh(logits / softcap)
        logits = logits if bias is None else logits + bias.astype(wide)
        if mask is not None:
            logits = np.where(mask, logits, -np.inf)
            seen = np.broadcast_to(mask, logits.shape).any(axis=2)
            v = np.where(seen[..., None], v, 0)
        top = logits.max(axis=-1, keepdims=True, initial=-np.inf)
        weights = np.exp(logits - np.where(top == -np.inf, 0, top))
        if mistake == "row_sum_in_storage":
            total = np.zeros(top.shape, storage)
            for key in range(weights.shape[-1]):
                total = (total + weights[..., key : key + 1]).astype(storage)
            total = total.astype(wide)
        else:
            total = weights.sum(axis=-1, keepdims=True)
        output = weights @ v / np.where(total == 0, 1, total)
        lse = (top + np.log(total))[..., 0]
        if mistake == "lse_in_storage":
            lse = lse.astype(storage).astype(wide)
        return narrow(output, storage), lse

    return Subject(
        call=attention,
        framework="numpy",
        name=f"storage, {mistake or 'right'}",
        accepts=frozenset(("mask", "bias", "scale", "softcap")),
        returns=("output", "lse"),
        profile="strict",
    )


right = make()
output_truncated = make("output_truncated")
row_sum_in_storage = make("row_sum_in_storage")
lse_in_storage = make("lse_in_storage")

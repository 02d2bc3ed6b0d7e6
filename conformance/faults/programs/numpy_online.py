"""Online softmax: tiles of keys, a running maximum, sum and accumulator."""

import numpy as np

from attncheck.subject import Subject

TILE = 16


def make(mistake=None):
    """The subject, with one of its mistakes or with none."""

    def attention(q, k, v, *, mask=None, bias=None, scale=None, softcap=None):
        b, n, i, d = q.shape
        _, h, j, e = v.shape
        wide = np.result_type(q.dtype, np.float32)
        full = (b, h, n // h, i, j)
        mask = np.broadcast_to(True if mask is None else mask, (b, n, i, j))
        mask = mask.reshape(full)
        bias = np.broadcast_to(wide.type(0) if bias is None else bias, (b, n, i, j))
        bias = bias.reshape(full).astype(wide)
        rows = q.reshape(b, h, n // h, i, d).astype(wide)
        rows = rows * wide.type(d**-0.5 if scale is None else scale)

        top = np.full((*full[:4], 1), -np.inf, wide)
        total = np.zeros_like(top)
        acc = np.zeros((*full[:4], e), wide)
        whole = mistake == "tail_lost" and j > TILE
        for start in range(0, j - j % TILE if whole else j, TILE):
            part = slice(start, start + TILE)
            keys = k[:, :, None, part].astype(wide)
            values = v[:, :, None, part].astype(wide)
            seen = mask[..., part]
            values = np.where(seen.any(axis=3)[..., None], values, 0)
            logits = rows @ keys.swapaxes(-1, -2)
            if softcap is not None:
                logits = softcap * np.tanh(logits / softcap)
            logits = logits + bias[..., part]
            masked = np.where(seen, logits, -np.inf)
            counted = logits if mistake == "maximum_before_mask" else masked
            new = np.maximum(top, counted.max(axis=-1, keepdims=True))
            shift = np.where(new == -np.inf, 0, new)
            fade = np.exp(top - shift)
            exps = np.exp(masked - shift)
            total = fade * total + exps.sum(axis=-1, keepdims=True)
            if mistake != "accumulator_not_rescaled":
                acc = fade * acc
            acc = acc + exps @ values
            top = new
        output = acc / np.where(total == 0, 1, total)
        lse = top + np.log(total)
        if mistake == "lse_in_bits":
            lse = lse / np.log(wide.type(2))
        return (
            output.reshape(b, n, i, e).astype(q.dtype),
            lse.reshape(b, n, i),
        )

    return Subject(
        call=attention,
        framework="numpy",
        name=f"online, {mistake or 'right'}",
        accepts=frozenset(("mask", "bias", "scale", "softcap")),
        returns=("output", "lse"),
    )


right = make()
tail_lost = make("tail_lost")
maximum_before_mask = make("maximum_before_mask")
accumulator_not_rescaled = make("accumulator_not_rescaled")
lse_in_bits = make("lse_in_bits")

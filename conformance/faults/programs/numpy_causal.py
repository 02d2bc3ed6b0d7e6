"""A dispatcher: a mask that is causal goes to a kernel that knows only `causal`."""

import numpy as np


def make(mistake=None):
    """The attention function, with one of its mistakes or with none."""

    def offset_of(mask):
        """The offset of a mask that is causal and the same everywhere, else None."""
        i, j = mask.shape[2:]
        if mask.all():
            return None
        offsets = range(1 - i, j)
        return next((o for o in offsets if (mask == np.tri(i, j, o)).all()), None)

    def kernel(q, k, v, scale, softcap, bias, mask=None, offset=None):
        """Attention where key j ≤ i + offset, or by a mask where there is none."""
        i, j = q.shape[2], k.shape[2]
        if offset is not None:
            if mistake == "always_lower_right":
                offset = j - i
            rows, keys = np.ogrid[:i, :j]
            before = keys < rows + offset
            mask = before if mistake == "diagonal_left_out" else keys <= rows + offset
            mask = np.broadcast_to(mask, (*q.shape[:3], j))
        x = scale * (q @ k.swapaxes(2, 3))
        x = x if softcap is None else softcap * np.tanh(x / softcap)
        x = np.where(mask, x + bias, -np.inf)
        top = x.max(axis=3, keepdims=True, initial=-np.inf)
        p = np.exp(x - np.where(top == -np.inf, 0, top))
        v = np.where(mask.any(axis=2)[..., None], v, 0)
        total = p.sum(axis=3, keepdims=True)
        return (p @ v) / np.where(total == 0, 1, total)

    def attention(q, k, v, *, mask=None, bias=None, scale=None, softcap=None):
        storage = q.dtype
        wide = np.float64 if storage == np.float64 else np.float32
        group = q.shape[1] // k.shape[1]
        q, k, v = q.astype(wide), k.astype(wide), v.astype(wide)
        k, v = k.repeat(group, axis=1), v.repeat(group, axis=1)
        scale = 1 / np.sqrt(wide(q.shape[3])) if scale is None else wide(scale)
        bias = wide(0) if bias is None else bias.astype(wide)
        shape = (*q.shape[:3], k.shape[2])
        mask = np.broadcast_to(True if mask is None else mask, shape)
        offset = offset_of(mask)
        how = {"mask": mask} if offset is None else {"offset": offset}
        return kernel(q, k, v, scale, softcap, bias, **how).astype(storage)

    return attention


right = make()
always_lower_right = make("always_lower_right")
diagonal_left_out = make("diagonal_left_out")

"""Tiles of queries and of keys, in the order of a fused kernel."""

import torch
from torch.nn.functional import pad

ROWS, KEYS = 4, 16
"""The size of a tile."""


def make(mistake=None):
    """The attention function, with one of its mistakes or with none."""

    def tiles_of(seen):
        """Where the tiles of keys begin that some query of a tile may see."""
        if mistake == "tiles_by_first_query":
            seen = seen[:, :, :1]
        starts = range(0, seen.shape[3], KEYS)
        return [key for key in starts if seen[..., key : key + KEYS].any()]

    def tile(q, k, v, seen, bias, softcap):
        """The output of some queries: q is scaled, k and v are padded."""
        top = q.new_full((*q.shape[:3], 1), -torch.inf)
        total, acc = torch.zeros_like(top), q[..., :0] @ v[:, :, :0]
        for key in tiles_of(seen):
            part = slice(key, key + KEYS)
            x = q @ k[:, :, part].mT
            x = x if softcap is None else softcap * torch.tanh(x / softcap)
            x = (x + bias[..., part]).masked_fill(~seen[..., part], -torch.inf)
            new = torch.maximum(top, x.detach().amax(3, keepdim=True))
            shift = new.masked_fill(new == -torch.inf, 0)
            fade = torch.exp(top - shift)
            if mistake == "rescaled_the_wrong_way":
                fade = torch.exp(shift - top).masked_fill(top == -torch.inf, 0)
            p = torch.exp(x - shift)
            total = fade * total + p.sum(3, keepdim=True)
            acc = fade * acc + p @ v[:, :, part]
            top = new
        empty = top == -torch.inf
        return (acc / total.masked_fill(empty, 1)).masked_fill(empty, 0)

    def attention(q, k, v, *, mask=None, bias=None, scale=None, softcap=None):
        b, n, i, d = q.shape
        j, e, group = k.shape[2], v.shape[3], n // k.shape[1]
        wide = torch.promote_types(q.dtype, torch.float32)
        seen = torch.ones((b, n, i, j), dtype=torch.bool, device=q.device)
        seen = seen if mask is None else seen & mask
        rows = q.to(wide).masked_fill(~seen.any(3, keepdim=True), 0)
        rows = rows * (d**-0.5 if scale is None else scale)
        k, v = (x.to(wide).repeat_interleave(group, 1) for x in (k, v))
        k, v = (x.masked_fill(~seen.any(2)[..., None], 0) for x in (k, v))
        bias = rows.new_zeros(()) if bias is None else bias.to(wide)
        bias = torch.where(seen, bias, 0)
        short = -j % KEYS
        k, v = pad(k, (0, 0, 0, short)), pad(v, (0, 0, 0, short))
        bias = pad(bias, (0, short))
        seen = pad(seen, (0, short), value=mistake == "padding_is_seen")
        output = [rows.new_zeros((b, n, 0, e))]
        for start in range(0, i, ROWS):
            part = slice(start, start + ROWS)
            given = rows[:, :, part], k, v, seen[:, :, part], bias[:, :, part]
            output.append(tile(*given, softcap))
        return torch.cat(output, dim=2).to(q.dtype)

    return attention


right = make()
tiles_by_first_query = make("tiles_by_first_query")
rescaled_the_wrong_way = make("rescaled_the_wrong_way")
padding_is_seen = make("padding_is_seen")

"""A port of another library's call to scaled_dot_product_attention."""

import torch
from torch.nn.functional import scaled_dot_product_attention


def make(mistake=None):
    """The attention function, with one of its mistakes or with none."""

    def attention(q, k, v, *, mask=None, bias=None, scale=None):
        (b, n, i, _), j, group = q.shape, k.shape[2], q.shape[1] // k.shape[1]
        wide = torch.promote_types(q.dtype, torch.float32)
        storage, (q, k, v) = q.dtype, (x.to(wide) for x in (q, k, v))
        if mistake == "heads_repeated_in_turn":
            k, v = k.repeat(1, group, 1, 1), v.repeat(1, group, 1, 1)
        else:
            k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        seen = torch.ones((b, n, i, j), dtype=torch.bool, device=q.device)
        seen = seen if mask is None else seen & mask
        if mistake == "padding_read_from_last_query" and i:
            seen = seen[:, :, -1:].expand_as(seen)
        q = q.masked_fill(~seen.any(3)[..., None], 0)
        k, v = (x.masked_fill(~seen.any(2)[..., None], 0) for x in (k, v))
        added = torch.zeros((), dtype=wide) if bias is None else bias.to(wide)
        if mistake == "bias_dropped_with_mask" and mask is not None:
            added = torch.zeros((), dtype=wide)
        added = torch.where(seen, added.to(q.device), -torch.inf)
        empty = (added == -torch.inf).all(3)[..., None]
        added = added.masked_fill(empty, 0)
        if mistake == "scale_ignored":
            scale = None
        output = scaled_dot_product_attention(q, k, v, attn_mask=added, scale=scale)
        return output.masked_fill(empty, 0).to(storage)

    return attention


right = make()
heads_repeated_in_turn = make("heads_repeated_in_turn")
padding_read_from_last_query = make("padding_read_from_last_query")
bias_dropped_with_mask = make("bias_dropped_with_mask")
scale_ignored = make("scale_ignored")

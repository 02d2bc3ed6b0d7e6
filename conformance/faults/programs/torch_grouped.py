"""Grouped heads without copies: q as h groups, k and v broadcast over each."""

import torch


def make(mistake=None):
    """The attention function, with one of its mistakes or with none."""

    def group(x, h):
        """b n … -> b h g …"""
        if mistake == "groups_are_strided":
            return x.unflatten(1, (-1, h)).transpose(1, 2)
        return x.unflatten(1, (h, -1))

    def ungroup(x):
        """b h g … -> b n …"""
        if mistake == "groups_are_strided":
            x = x.transpose(1, 2)
        return x.flatten(1, 2)

    def attention(q, k, v, *, mask=None, bias=None, scale=None, softcap=None):
        (b, n, i, d), (h, j) = q.shape, k.shape[1:3]
        wide = torch.promote_types(q.dtype, torch.float32)
        seen = torch.ones((b, n, i, j), dtype=torch.bool, device=q.device)
        seen = group(seen if mask is None else seen & mask, h)
        if mistake == "mask_of_first_in_group":
            seen = seen[:, :, :1].expand_as(seen)
        rows = group(q.to(wide), h).masked_fill(~seen.any(4)[..., None], 0)
        unseen = ~seen.any(dim=(2, 3))[..., None]
        k, v = (x.to(wide).masked_fill(unseen, 0).unsqueeze(2) for x in (k, v))
        x = (rows @ k.transpose(3, 4)) * (d**-0.5 if scale is None else scale)
        x = x if softcap is None else torch.tanh(x / softcap) * softcap
        if bias is not None:
            added = bias.to(wide).expand(b, n, i, j)
            if mistake == "bias_subtracted":
                added = -added
            x = x + group(added, h).masked_fill(~seen, 0)
        masked = x.masked_fill(~seen, -torch.inf)
        empty = (masked == -torch.inf).all(4, keepdim=True)
        if mistake == "masked_after_softmax":
            p = torch.softmax(x.masked_fill(empty, 0), dim=4).masked_fill(~seen, 0)
        else:
            p = torch.softmax(masked.masked_fill(empty, 0), dim=4)
        return ungroup((p @ v).masked_fill(empty, 0)).to(q.dtype)

    return attention


right = make()
groups_are_strided = make("groups_are_strided")
mask_of_first_in_group = make("mask_of_first_in_group")
bias_subtracted = make("bias_subtracted")
masked_after_softmax = make("masked_after_softmax")

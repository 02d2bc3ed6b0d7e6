"""masked_fill, softmax, dropout, product: what a notebook has."""

import torch


def make(mistake=None):
    """The attention function, with one of its mistakes or with none."""

    def attention(q, k, v, *, mask=None, bias=None, scale=None, softcap=None,
                  dropout_rate=0.0, dropout_keep=None):  # fmt: skip
        storage, group = q.dtype, q.shape[1] // k.shape[1]
        wide = torch.promote_types(storage, torch.float32)
        q, k, v = (x.to(wide) for x in (q, k, v))
        k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
        seen = torch.ones((*q.shape[:3], k.shape[2]), dtype=torch.bool, device=q.device)
        seen = seen if mask is None else seen & mask
        # What is blocked for a whole head may hold NaN.
        q = q.masked_fill(~seen.any(-1, keepdim=True), 0)
        k, v = (x.masked_fill(~seen.any(-2)[..., None], 0) for x in (k, v))
        logits = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
        if softcap is not None:
            logits = softcap * torch.tanh(logits / softcap)
        if bias is not None:
            logits = logits + torch.where(seen, bias.to(wide), 0)
        if mistake == "mask_is_added":
            logits = logits + seen
        elif mistake == "fill_of_minus_10000":
            logits = logits.masked_fill(~seen, -10000.0)
        elif mistake == "fill_of_tiny":
            logits = logits.masked_fill(~seen, torch.finfo(wide).tiny)
        else:
            logits = logits.masked_fill(~seen, -torch.inf)
        empty = (logits == -torch.inf).all(-1, keepdim=True)
        dim = -2 if mistake == "softmax_over_queries" else -1
        none = (logits == -torch.inf).all(dim, keepdim=True)
        weights = torch.softmax(logits.masked_fill(none, 0), dim).masked_fill(none, 0)
        if dropout_keep is not None:
            weights = weights * dropout_keep
            if mistake != "dropout_not_rescaled":
                weights = weights / (1 - dropout_rate)
        return (weights @ v).masked_fill(empty, 0).to(storage)

    return attention


right = make()
mask_is_added = make("mask_is_added")
fill_of_minus_10000 = make("fill_of_minus_10000")
fill_of_tiny = make("fill_of_tiny")
softmax_over_queries = make("softmax_over_queries")
dropout_not_rescaled = make("dropout_not_rescaled")

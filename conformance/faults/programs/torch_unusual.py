"""Mistakes that nobody would look for."""

import torch


def make(mistake=None):
    """The attention function, with one of its mistakes or with none."""

    def attention(q, k, v, *, mask=None, bias=None, scale=None, softcap=None):
        wide, group = torch.promote_types(q.dtype, torch.float32), q.shape[1]
        group //= k.shape[1]
        seen = q.new_ones((*q.shape[:3], k.shape[2]), dtype=torch.bool)
        seen = seen if mask is None else seen.logical_and(mask)
        rows = torch.where(seen.any(3, True), q.to(wide), 0)
        k, v = (x.to(wide).repeat_interleave(group, dim=1) for x in (k, v))
        k, v = (torch.where(seen.any(2).unsqueeze(3), x, 0) for x in (k, v))
        x = rows.matmul(k.mT) * (q.shape[3] ** -0.5 if scale is None else scale)
        x = x if softcap is None else softcap * (x / softcap).tanh()
        x = x if bias is None else x + torch.where(seen, bias.to(wide), 0)
        x = torch.where(seen, x, -torch.inf)
        empty = x.eq(-torch.inf).all(3, True)
        p = torch.where(empty, 0, x).softmax(3)
        if mistake == "favourite_key_shares" and p.shape[3] > 1:
            best = p.argmax(3, True)
            share = p.gather(3, best) / 8
            p = p.scatter_add(3, best, -share)
            p = p.scatter_add(3, (best + 1) % p.shape[3], share)
        if mistake == "gain_by_agreement":
            agree = (rows.sum(3, True) > 0) == (rows[..., :1] > 0)
            p = torch.where(agree, p * (1 + 2**-7), p)
        return torch.where(empty, 0, p @ v).to(q.dtype)

    return attention


right = make()
favourite_key_shares = make("favourite_key_shares")
gain_by_agreement = make("gain_by_agreement")

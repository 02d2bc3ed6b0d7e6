"""Where casts go: right with all arithmetic in float32 at least."""

import torch
from torch.nn.functional import pad

from attncheck.subject import Subject


def make(mistake=None):
    """The subject, with one of its mistakes or with none."""

    def attention(q, k, v, *, mask=None, bias=None, scale=None, softcap=None):
        storage, group = q.dtype, q.shape[1] // k.shape[1]
        wide = torch.promote_types(storage, torch.float32)
        shape = (*q.shape[:3], k.shape[2])
        seen = torch.ones(shape, dtype=torch.bool, device=q.device)
        seen = seen if mask is None else seen & mask
        q, k, v = q.to(wide), k.to(wide), v.to(wide)
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        q = q.masked_fill(~seen.any(3)[..., None], 0)
        k, v = (x.masked_fill(~seen.any(2)[..., None], 0) for x in (k, v))
        if mistake == "autocast_left_on":
            q, k, v = (x.to(torch.bfloat16).to(wide) for x in (q, k, v))
        logits = torch.einsum("bnid,bnjd->bnij", q, k)
        if mistake == "raw_scores_in_storage":
            logits = logits.to(storage).to(wide)
        logits = logits * (q.shape[3] ** -0.5 if scale is None else scale)
        if softcap is not None:
            logits = softcap * torch.tanh(logits / softcap)
        if bias is not None:
            logits = logits + bias.to(wide).masked_fill(~seen, 0)
        logits = logits.masked_fill(~seen, -torch.inf)
        empty = (logits == -torch.inf).all(3)
        logits = logits.masked_fill(empty[..., None], 0)
        top = pad(logits, (0, 1), value=-torch.inf).detach().amax(3, keepdim=True)
        exps = torch.exp(logits - top.masked_fill(top == -torch.inf, 0))
        total = exps.sum(3, keepdim=True)
        weights = exps / total
        if mistake == "output_summed_in_storage":
            products = weights[..., None] * v[:, :, None]
            output = products[:, :, :, :0].sum(3).to(storage)
            for product in products.unbind(3):
                output = output + product.to(storage)
            output = output.to(wide)
        else:
            output = weights @ v
        lse = (top + torch.log(total))[..., 0].masked_fill(empty, -torch.inf)
        return output.masked_fill(empty[..., None], 0).to(storage), lse

    return Subject(
        call=attention,
        framework="torch",
        name=f"precision, {mistake or 'right'}",
        accepts=frozenset(("mask", "bias", "scale", "softcap")),
        returns=("output", "lse"),
    )


right = make()
autocast_left_on = make("autocast_left_on")
raw_scores_in_storage = make("raw_scores_in_storage")
output_summed_in_storage = make("output_summed_in_storage")

"""Split keys, as for decoding: parts by themselves, merged by their log-sum-exp."""

import torch
from torch.nn.functional import pad

from attncheck.subject import Subject

PARTS = 3


def make(mistake=None):
    """The subject, with one of its mistakes or with none."""

    def partial(q, k, v, seen, bias, softcap):
        """Output and log-sum-exp over some keys."""
        x = torch.einsum("bnid,bnjd->bnij", q, k)
        x = x if softcap is None else softcap * torch.tanh(x / softcap)
        x = (x + bias).masked_fill(~seen, -torch.inf)
        empty = (x == -torch.inf).all(3)
        x = x.masked_fill(empty[..., None], 0)
        output = torch.einsum("bnij,bnje->bnie", torch.softmax(x, dim=3), v)
        top = pad(x, (0, 1), value=-torch.inf).amax(dim=3)
        lse = top + torch.exp(x - top[..., None]).sum(dim=3).log()
        by = lse
        if mistake == "merged_by_maximum":
            by = top
        if mistake == "parts_are_averaged":
            by = torch.zeros_like(lse)
        return output, *(y.masked_fill(empty, -torch.inf) for y in (lse, by))

    def total_of(lse):
        """Log of the sum of exponentials over the parts."""
        top = lse.detach().amax(0)
        empty = top == -torch.inf
        total = torch.exp(lse - top.masked_fill(empty, 0)).sum(0)
        return (top + total.masked_fill(empty, 1).log()).masked_fill(empty, -torch.inf)

    def attention(q, k, v, *, mask=None, bias=None, scale=None, softcap=None):
        storage, group = q.dtype, q.shape[1] // k.shape[1]
        wide = torch.promote_types(storage, torch.float32)
        seen = q.new_ones((*q.shape[:3], k.shape[2]), dtype=torch.bool)
        seen = seen if mask is None else seen & mask
        scale = q.shape[3] ** -0.5 if scale is None else scale
        q = q.to(wide).masked_fill(~seen.any(3)[..., None], 0) * scale
        k, v = (x.to(wide).repeat_interleave(group, 1) for x in (k, v))
        k, v = (x.masked_fill(~seen.any(2)[..., None], 0) for x in (k, v))
        bias = torch.where(seen, 0.0 if bias is None else bias.to(wide), 0.0)
        bias = bias.to(wide)
        length = -(-k.shape[2] // PARTS) or 1
        cuts = zip(k.split(length, 2), v.split(length, 2), seen.split(length, 3),
                   bias.split(length, 3), strict=True)  # fmt: skip
        parts = [partial(q, *cut, softcap) for cut in cuts]
        outputs, lses, by = (torch.stack(x) for x in zip(*parts, strict=True))
        lse, total = total_of(lses), total_of(by)
        empty = total == -torch.inf
        share = torch.exp(by - total.masked_fill(empty, 0))[..., None]
        output = (share * outputs).sum(0).masked_fill(empty[..., None], 0)
        if mistake == "lse_of_last_part":
            lse = lses[-1]
        return output.to(storage), lse

    return Subject(
        call=attention,
        framework="torch",
        name=f"split keys, {mistake or 'right'}",
        accepts=frozenset(("mask", "bias", "scale", "softcap")),
        returns=("output", "lse"),
    )


right = make()
merged_by_maximum = make("merged_by_maximum")
parts_are_averaged = make("parts_are_averaged")
lse_of_last_part = make("lse_of_last_part")

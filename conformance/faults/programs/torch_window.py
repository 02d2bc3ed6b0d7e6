"""A dispatcher: masks that are sliding windows go to a kernel that takes its ends."""

import torch


def make(mistake=None):
    """The attention function, with one of its mistakes or with none."""

    def distances(i, j, device):
        """How far each key lies after each query."""
        rows = torch.arange(i, device=device)[:, None]
        return torch.arange(j, device=device)[None] - rows

    def window_of(seen):
        """(left, right) of a mask that is a window everywhere, else None.

        A right end that blocks nothing is infinite.
        """
        one = seen[:1, :1]
        if not one.any() or one.all() or (seen != one).any():
            return None
        distance = distances(*seen.shape[2:], seen.device)
        near = distance[one[0, 0]]
        left, right = -int(near.min()), int(near.max())
        if (window(one, torch.inf, right) == one).all():
            return None  # it is causal
        if (window(one, left, torch.inf) == one).all():
            right = torch.inf
        return (left, right) if (window(one, left, right) == one).all() else None

    def window(seen, left, right):
        distance = distances(*seen.shape[2:], seen.device)
        return ((distance >= -left) & (distance <= right)).expand_as(seen)

    def attention(q, k, v, *, mask=None, bias=None, scale=None, softcap=None):
        group = q.shape[1] // k.shape[1]
        wide = torch.promote_types(q.dtype, torch.float32)
        seen = q.new_ones((*q.shape[:3], k.shape[2]), dtype=torch.bool)
        seen = seen if mask is None else seen & mask
        ends = window_of(seen)
        if ends is not None:
            left, right = ends
            if mistake == "left_end_excluded":
                left -= 1
            if mistake == "right_end_as_left":
                right = left
            if mistake == "right_end_ignored":
                right = torch.inf
            seen = window(seen, left, right)
        k, v = (x.to(wide).repeat_interleave(group, dim=1) for x in (k, v))
        alone, unseen = ~seen.any(3)[..., None], ~seen.any(2)[..., None]
        rows = q.to(wide).masked_fill(alone, 0)
        k, v = k.masked_fill(unseen, 0), v.masked_fill(unseen, 0)
        logits = (rows @ k.mT).mul(q.shape[3] ** -0.5 if scale is None else scale)
        if softcap is not None:
            logits = logits.div(softcap).tanh().mul(softcap)
        if bias is not None:
            logits = logits + torch.where(seen, bias.to(wide), 0)
        logits = logits.masked_fill(~seen, -torch.inf)
        empty = (logits == -torch.inf).all(3)[..., None]
        weights = logits.masked_fill(empty, 0).softmax(3)
        return (weights @ v).masked_fill(empty, 0).to(q.dtype)

    return attention


right = make()
left_end_excluded = make("left_end_excluded")
right_end_as_left = make("right_end_as_left")
right_end_ignored = make("right_end_ignored")

"""A decoder's attention, as a module with its causal buffer."""

import math

import torch
from torch import nn


def make(mistake=None):
    """The attention function, with one of its mistakes or with none."""

    class Attention(nn.Module):
        """Scores of heads that lie flat in the batch: (b n) i d."""

        def __init__(self, block_size=1024):
            super().__init__()
            causal = torch.tril(torch.ones(block_size, block_size, dtype=torch.bool))
            self.register_buffer("causal", causal, persistent=False)

        def forward(self, q, k, v, mask, bias, scale, softcap):
            i, j = q.shape[1], k.shape[1]
            if mistake == "key_viewed_not_transposed":
                att = torch.bmm(q, k.reshape(len(k), q.shape[2], j))
            else:
                att = torch.bmm(q, k.transpose(1, 2))
            att = att * scale
            if softcap is not None:
                att = softcap * torch.tanh(att / softcap)
            att = att + bias
            if mistake == "always_causal":
                mask = mask & self.causal[:i, :j]
            att = att.masked_fill(~mask, float("-inf"))
            empty = (att == float("-inf")).all(dim=2, keepdim=True)
            att = torch.softmax(att.masked_fill(empty, 0), dim=2)
            return torch.bmm(att, v).masked_fill(empty, 0)

    module = Attention()

    def attention(q, k, v, *, mask=None, bias=None, scale=None, softcap=None):
        (b, n, i, d), (_, h, j, e) = q.shape, v.shape
        wide = torch.promote_types(q.dtype, torch.float32)
        mask = torch.ones((), dtype=torch.bool) if mask is None else mask
        mask = mask.to(q.device).expand(b, n, i, j)
        bias = q.new_zeros(()) if bias is None else bias
        bias = torch.where(mask, bias.to(wide), 0)
        rows = torch.where(mask.any(3)[..., None], q.to(wide), 0)
        k, v = (x.to(wide).repeat_interleave(n // h, dim=1) for x in (k, v))
        k, v = (torch.where(mask.any(2)[..., None], x, 0) for x in (k, v))
        flat = (x.flatten(0, 1) for x in (rows, k, v, mask, bias))
        if scale is None:
            width = n * d if mistake == "model_width_scale" else d
            scale = 1 / math.sqrt(width)
        output = module.to(q.device)(*flat, scale, softcap)
        return output.reshape(b, n, i, e).to(q.dtype)

    return attention


right = make()
always_causal = make("always_causal")
key_viewed_not_transposed = make("key_viewed_not_transposed")
model_width_scale = make("model_width_scale")

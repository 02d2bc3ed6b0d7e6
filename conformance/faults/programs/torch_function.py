"""torch.autograd.Function: keeps output and log-sum-exp, recomputes the weights."""

import torch
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from attncheck.subject import KEYWORDS, Subject


def make(mistake=None):
    """The subject, with one of its mistakes or with none."""

    class Attention(torch.autograd.Function):
        """Everything per query head, in the accumulation type."""

        @staticmethod
        def logits(q, k, bias, seen, scale, softcap):
            x = torch.matmul(q, k.transpose(2, 3)).mul(scale)
            slope = 1
            if softcap is not None:
                tanh = torch.tanh(x / softcap)
                x, slope = softcap * tanh, 1 - tanh * tanh
            return (x + bias).masked_fill(~seen, -torch.inf), slope

        @staticmethod
        def forward(ctx, q, k, v, bias, seen, factor, scale, softcap):
            x, _ = Attention.logits(q, k, bias, seen, scale, softcap)
            top = pad(x, (0, 1), value=-torch.inf).amax(dim=3)
            empty = top == -torch.inf
            total = torch.exp(x - top.masked_fill(empty, 0)[..., None]).sum(dim=3)
            lse = top + torch.log(total)
            weights = torch.exp(x - lse.masked_fill(empty, 0)[..., None])
            output = torch.matmul(weights * factor, v)
            ctx.save_for_backward(q, k, v, bias, seen, factor, output, lse)
            ctx.numbers = scale, softcap
            return output, lse

        @staticmethod
        @once_differentiable
        def backward(ctx, d_out, d_lse):
            q, k, v, bias, seen, factor, output, lse = ctx.saved_tensors
            scale, softcap = ctx.numbers
            x, slope = Attention.logits(q, k, bias, seen, scale, softcap)
            empty = lse == -torch.inf
            d_out = d_out.masked_fill(empty[..., None], 0)
            p = torch.exp(x - lse.masked_fill(empty, 0)[..., None])
            d_p = torch.matmul(d_out, v.transpose(2, 3)) * factor
            delta = (d_out * output).sum(dim=3)
            if mistake == "delta_without_dropout":
                delta = (d_out * torch.matmul(p, v)).sum(dim=3)
            if mistake == "delta_is_a_mean":
                delta = (d_out * output).mean(dim=3)
            if mistake != "lse_gradient_ignored":
                delta = delta - d_lse.masked_fill(empty, 0)
            d_x = p * (d_p - delta[..., None])
            d_s = d_x * slope
            dq = torch.matmul(d_s, k) * scale
            dk = torch.matmul(d_s.transpose(2, 3), q) * scale
            dv = torch.matmul((p * factor).transpose(2, 3), d_out)
            if mistake == "dk_scaled_twice":
                dk = dk * scale
            d_bias = d_x * scale if mistake == "bias_gradient_scaled" else d_x
            return dq, dk, dv, d_bias, None, None, None, None

    def attention(q, k, v, *, mask=None, bias=None, scale=None, softcap=None,
                  dropout_rate=0.0, dropout_keep=None):  # fmt: skip
        shape = (*q.shape[:3], k.shape[2])
        storage, group = q.dtype, q.shape[1] // k.shape[1]
        wide = torch.promote_types(storage, torch.float32)
        seen = torch.ones(shape, dtype=torch.bool, device=q.device)
        seen = seen if mask is None else seen & mask
        q, k, v = q.to(wide), k.to(wide), v.to(wide)
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        q = torch.where(seen.any(3)[..., None], q, 0)
        k, v = (torch.where(seen.any(2)[..., None], x, 0) for x in (k, v))
        bias = q.new_zeros(()) if bias is None else bias.to(wide)
        bias = torch.where(seen, bias, 0)
        factor = q.new_ones(())
        if dropout_keep is not None:
            factor = dropout_keep.to(wide) / (1 - dropout_rate)
        scale = q.shape[3] ** -0.5 if scale is None else scale
        output, lse = Attention.apply(q, k, v, bias, seen, factor, scale, softcap)
        return output.to(storage), lse

    return Subject(
        call=attention,
        framework="torch",
        name=f"autograd.Function, {mistake or 'right'}",
        accepts=frozenset(KEYWORDS),
        returns=("output", "lse"),
    )


right = make()
delta_without_dropout = make("delta_without_dropout")
delta_is_a_mean = make("delta_is_a_mean")
lse_gradient_ignored = make("lse_gradient_ignored")
dk_scaled_twice = make("dk_scaled_twice")
bias_gradient_scaled = make("bias_gradient_scaled")

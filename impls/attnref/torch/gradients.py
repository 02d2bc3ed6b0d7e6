"""The gradients of attention, by automatic differentiation."""

import torch

from attnref.spec.checks import check_attention, check_gradients, dtype_name

from .attention import attention_steps
from .scores import without_autocast


def attention_vjp(
    d_out,
    q,
    k,
    v,
    *,
    mask=None,
    bias=None,
    scale=None,
    softcap=None,
    dropout_rate=0.0,
    dropout_keep=None,
    d_lse=None,
):
    """The gradients of `attention`: what d_out and d_lse become at its arguments.

    Args:
        d_out: gradient of the output, `b n i e`, in the dtype of the inputs.
        d_lse: gradient of the log-sum-exp, `b n i`, in the accumulation type, or None.

    The other arguments, and the errors, are those of `attention`.

    Returns:
        (dq, dk, dv, dbias) in the shapes and the dtype of the arguments, rounded once.
        dbias is summed over the bias's broadcast axes, and None without a bias.

    A query or an incoming gradient that is not finite, in a row with keys, is outside
    of the spec: as 0·NaN it may reach the gradients of keys that are blocked for it.
    """
    options = {"scale": scale, "softcap": softcap}
    options |= {"dropout_rate": dropout_rate, "dropout_keep": dropout_keep}
    sizes = check_attention(torch.Tensor, q, k, v, mask=mask, bias=bias, **options)
    check_gradients(torch.Tensor, d_out, d_lse, sizes, dtype_name(q))

    def forward(q, k, v, bias=None):
        steps = attention_steps(q, k, v, mask=mask, bias=bias, **options)
        return steps.output, steps.lse

    arguments = (q, k, v) if bias is None else (q, k, v, bias)
    with without_autocast(q.device):
        (_, lse), vjp = torch.func.vjp(forward, *arguments)  # type: ignore[misc, unused-ignore]
        gradients = vjp((d_out, torch.zeros_like(lse) if d_lse is None else d_lse))
    return gradients if bias is not None else (*gradients, None)

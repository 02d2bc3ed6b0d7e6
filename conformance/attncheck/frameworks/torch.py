"""PyTorch: tensors on the default device, gradients by autograd."""

from contextlib import nullcontext

import ml_dtypes
import numpy as np
import torch


def to_native(array):
    """A tensor of its own memory on the default device."""
    # torch cannot read ml-dtypes' bfloat16; its bits travel as integers.
    if array.dtype == ml_dtypes.bfloat16:
        bits = torch.from_numpy(array.view(np.int16).copy())
        return bits.view(torch.bfloat16).to(torch.get_default_device())
    return torch.from_numpy(array.copy()).to(torch.get_default_device())


def to_numpy(array):
    """The tensor's values as a NumPy array."""
    array = array.detach().cpu().contiguous()
    if array.dtype == torch.bfloat16:
        return array.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return array.numpy()


def is_native(value):
    """Whether `value` is a tensor."""
    return isinstance(value, torch.Tensor)


def vjp(call, arguments, cotangents):
    """Gradients of `call(*arguments)`, a tuple, by `torch.autograd.grad`."""
    arguments = [a.detach().requires_grad_() for a in arguments]
    outputs = call(*arguments)
    return torch.autograd.grad(
        outputs, arguments, cotangents, materialize_grads=True, allow_unused=True
    )


def precision(dtype):
    """PyTorch computes in the types it is given."""
    return nullcontext()


def describe():
    """Version and device."""
    return f"torch {torch.__version__}, {torch.get_default_device()}"

"""PyTorch: tensors on the default device, gradients by autograd."""

import os
import shutil
import sys
from contextlib import nullcontext

import ml_dtypes
import numpy as np
import torch

COMPILE = "ATTNCHECK_COMPILE"
"""The environment variable that is 1 where torch.compile may take its time."""


def to_native(array):
    """A tensor on the default device, with the strides of `array`."""
    # torch cannot read ml-dtypes' bfloat16; its bits travel as integers.
    is_bfloat16 = array.dtype == ml_dtypes.bfloat16
    bits = array.view(np.int16) if is_bfloat16 else array
    strides = [stride // bits.itemsize for stride in bits.strides]
    memory = torch.from_numpy(_flat(bits)).to(torch.get_default_device())
    tensor = memory.as_strided(bits.shape, strides)
    return tensor.view(torch.bfloat16) if is_bfloat16 else tensor


def _flat(array):
    """The memory of an array, gaps included, from its first to its last element."""
    steps = zip(array.shape, array.strides, strict=True)
    span = sum((size - 1) * stride for size, stride in steps) // array.itemsize + 1
    length = span if array.size else 0
    return np.lib.stride_tricks.as_strided(array, (length,), (array.itemsize,))


def to_numpy(array):
    """The tensor's values as a NumPy array."""
    array = array.detach().cpu().contiguous()
    if array.dtype == torch.bfloat16:
        return array.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return array.numpy()


def is_native(value):
    """Whether `value` is a tensor."""
    return isinstance(value, torch.Tensor)


def device(array):
    """Type and number."""
    return str(array.device)


def shares_memory(a, b):
    """Whether they are views of one storage, however far apart."""
    first, second = (x.untyped_storage().data_ptr() for x in (a, b))
    return first == second != 0


def vjp(call, arguments, cotangents):
    """Gradients of `call(*arguments)`, a tuple, by `torch.autograd.grad`."""
    arguments = [a.detach().requires_grad_() for a in arguments]
    outputs = call(*arguments)
    return torch.autograd.grad(
        outputs, arguments, cotangents, materialize_grads=True, allow_unused=True
    )


def compiled(call):
    """`call` through `torch.compile`, as one graph, for every shape anew.

    Where a graph breaks, what is left of it would run as it does without: an error.
    """
    torch.compiler.reset()  # it gives up on functions that it had to compile often
    return torch.compile(call, fullgraph=True, dynamic=False)


def no_compiler():
    """That it takes minutes, or, on a CPU, that there is no C++ compiler."""
    if os.environ.get(COMPILE) != "1":
        return f"torch.compile takes minutes: {COMPILE}=1 and --timeout 600 run it"
    default = "clang++" if sys.platform == "darwin" else "g++"
    command = os.environ.get("CXX", default).split()[0]
    if torch.get_default_device().type == "cpu" and shutil.which(command) is None:
        return f"torch.compile needs a C++ compiler, and there is no {command}"
    return None


def precision(dtype):
    """PyTorch computes in the types it is given."""
    return nullcontext()


def tidy():
    """What is compiled is compiled for few cases."""


def describe():
    """Version and device."""
    return f"torch {torch.__version__}, {torch.get_default_device()}"

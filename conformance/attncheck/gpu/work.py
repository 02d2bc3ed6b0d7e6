"""The calls that are timed: tensors on the device, through this project's backends."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from statistics import median
from typing import Any

from attncheck.gpu.clock import Device
from attncheck.gpu.timing import (
    SHAPES,
    Ceilings,
    Shape,
    Timing,
    alternate,
    compared,
)

BACKENDS = ("flash", "cudnn", "efficient", "math", "flex-compiled", "flash-attn")
"""Eager FlexAttention is there to find mistakes, and not to be fast."""

PRODUCT, COPY = 8192, 2**30
"""Rows of the matrices, and bytes, by which the device's ceilings are measured."""


def ceilings(device: Device) -> Ceilings:
    """What the device reaches in a product of matrices, and in a copy."""
    import torch

    a, b = (torch.randn(PRODUCT, PRODUCT, dtype=torch.bfloat16) for _ in range(2))
    source = torch.zeros(COPY, dtype=torch.int8)
    target = torch.empty_like(source)
    product: Callable[[], Any] = partial(torch.matmul, a, b)
    copy: Callable[[], Any] = partial(target.copy_, source)
    calls = {"product": product, "copy": copy}
    times = {name: median(found) for name, found in alternate(device, calls).items()}
    return Ceilings(2 * PRODUCT**3 / times["product"], 2 * COPY / times["copy"])


def timings(
    device: Device, limit: float, say: Callable[[str], None]
) -> Iterator[Timing]:
    """Every backend on every shape; those for which no time is left say so.

    Args:
        limit: when, on the device's clock, no shape is begun any more.
        say: called with a sentence about what is done.
    """
    reached = ceilings(device)
    for shape in SHAPES:
        if device.now() > limit:
            why = "not measured: no time was left"
            yield from (Timing(shape.name, name, why=why) for name in BACKENDS)
            continue
        say(f"timing: {shape.name}")
        yield from of_shape(device, shape, call_of, reached)


def of_shape(
    device: Device,
    shape: Shape,
    call_of: Callable[[Shape, str], Callable[[], Any]],
    reached: Ceilings,
) -> Iterator[Timing]:
    """Every backend on one shape."""
    calls, peaks, refused = {}, {}, {}
    for name in BACKENDS:
        try:
            call = call_of(shape, name)
            call()  # compiled, where it is to be
            peaks[name] = device.peak(call)
            calls[name] = call
        except NotImplementedError as error:
            refused[name] = str(error)
        except RuntimeError as error:  # out of memory, say
            refused[name] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
    yield from compared(shape, alternate(device, calls), peaks, refused, reached)


def call_of(shape: Shape, backend: str) -> Callable[[], Any]:
    """A call of a backend, with backward where the shape has it."""
    import torch

    from attnref.spec import causal
    from attnref.torch.sdpa import sdpa

    torch.manual_seed(0)
    sizes = vars(shape) | {"n": shape.h * shape.g}
    q, k, v = (
        torch.randn([sizes[axis] for axis in axes], dtype=torch.bfloat16)
        for axes in ("bnid", "bhjd", "bhjd")
    )
    mask = causal(shape.j - shape.i) if shape.is_causal else None
    forward = partial(sdpa, q, k, v, mask=mask, backend=backend)
    if not shape.has_backward:
        return torch.no_grad()(forward)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    d_out = torch.randn_like(q)

    def training() -> Any:
        return torch.autograd.grad(forward(), leaves, d_out)

    return training


def machine() -> Mapping[str, Any]:
    """What it was measured on."""
    import platform

    import torch

    properties = torch.cuda.get_device_properties()
    return {
        "device": properties.name,
        "memory": properties.total_memory,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "python": platform.python_version(),
    }

"""E06, E07, E09 and E24: how a fused kernel is asked for, and what it takes."""

import inspect
import warnings

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel


def wrong(q, k, v):
    with torch.backends.cuda.sdp_kernel(enable_flash=True):
        return functional.scaled_dot_product_attention(q, k, v)


def right(q, k, v):
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return functional.scaled_dot_product_attention(q, k, v)


def measure():
    torch.manual_seed(0)
    four = torch.randn(3, 2, 4, 10, 64)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        allowed = _allowed_in(wrong, *four)
    flags = inspect.signature(torch.backends.cuda.sdp_kernel).parameters.values()
    return {
        "warning": caught[0].category.__name__,
        "flags_on_by_default": sum(flag.default is True for flag in flags),
        "flags": len(flags),
        "wrong_allows": allowed,
        "right_allows": _allowed_in(right, *four),
        "three_axes": _error(right, *four[:, 0]),
        "four_axes": _error(right, *four),
    }


def _allowed_in(call, *arrays):
    """How many of flash, efficient and math may run within the call."""
    seen = {}

    def spy(q, k, v):
        cuda = torch.backends.cuda
        seen["n"] = sum(
            f()
            for f in (
                cuda.flash_sdp_enabled,
                cuda.mem_efficient_sdp_enabled,
                cuda.math_sdp_enabled,
            )
        )
        return q

    real = functional.scaled_dot_product_attention
    functional.scaled_dot_product_attention = spy
    try:
        call(*arrays)
    finally:
        functional.scaled_dot_product_attention = real
    return seen["n"]


def _error(call, *arrays):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says in warnings why not
        try:
            call(*arrays)
        except RuntimeError as error:
            return str(error).splitlines()[0]
    return "none"

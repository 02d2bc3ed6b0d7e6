"""JAX: arrays on the default device, gradients by `jax.vjp`."""

from functools import cache
from itertools import count
from pathlib import Path

import jax
import numpy as np

MOST_MAPS = 30_000
"""Spans of memory, which compiled code needs: up to 200 a case.  By default Linux gives
a process 65,530, and XLA ends in a segmentation fault when there is none left."""

CALLS_APART = 50
"""So many calls of `tidy` look once: it takes milliseconds."""

_calls = count()


def to_native(array):
    """A JAX array; JAX arrays cannot be written to."""
    return jax.device_put(array)


def to_numpy(array):
    """The array's values as a NumPy array."""
    return np.asarray(array)


def is_native(value):
    """Whether `value` is a JAX array."""
    return isinstance(value, jax.Array)


def device(array):
    """All that hold a part of it."""
    return ", ".join(sorted(map(str, array.devices())))


def shares_memory(a, b):
    """No one writes into a JAX array."""
    return False


def vjp(call, arguments, cotangents):
    """Gradients of `call(*arguments)`, a tuple, by `jax.vjp`."""
    _, pullback = jax.vjp(lambda *a: tuple(call(*a)), *arguments)
    return pullback(tuple(cotangents))


def compiled(call):
    """`call` through `jax.jit`; what is no array among its keywords stays static."""

    @cache
    def jitted(static):
        return jax.jit(call, static_argnames=static)

    def through_jit(*arrays, **options):
        static = sorted(name for name, x in options.items() if not is_native(x))
        return jitted(tuple(static))(*arrays, **options)

    return through_jit


def no_compiler():
    """Nothing: there is one, and it takes a second a call."""


def precision(dtype):
    """x64 for float64 only: elsewhere a stray float64 must not help a subject."""
    return jax.enable_x64(dtype == "F64")


def tidy():
    """Forgets what was compiled when it takes up what the process may have."""
    maps = Path("/proc/self/maps")
    if next(_calls) % CALLS_APART or not maps.exists():
        return
    if maps.read_bytes().count(b"\n") > MOST_MAPS:
        jax.clear_caches()


def describe():
    """Version and device."""
    return f"jax {jax.__version__}, {jax.devices()[0].platform}"

"""What a device can be asked: to run a call and say how long it took, and how much
memory it held.
"""

import time
from collections.abc import Callable
from typing import Any, Protocol


class Device(Protocol):
    """A device that runs calls; the tests have one of their own."""

    def flush(self) -> None:
        """Empties the caches, so that no call finds what the one before it read."""

    def timed(self, call: Callable[[], Any]) -> Callable[[], float]:
        """Runs a call; what is returned waits for it, and gives its seconds."""

    def peak(self, call: Callable[[], Any]) -> int:
        """Bytes that a call holds at most, beside its arguments."""

    def now(self) -> float:
        """Seconds on the wall."""


class Cuda:
    """The current CUDA device."""

    def __init__(self) -> None:
        import torch

        self._cuda = torch.cuda
        cache = torch.cuda.get_device_properties().L2_cache_size
        # Long enough for the host to say what comes next: the device does not wait.
        self._scratch = torch.empty(max(4 * cache, 2**28), dtype=torch.int8)

    def flush(self) -> None:
        """Writes more than the second-level cache holds."""
        self._scratch.zero_()

    def timed(self, call: Callable[[], Any]) -> Callable[[], float]:
        """Between two events of the device."""
        start, end = (self._cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()

        def seconds() -> float:
            end.synchronize()
            return start.elapsed_time(end) / 1000

        return seconds

    def peak(self, call: Callable[[], Any]) -> int:
        """By PyTorch's allocator."""
        self._cuda.synchronize()
        self._cuda.reset_peak_memory_stats()
        before = self._cuda.memory_allocated()
        call()
        self._cuda.synchronize()
        return self._cuda.max_memory_allocated() - before

    def now(self) -> float:
        """Seconds on the wall."""
        return time.perf_counter()

"""How fast each backend is: alternated in one run, from cold caches, by medians."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from attncheck.gpu.clock import Device

ROUNDS = 11
"""How often each backend is timed, in turns with the others."""

WARM = 2
"""Calls before the first that counts."""


@dataclass(frozen=True)
class Shape:
    """Axis sizes of a call that is timed, in bfloat16."""

    name: str
    b: int
    h: int
    g: int
    i: int
    j: int
    d: int
    is_causal: bool = False
    """Lower-right: the last query sees every key."""
    has_backward: bool = False

    @property
    def pairs(self) -> int:
        """Query and key that see each other, in one head."""
        if not self.is_causal:
            return self.i * self.j
        first = self.j - self.i
        return sum(min(max(first + i + 1, 0), self.j) for i in range(self.i))

    @property
    def operations(self) -> int:
        """Floating-point operations: two products of 2·d each, five more backward."""
        products = 2 + 5 * self.has_backward
        return products * 2 * self.d * self.pairs * self.b * self.h * self.g

    @property
    def bytes(self) -> int:
        """What has to be read and written: q, k, v and the output, once each.

        Backward the four are read again, with the gradient of the output, and three
        gradients are written.
        """
        query, key = (self.h * self.g * self.i, self.h * self.j)
        arrays = 2 * query + 2 * key
        if self.has_backward:
            arrays += 4 * query + 4 * key
        return 2 * self.b * self.d * arrays


SHAPES = (
    Shape("prefill", b=4, h=16, g=1, i=4096, j=4096, d=128),
    Shape("prefill, causal", b=4, h=16, g=1, i=4096, j=4096, d=128, is_causal=True),
    Shape("grouped, causal", b=2, h=8, g=4, i=4096, j=4096, d=128, is_causal=True),
    Shape("long, causal", b=1, h=16, g=1, i=16384, j=16384, d=64, is_causal=True),
    Shape("decode", b=64, h=8, g=4, i=1, j=8192, d=128, is_causal=True),
    Shape(
        "training, causal",
        b=8,
        h=16,
        g=1,
        i=2048,
        j=2048,
        d=64,
        is_causal=True,
        has_backward=True,
    ),
)


@dataclass(frozen=True)
class Ceilings:
    """What the device reaches, as measured beside the backends."""

    operations: float
    """A second, of a large product of bfloat16 matrices."""
    bytes: float
    """A second, read and written by a large copy."""

    def least(self, shape: Shape) -> float:
        """Seconds below which no kernel gets that reaches both."""
        return max(shape.operations / self.operations, shape.bytes / self.bytes)


@dataclass(frozen=True)
class Timing:
    """One backend on one shape."""

    shape: str
    backend: str
    seconds: float | None = None
    """Median; None where it was not measured."""
    spread: float = 0.0
    """Half the distance of the quartiles, of the median."""
    rate: float = 0.0
    """Floating-point operations a second."""
    to_best: float = 0.0
    """How many times the best backend's time."""
    of_ceiling: float = 0.0
    """The least time that the ceilings allow, of its own."""
    peak: int = 0
    """Bytes held beside the arguments."""
    why: str = ""
    """Why it was not measured."""


def alternate(
    device: Device, calls: Mapping[str, Callable[[], Any]], rounds: int = ROUNDS
) -> dict[str, list[float]]:
    """Seconds of every call, round after round; each from cold caches.

    What slows the device down for a while slows all of them, and the one that begins
    is another one every round.
    """
    names, found = list(calls), {name: [] for name in calls}  # type: ignore[var-annotated]
    for _ in range(WARM):
        for call in calls.values():
            call()
    for round_ in range(rounds):
        turn = round_ % max(1, len(names))
        waits = []
        for name in names[turn:] + names[:turn]:
            device.flush()
            waits.append((name, device.timed(calls[name])))
        for name, wait in waits:
            found[name].append(wait())
    return found


def compared(
    shape: Shape,
    seconds: Mapping[str, Sequence[float]],
    peaks: Mapping[str, int],
    refused: Mapping[str, str],
    ceilings: Ceilings,
) -> Iterator[Timing]:
    """Every backend on a shape, those that did it first."""
    middle = {name: median(times) for name, times in seconds.items()}
    best = min(middle.values(), default=0.0)
    for name, time in sorted(middle.items(), key=lambda pair: pair[1]):
        yield Timing(
            shape.name,
            name,
            time,
            _spread(seconds[name]) / time,
            shape.operations / time,
            time / best,
            ceilings.least(shape) / time,
            peaks[name],
        )
    for name, why in refused.items():
        yield Timing(shape.name, name, why=why)


def _spread(times: Sequence[float]) -> float:
    ordered = sorted(times)
    return (ordered[3 * len(ordered) // 4] - ordered[len(ordered) // 4]) / 2

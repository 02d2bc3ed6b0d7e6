"""What a call through `attnref.torch.sdpa` costs beside the one that it makes.

    python conformance/bench/dispatch.py [--backend flash] [--length 64] [--rounds 200]

The parts are timed in turns in one process, in time of its processor, and each figure
is the least of its rounds: whatever else the machine does can only add to it.  `by
hand` is PyTorch's call after the same validation and in the same context; the parts do
not add up to it, since a kernel starts slower after other code than after itself.  The
rest is what the whole takes beyond that.
"""

import argparse
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch.nn.attention import sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from attnref.spec.checks import check_attention
from attnref.torch.sdpa import sdpa
from attnref.torch.sdpa.kernels import KERNELS

LENGTHS = (4, 64, 1024, 2048)

SECONDS = 0.005
"""How long one timing lasts at least, that the clock's own steps do not count."""


def main() -> None:
    """Measures, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--backend", default="flash", choices=tuple(KERNELS))
    parser.add_argument("--length", type=int, action="append", help="again for more")
    parser.add_argument("--rounds", type=int, default=200)
    given = parser.parse_args()
    torch.set_num_threads(1)
    names = ("length", "PyTorch", "validation", "sdpa_kernel", "by hand", "sdpa")
    table = Table(*names, "rest", "more than PyTorch", box=None)
    for length in given.length or LENGTHS:
        rounds = given.rounds if length < 1024 else -(-given.rounds // 10)
        table.add_row(str(length), *row(parts(length, given.backend), rounds))
    print(
        f"{given.backend}, torch {torch.__version__}; microseconds, least of the rounds"
    )
    Console().print(table)


def parts(length: int, backend: str) -> Mapping[str, Callable[[], Any]]:
    """The whole call, and what it is made of, each alone."""
    q, k, v = torch.randn(3, 1, 4, length, 64)

    def context() -> None:
        with sdpa_kernel(KERNELS[backend]):
            pass

    def by_hand() -> torch.Tensor:
        check_attention(torch.Tensor, q, k, v)
        with sdpa_kernel(KERNELS[backend]):
            return scaled_dot_product_attention(q, k, v)

    return {
        "torch": lambda: scaled_dot_product_attention(q, k, v),
        "validation": lambda: check_attention(torch.Tensor, q, k, v),
        "context": context,
        "by hand": by_hand,
        "sdpa": lambda: sdpa(q, k, v, backend=backend),
    }


def row(calls: Mapping[str, Callable[[], Any]], rounds: int) -> list[str]:
    """The cells of one length."""
    least = {name: min(times) for name, times in alternated(calls, rounds).items()}
    cells = [f"{1e6 * time:.1f}" for time in least.values()]
    rest, more = (least["sdpa"] - least[name] for name in ("by hand", "torch"))
    return [*cells, f"{1e6 * rest:.1f}", f"{more / least['torch']:.1%}"]


def alternated(
    calls: Mapping[str, Callable[[], Any]], rounds: int
) -> dict[str, list[float]]:
    """Seconds of one call of each, round after round."""
    repeats = {name: repeats_of(call) for name, call in calls.items()}
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            found[name].append(seconds(call, repeats[name]))
    return found


def repeats_of(call: Callable[[], Any]) -> int:
    """How often a call is made in one timing."""
    call()
    return max(1, int(SECONDS / seconds(call, 3)))


def seconds(call: Callable[[], Any], repeats: int) -> float:
    """Of one call, by many."""
    started = time.process_time()
    for _ in range(repeats):
        call()
    return (time.process_time() - started) / repeats


if __name__ == "__main__":
    main()

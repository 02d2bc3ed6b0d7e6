"""How long blocked attention takes with blocks of other sizes, in every room.

    python conformance/bench/blocks.py

Prints a Markdown table for each room: milliseconds forward, forward and backward, and
forward with a causal mask, of 8 heads of 2048 positions in float32.  All sizes are
called in turn, round after round; medians count.
"""

import statistics
import sys
from functools import partial

from attention import seconds_of
from contenders import Setup, room_in_jax, room_in_numpy, room_in_torch

ROOMS = {"numpy": room_in_numpy, "torch": room_in_torch, "jax": room_in_jax}
SIZES = [(q, k) for q in (128, 256, 512) for k in (256, 512, 1024)]
ROUNDS = 5


def main():
    """Measures room by room, and prints."""
    base = Setup(8, 2048)
    setups = [base, base._replace(backward=True), base._replace(causal=True)]
    for room in sys.argv[1:] or ROOMS:
        make = partial(ROOMS[room], "attention_blocked")
        calls = {
            (size, setup): make(setup, block_q=size[0], block_k=size[1])
            for size in SIZES
            for setup in setups
        }
        for call in calls.values():
            call()  # loads, compiles
        rounds = [
            {at: seconds_of(call) for at, call in calls.items()} for _ in range(ROUNDS)
        ]
        print(f"| {room}: queries × keys | forward | forward + backward | causal |")
        print("|---|---|---|---|")
        for size in SIZES:
            times = [
                statistics.median(r[size, setup] for r in rounds) for setup in setups
            ]
            cells = " | ".join(f"{x * 1e3:.0f}" for x in times)
            print(f"| {size[0]} × {size[1]} | {cells} |", flush=True)
        print()


if __name__ == "__main__":
    main()

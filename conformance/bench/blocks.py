"""How long blocked attention takes with blocks of other sizes, in every room.

    python conformance/bench/blocks.py [--room numpy] [--length 2048] [--rounds 5]

Prints a Markdown table for each room: milliseconds forward, forward and backward, and
forward with a causal mask, of 8 heads of so many positions in float32.  All sizes are
called in turn, round after round; medians count.
"""

import argparse
import statistics
from functools import partial

from attention import seconds_of
from contenders import Setup, room_in_jax, room_in_numpy, room_in_torch

ROOMS = {"numpy": room_in_numpy, "torch": room_in_torch, "jax": room_in_jax}
SIZES = [(q, k) for q in (128, 256, 512) for k in (256, 512, 1024)]


def main():
    """Measures room by room, and prints."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--room", action="append", choices=ROOMS)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    base = Setup(8, given.length)
    setups = [base, base._replace(backward=True), base._replace(causal=True)]
    for room in given.room or ROOMS:
        make = partial(ROOMS[room], "attention_blocked")
        calls = {
            (size, setup): make(setup, block_q=size[0], block_k=size[1])
            for size in SIZES
            for setup in setups
        }
        for call in calls.values():
            call()  # loads, compiles
        rounds = [
            {at: seconds_of(call) for at, call in calls.items()}
            for _ in range(given.rounds)
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

"""Where the time of a tile goes, in NumPy: nanoseconds a logit of each operation.

    python conformance/bench/tile.py

A tile is what `attention_blocked` works on: 512 queries and 512 keys of width 64, in
one thread.  Of many runs the fastest counts, in seconds of the processor.
"""

import time

import numpy as np
from threadpoolctl import threadpool_limits

QUERIES, KEYS, WIDTH = 512, 512, 64
RUNS = 200


def main():
    """Prints a line for each operation, and its share."""
    rng = np.random.default_rng(0)
    q = rng.standard_normal((QUERIES, WIDTH), np.float32)
    k, v = rng.standard_normal((2, KEYS, WIDTH), np.float32)
    logits = q @ k.T
    top = logits.max(axis=-1, keepdims=True)
    shifted, work = logits - top, np.empty_like(logits)
    operations = {
        "product of queries and keys": lambda: q @ k.T,
        "maximum": lambda: logits.max(axis=-1, keepdims=True),
        "difference": lambda: np.subtract(logits, top, out=work),
        "exponential": lambda: np.exp(shifted, out=work),
        "sum": lambda: logits.sum(axis=-1, keepdims=True),
        "product of weights and values": lambda: logits @ v,
    }
    with threadpool_limits(1, user_api="blas"):
        fastest = {name: least(call) for name, call in operations.items()}
    total = sum(fastest.values())
    for name, seconds in fastest.items():
        each = seconds / logits.size * 1e9
        print(f"{name:30} {each:5.2f} ns {seconds / total:6.0%}")


def least(call):
    """Seconds of the processor, of the fastest run."""
    found = []
    for _ in range(RUNS):
        started = time.process_time()
        call()
        found.append(time.process_time() - started)
    return min(found)


if __name__ == "__main__":
    main()

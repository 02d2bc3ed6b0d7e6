"""Where the time of a tile goes: nanoseconds a logit of each operation.

    python conformance/bench/tile.py [--room numpy]

A tile is what `attention_blocked` works on: 512 queries and 512 keys of width 64, here
of one head and in one thread.  Of many runs the fastest counts: whatever else the
machine does can only add to it.  XLA makes one pass of what lies between the maximum
and the products.
"""

import argparse
import os
import time
from functools import partial

import numpy as np

QUERIES, KEYS, WIDTH = 512, 512, 64
RUNS = 200

SCORES, VALUES = "product of queries and keys", "product of weights and values"
MAXIMUM, DIFFERENCE, EXPONENTIAL, SUM = "maximum", "difference", "exponential", "sum"
FUSED = "difference, exponential and sum"


def main():
    """Prints a line for each operation of each room, and its share."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--room", choices=ROOMS, help="by default each")
    given = parser.parse_args()
    for room in [given.room] if given.room else ROOMS:
        fastest = ROOMS[room](*arrays())
        total = sum(fastest.values())
        print(f"{room}, {total / (QUERIES * KEYS) * 1e9:.2f} ns a logit")
        for name, seconds in fastest.items():
            each = seconds / (QUERIES * KEYS) * 1e9
            print(f"  {name:32} {each:5.2f} ns {seconds / total:6.0%}")


def arrays():
    """Queries, keys and values."""
    rng = np.random.default_rng(0)
    q = rng.standard_normal((QUERIES, WIDTH), np.float32)
    k, v = rng.standard_normal((2, KEYS, WIDTH), np.float32)
    return q, k, v


def in_numpy(q, k, v):
    """Seconds of each operation, into arrays that are there."""
    from threadpoolctl import threadpool_limits

    logits = q @ k.T
    top = logits.max(axis=-1, keepdims=True)
    shifted, work = logits - top, np.empty_like(logits)
    with threadpool_limits(1, user_api="blas"):
        return {
            SCORES: least(lambda: q @ k.T),
            MAXIMUM: least(lambda: logits.max(axis=-1, keepdims=True)),
            DIFFERENCE: least(lambda: np.subtract(logits, top, out=work)),
            EXPONENTIAL: least(lambda: np.exp(shifted, out=work)),
            SUM: least(lambda: logits.sum(axis=-1, keepdims=True)),
            VALUES: least(lambda: logits @ v),
        }


def in_torch(q, k, v):
    """Likewise; only the exponential into one that is there, as in the room."""
    import torch

    torch.set_num_threads(1)
    q, k, v = map(torch.from_numpy, (q, k, v))
    logits = q @ k.T
    top = logits.amax(dim=-1, keepdim=True)
    shifted, work = logits - top, torch.empty_like(logits)
    return {
        SCORES: least(lambda: q @ k.T),
        MAXIMUM: least(lambda: logits.amax(dim=-1, keepdim=True)),
        DIFFERENCE: least(lambda: logits - top),
        EXPONENTIAL: least(lambda: torch.exp(shifted, out=work)),
        SUM: least(lambda: logits.sum(dim=-1, keepdim=True)),
        VALUES: least(lambda: logits @ v),
    }


def in_jax(q, k, v):
    """Likewise, each compiled by itself."""
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    import jax
    import jax.numpy as jnp

    def weights(x, top):
        exps = jnp.exp(x - top)
        return exps, exps.sum(axis=-1, keepdims=True)

    def timed(call, *arguments):
        compiled = jax.jit(call).lower(*arguments).compile()
        return least(lambda: jax.block_until_ready(compiled(*arguments)))

    q, k, v = map(jnp.asarray, (q, k, v))
    logits = q @ k.T
    highest = partial(jnp.max, axis=-1, keepdims=True)
    return {
        SCORES: timed(lambda x, y: x @ y.T, q, k),
        MAXIMUM: timed(highest, logits),
        FUSED: timed(weights, logits, highest(logits)),
        VALUES: timed(lambda x, y: x @ y, logits, v),
    }


ROOMS = {"numpy": in_numpy, "torch": in_torch, "jax": in_jax}


def least(call):
    """Seconds of the fastest run."""
    found = []
    for _ in range(RUNS):
        started = time.perf_counter()
        call()
        found.append(time.perf_counter() - started)
    return min(found)


if __name__ == "__main__":
    main()

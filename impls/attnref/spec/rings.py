"""Which part of a sequence is on which device of a ring, and in which order it is.

A ring of R devices deals a sequence out in R *shards*.  With a causal mask the first
shard's queries see few keys and the last one's all: the devices would wait for the
last.  In the *balanced* order device r holds two half shards, r and 2R − 1 − r, so that
all have as much to do.
"""

from typing import Any


def chunks_of(rank: Any, shards: int, balanced: bool) -> tuple[Any, ...]:
    """The stretches of the sequence on a device: shards, or half shards if balanced.

    `rank` is an int, or one of a framework's.
    """
    return (rank, 2 * shards - 1 - rank) if balanced else (rank,)


def balanced_order(length: int, shards: int) -> list[int]:
    """The positions of a sequence in the order in which balanced devices hold them.

    `x[:, :, order]` brings an array into it; `order` put in its own place is undone by
    sorting: `output[:, :, sorted(range(length), key=order.__getitem__)]`.

    Raises:
        ValueError: the length is no multiple of 2·shards.
    """
    size, rest = divmod(length, 2 * shards)
    if rest:
        raise ValueError(f"length {length} must be a multiple of {2 * shards}")
    chunks = (c for rank in range(shards) for c in chunks_of(rank, shards, True))
    return [chunk * size + x for chunk in chunks for x in range(size)]

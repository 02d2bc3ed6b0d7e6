"""One process of a ring of devices: `ring_devices.py PROCESS COUNT PORT FOLDER`.

Reads the sequence from the folder; process 0 leaves there what all computed.
"""

import sys
from pathlib import Path

import jax
import numpy as np
from jax.experimental.multihost_utils import process_allgather
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from attnref.jax import ring_attention
from attnref.spec import balanced_order, causal, padding

CASES = {
    "causal": (causal(), False),
    "padding": (causal() & padding([20, 32]), True),
}
"""Mask, and whether the order is the balanced one."""

NAMES = {1: tuple(CASES), 2: ("padding",)}
"""Number of processes → the cases that they compute: each takes seconds to compile."""


def main(process, count, port, folder):
    """Every case, forward and backward."""
    if count > 1:
        jax.distributed.initialize(f"127.0.0.1:{port}", count, process)
    mesh = Mesh(np.array(jax.devices()), ("ring",))
    whole = np.load(folder / "whole.npz")
    for name in NAMES[count]:
        mask, balanced = CASES[name]
        found = computed(mesh, whole, mask, balanced)
        if process == 0:
            np.savez(folder / f"{name}.npz", *found)


def computed(mesh, whole, mask, balanced):
    """Output, log-sum-exp and gradients, in the order of the sequence."""
    length = whole["q"].shape[2]
    order = list(range(length))
    if balanced:
        order = balanced_order(length, mesh.shape["ring"])
    over = NamedSharding(mesh, PartitionSpec(None, None, "ring"))

    def sharded(array):
        array = array[:, :, order]
        return jax.make_array_from_callback(array.shape, over, array.__getitem__)

    def forward(q, k, v):
        return ring_attention(
            q, k, v, mesh=mesh, axis="ring", mask=mask, balanced=balanced,
            block_q=4, block_k=4,
        )  # fmt: skip

    @jax.jit
    def both(q, k, v, d_out):
        (output, lse), pull = jax.vjp(forward, q, k, v)
        return output, lse, *pull((d_out, 0 * lse))

    found = both(*(sharded(whole[name]) for name in ("q", "k", "v", "d_out")))
    return [process_allgather(x, tiled=True)[:, :, np.argsort(order)] for x in found]


if __name__ == "__main__":
    process, count, port = map(int, sys.argv[1:4])
    main(process, count, port, Path(sys.argv[4]))

"""One rank of a ring: `ring_rank.py RANK COUNT PORT FOLDER [dies]`.

Reads the sequence from the folder and leaves there what this rank computed of it.
"""

import os
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from attnref.spec import balanced_order, causal, padding
from attnref.torch import ring_attention

MASKS = {
    "none": None,
    "causal": causal(),
    "padding": causal() & padding([20, 32]),
}
TIMEOUT = timedelta(seconds=20)


def main(rank, count, port, folder, *dies):
    """Every mask, in both orders, forward and backward."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://127.0.0.1:{port}",
        rank=rank,
        world_size=count,
        timeout=TIMEOUT,
    )
    if dies and rank == 1:
        os._exit(3)
    whole = torch.load(folder / "whole.pt")
    for name, mask in MASKS.items():
        for balanced in (False, True):
            found = computed(rank, count, whole, mask, balanced)
            torch.save(found, folder / f"{name}-{balanced}-{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


def computed(rank, count, whole, mask, balanced):
    """This rank's output, log-sum-exp and gradients."""
    length = whole["q"].shape[2]
    order = balanced_order(length, count) if balanced else list(range(length))
    mine = order[rank * length // count : (rank + 1) * length // count]
    parts = {name: x[:, :, mine].clone() for name, x in whole.items()}
    leaves = [parts[name].requires_grad_() for name in "qkv"]
    output, lse = ring_attention(
        *leaves, mask=mask, balanced=balanced, block_q=4, block_k=4
    )
    gradients = torch.autograd.grad(output, leaves, parts["d_out"])
    return {"positions": mine, "arrays": [output.detach(), lse.detach(), *gradients]}


if __name__ == "__main__":
    rank, count, port = map(int, sys.argv[1:4])
    main(rank, count, port, Path(sys.argv[4]), *sys.argv[5:])

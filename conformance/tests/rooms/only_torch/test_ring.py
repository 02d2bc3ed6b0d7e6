"""A ring of processes gives attention over the whole sequence, or an error."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.distributed import TCPStore

from attncheck import assert_attention
from attnref.spec import causal
from attnref.torch import ring_attention

from .ring_rank import MASKS

LENGTH = 32


def whole():
    make = torch.Generator().manual_seed(0)
    shapes = {"q": (4, 8), "k": (2, 8), "v": (2, 4), "d_out": (4, 4)}
    return {
        name: torch.randn(2, heads, LENGTH, width, generator=make)
        for name, (heads, width) in shapes.items()
    }


def start(count, folder, *words):
    """Starts the ranks; the port is one that was free a moment ago."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    port = store.port
    del store
    program = [sys.executable, Path(__file__).with_name("ring_rank.py")]
    return [
        subprocess.Popen(
            [*map(str, (*program, rank, count, port, folder)), *words],
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]


@pytest.mark.parametrize("count", [2, 4])
def test_ranks_together_give_the_whole(count, tmp_path):
    arrays = whole()
    torch.save(arrays, tmp_path / "whole.pt")
    for process in start(count, tmp_path):
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    q, k, v, d_out = arrays.values()
    for name, mask in MASKS.items():
        for balanced in (False, True):
            files = [tmp_path / f"{name}-{balanced}-{rank}.pt" for rank in range(count)]
            parts = [torch.load(file) for file in files]
            places = torch.tensor([at for part in parts for at in part["positions"]])
            joined = [
                torch.cat(x, dim=2)[:, :, places.argsort()]
                for x in zip(*(part["arrays"] for part in parts), strict=True)
            ]
            output, lse, *grads = joined
            assert_attention(
                output, q, k, v, mask=mask, lse=lse, grads=grads, d_out=d_out,
                profile="strict",
            )  # fmt: skip


def test_a_rank_that_dies_is_an_error_and_no_hang(tmp_path):
    torch.save(whole(), tmp_path / "whole.pt")
    first, second = start(2, tmp_path, "dies")
    second.communicate(timeout=60)
    assert second.returncode == 3
    _, errors = first.communicate(timeout=60)  # the ranks' own timeout is 20 seconds
    assert first.returncode not in (0, None)
    assert "RuntimeError" in errors or "DistBackendError" in errors


def test_a_mask_is_a_predicate_and_shards_have_halves(tmp_path):
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        q = torch.ones(1, 1, 3, 2)
        with pytest.raises(TypeError, match="must be a predicate over the whole"):
            ring_attention(q, q, q, mask=torch.ones(1, 1, 3, 3).bool())
        with pytest.raises(ValueError, match="i = 3 must be a multiple of 2 half"):
            ring_attention(q, q, q, mask=causal(), balanced=True)
    finally:
        torch.distributed.destroy_process_group()

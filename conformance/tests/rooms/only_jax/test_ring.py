"""A ring of devices, in one process or in two, gives attention over the whole."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attncheck import assert_attention
from attnref.jax import ring_attention
from attnref.spec import balanced_order, causal

from .ring_devices import CASES, NAMES


def whole():
    rng = np.random.default_rng(0)
    shapes = {"q": (4, 8), "k": (2, 8), "v": (2, 4), "d_out": (4, 4)}
    return {
        name: rng.standard_normal((2, heads, 32, width), np.float32)
        for name, (heads, width) in shapes.items()
    }


def free_port():
    """A port that was free a moment ago."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.mark.parametrize(("processes", "devices"), [(1, 8), (2, 1)])
def test_devices_together_give_the_whole(processes, devices, tmp_path):
    arrays = whole()
    np.savez(tmp_path / "whole.npz", **arrays)
    flags = f"--xla_force_host_platform_device_count={devices}"
    port = free_port()
    started = [
        subprocess.Popen(
            [
                *(sys.executable, Path(__file__).with_name("ring_devices.py")),
                *map(str, (process, processes, port, tmp_path)),
            ],
            env=os.environ | {"XLA_FLAGS": flags},
            stderr=subprocess.PIPE,
            text=True,
        )
        for process in range(processes)
    ]
    for process in started:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    q, k, v, d_out = arrays.values()
    for name in NAMES[processes]:
        mask, _ = CASES[name]
        output, lse, *grads = np.load(tmp_path / f"{name}.npz").values()
        assert_attention(
            output, q, k, v, mask=mask, lse=lse, grads=grads, d_out=d_out,
            profile="strict",
        )  # fmt: skip


def test_a_mask_is_a_predicate_and_shards_have_halves():
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("ring",))
    q = jnp.ones((1, 1, 3, 2))
    ring = {"mesh": mesh, "axis": "ring"}
    with pytest.raises(TypeError, match="must be a predicate over the whole sequence"):
        ring_attention(q, q, q, mask=jnp.ones((1, 1, 3, 3), bool), **ring)
    with pytest.raises(ValueError, match="i = 3 must be a multiple of 2 half shards"):
        ring_attention(q, q, q, mask=causal(), balanced=True, **ring)


def test_the_balanced_order_gives_every_device_as_many_visible_keys():
    order = balanced_order(24, 3)
    assert sorted(order) == list(range(24))
    shares = np.reshape(order, (3, 8)) + 1  # a causal query sees as many keys
    assert len(set(shares.sum(axis=1))) == 1
    with pytest.raises(ValueError, match="length 25 must be a multiple of 6"):
        balanced_order(25, 3)

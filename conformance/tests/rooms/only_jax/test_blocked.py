"""`jit`, `vmap`, `grad` and memory of blocked attention."""

import jax
import jax.numpy as jnp
import numpy as np

from attnref.jax import attention_blocked, attention_blocked_vjp
from attnref.spec import causal, padding

from ..calls import answered, assert_defined, change, draw

SIZES = {"b": 2, "h": 1, "g": 2, "i": 6, "j": 7, "d": 2, "e": 3}
FULL = (2, 2, 6, 7)
BLOCKS = {"block_q": 4, "block_k": 4}


def test_jit_and_vmap_over_lengths():
    case = draw("F32", sizes=SIZES)
    q, k, v = (jnp.asarray(case.inputs[name]) for name in "qkv")
    lengths = np.array([[3, 7], [0, 1]])

    @jax.jit
    @jax.vmap
    def padded(lengths):
        return attention_blocked(q, k, v, mask=padding(lengths), **BLOCKS)[0]

    for got, at in zip(padded(jnp.array(lengths)), lengths, strict=True):
        masked = change(case, mask=answered(padding(at), FULL))
        assert_defined(masked, {"output": np.asarray(got)})


def test_grad_gives_what_the_vjp_gives():
    case = draw("F32", sizes=SIZES, bias="nj")
    q, k, v, bias, d_out = (
        jnp.asarray(case.inputs[x]) for x in ("q", "k", "v", "bias", "d_out")
    )

    def loss(q, k, v, bias):
        output, _ = attention_blocked(q, k, v, mask=causal(), bias=bias, **BLOCKS)
        return (output * d_out).sum()

    got = jax.grad(loss, (0, 1, 2, 3))(q, k, v, bias)
    want = attention_blocked_vjp(d_out, q, k, v, mask=causal(), bias=bias, **BLOCKS)
    for x, y in zip(got, want, strict=True):
        np.testing.assert_array_equal(x, y)


def test_a_gradient_takes_memory_of_blocks_only():
    length = 2048

    def loss(q):
        return attention_blocked(q, q, q, mask=causal(), block_q=64, block_k=64)[
            0
        ].sum()

    q = jax.ShapeDtypeStruct((1, 1, length, 8), jnp.float32)
    compiled = jax.jit(jax.grad(loss)).lower(q).compile()
    matrix = 4 * length**2
    assert compiled.memory_analysis().temp_size_in_bytes < matrix / 16

"""What is timed: attention from queries, keys and values `b n i d`, by name.

Every contender is a function of a setup that gives a call without arguments; the call
returns when its results are there.  Frameworks are imported where they are used.
"""

import os
from functools import partial
from typing import NamedTuple

import numpy as np


class Setup(NamedTuple):
    """One point: one batch element, as many keys as queries, d = e = 64."""

    heads: int
    length: int
    dtype: str = "float32"
    causal: bool = False
    backward: bool = False
    """Forward and backward, in one time."""

    @property
    def flops(self):
        """Of the matrix products alone: 2 forward, 5 more backward; 2 a product."""
        products = 7 if self.backward else 2
        return products * 2 * self.heads * self.length**2 * WIDTH


WIDTH = 64
THREADS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def arrays(setup):
    """q, k, v and the output's gradient, the same numbers for all, in float32."""
    rng = np.random.default_rng(0)
    shape = (4, 1, setup.heads, setup.length, WIDTH)
    return rng.standard_normal(shape, dtype=np.float32)


def mask_of(setup):
    """The spec's predicate, or None."""
    from attnref.spec import causal

    return causal() if setup.causal else None


def room_in_numpy(name, setup, **options):
    """A function of the NumPy room; `attention_blocked` and its like."""
    import ml_dtypes

    from attnref import numpy as room

    dtype = ml_dtypes.bfloat16 if setup.dtype == "bfloat16" else setup.dtype
    q, k, v, d_out = arrays(setup).astype(dtype)
    options["mask"] = mask_of(setup)
    if setup.backward:
        return partial(getattr(room, f"{name}_vjp"), d_out, q, k, v, **options)
    return partial(getattr(room, name), q, k, v, **options)


def numpy_by_hand(setup):
    """What one writes without this project."""
    q, k, v, _ = arrays(setup)
    if setup != Setup(setup.heads, setup.length):
        return None

    def call():
        scores = q @ k.swapaxes(-1, -2) * np.float32(WIDTH**-0.5)
        scores -= scores.max(axis=-1, keepdims=True)
        weights = np.exp(scores)
        return weights / weights.sum(axis=-1, keepdims=True) @ v

    return call


def in_torch(function, setup):
    """A call of a function of tensors q, k, v, and its backward pass if need be."""
    import torch

    torch.set_num_threads(THREADS)
    tensors = torch.from_numpy(arrays(setup)).to(getattr(torch, setup.dtype))
    *inputs, d_out = (x.clone().requires_grad_(setup.backward) for x in tensors)

    def call():
        output = function(*inputs)
        if setup.backward:
            torch.autograd.grad(output, inputs, d_out.detach())

    return call


def room_in_torch(name, setup, **options):
    """A function of the PyTorch room."""
    from attnref import torch as room

    def function(q, k, v):
        found = getattr(room, name)(q, k, v, mask=mask_of(setup), **options)
        return found[0] if isinstance(found, tuple) else found

    return in_torch(function, setup)


def torch_by_hand(setup):
    """What one writes without this project."""
    if setup.causal:
        return None
    return in_torch(lambda q, k, v: (q @ k.mT * WIDTH**-0.5).softmax(dim=-1) @ v, setup)


def torch_sdpa(backend, setup):
    """PyTorch's own, by the backend of a name."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    def function(q, k, v):
        with sdpa_kernel(getattr(SDPBackend, backend)):
            return scaled_dot_product_attention(q, k, v, is_causal=setup.causal)

    return in_torch(function, setup)


def in_jax(function, setup):
    """A compiled call of a function of arrays q, k, v, and of its gradient."""
    import jax
    import jax.numpy as jnp

    *inputs, d_out = (jnp.asarray(x, setup.dtype) for x in arrays(setup))

    def gradients(*inputs):
        output, pull = jax.vjp(function, *inputs)
        return output, pull(d_out)

    compiled = jax.jit(gradients if setup.backward else function)
    return lambda: jax.block_until_ready(compiled(*inputs))


def room_in_jax(name, setup, **options):
    """A function of the JAX room."""
    from attnref import jax as room

    def function(q, k, v):
        found = getattr(room, name)(q, k, v, mask=mask_of(setup), **options)
        return found[0] if isinstance(found, tuple) else found

    return in_jax(function, setup)


def jax_by_hand(setup):
    """What one writes without this project."""
    import jax

    if setup.causal:
        return None

    def function(q, k, v):
        scores = q @ k.swapaxes(-1, -2) * WIDTH**-0.5
        return jax.nn.softmax(scores, axis=-1) @ v

    return in_jax(function, setup)


def jax_nn(setup):
    """JAX's own, whose axes are `b i n d`."""
    import jax

    def function(q, k, v):
        q, k, v = (x.swapaxes(1, 2) for x in (q, k, v))
        return jax.nn.dot_product_attention(q, k, v, is_causal=setup.causal)

    return in_jax(lambda *x: function(*x).swapaxes(1, 2), setup)


def onnxruntime(setup):
    """The operator Attention of ONNX, opset 23; forward, float32."""
    if setup.backward or setup.dtype != "float32":
        return None
    try:
        import onnx
        from onnxruntime import InferenceSession, SessionOptions
    except ImportError:
        return None
    shape = (1, setup.heads, setup.length, WIDTH)
    value = partial(onnx.helper.make_tensor_value_info, elem_type=1, shape=shape)
    node = onnx.helper.make_node(
        "Attention", ["q", "k", "v"], ["y"], is_causal=int(setup.causal)
    )
    graph = onnx.helper.make_graph([node], "a", [value(x) for x in "qkv"], [value("y")])
    opsets = [onnx.helper.make_opsetid("", 23)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=11)
    options = SessionOptions()
    options.intra_op_num_threads = THREADS
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = InferenceSession(
        model.SerializeToString(), options, ["CPUExecutionProvider"]
    )
    inputs = dict(zip("qkv", arrays(setup), strict=False))
    return lambda: session.run(None, inputs)


CONTENDERS = {
    "numpy textbook": partial(room_in_numpy, "attention"),
    "numpy by hand": numpy_by_hand,
    "numpy blocked": partial(room_in_numpy, "attention_blocked"),
    "torch textbook": partial(room_in_torch, "attention"),
    "torch by hand": torch_by_hand,
    "torch blocked": partial(room_in_torch, "attention_blocked"),
    "torch flash": partial(torch_sdpa, "FLASH_ATTENTION"),
    "torch math": partial(torch_sdpa, "MATH"),
    "jax textbook": partial(room_in_jax, "attention"),
    "jax by hand": jax_by_hand,
    "jax blocked": partial(room_in_jax, "attention_blocked"),
    "jax.nn": jax_nn,
    "onnxruntime": onnxruntime,
}
"""Name → what makes its call of a setup, or None where it has none."""

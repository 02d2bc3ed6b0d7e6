"""Keras: its function and its layer, on each of its backends."""

import os
from functools import partial

from attncheck.library import Library
from attncheck.subject import SubjectError
from attnref.spec import Conventions

DOCS = "https://keras.io/api/layers/attention_layers/multi_head_attention/"


def _keras(backend: str):
    """Keras with a backend, which a process chooses once."""
    os.environ["KERAS_BACKEND"] = backend
    import keras

    if keras.backend.backend() != backend:
        raise SubjectError(f"Keras runs on {keras.backend.backend()} here already")
    return keras


def _function(name: str, backend: str) -> Library:
    """`keras.ops.dot_product_attention`."""
    function = _keras(backend).ops.dot_product_attention
    return Library(
        name=name,
        function=function,
        framework=backend,
        packages=PACKAGES[name],
        conventions=Conventions(layout="b i n d"),
        profile="eager",
    )


def _layer(name: str, backend: str) -> Library:
    """`keras.layers.MultiHeadAttention`, its projections the identity."""
    keras = _keras(backend)

    def attention(query, key, value, mask=None, causal=False):
        (b, i, n, d), e = query.shape, value.shape[3]
        dtype = str(query.dtype).removeprefix("torch.")
        options = {"value_dim": e, "use_bias": False, "output_shape": n * e}
        layer = keras.layers.MultiHeadAttention(n, d, dtype=dtype, **options)
        flat = [x.reshape(*x.shape[:2], n * x.shape[3]) for x in (query, value, key)]
        layer.build(*(x.shape for x in flat))
        eyes = [keras.ops.eye(n * size, dtype=dtype) for size in (d, d, e, e)]
        shapes = [w.shape for w in layer.weights]
        layer.set_weights([x.reshape(s) for x, s in zip(eyes, shapes, strict=True)])
        out = layer(*flat, attention_mask=mask, use_causal_mask=causal)
        return out.reshape(b, i, n, e)

    return Library(
        name=name,
        function=attention,
        framework=backend,
        packages=PACKAGES[name],
        conventions=Conventions(layout="b i n d", heads=None),
        projects=True,
        full="bnij",
        profile="eager",
    )


NAMES = {
    f"keras:{kind}-{backend}": (make, backend)
    for kind, make in (("ops", _function), ("layer", _layer))
    for backend in ("torch", "jax", "numpy")
}

SUBJECTS = {name: partial(make, name, on) for name, (make, on) in NAMES.items()}

# Its NumPy backend imports SciPy and JAX, which Keras does not ask for.
BACKENDS = {"numpy": ("numpy", "scipy", "jax"), "torch": ("torch",), "jax": ("jax",)}

PACKAGES = {name: ("keras", *BACKENDS[backend]) for name, (_, backend) in NAMES.items()}

# JAX compiles for every shape.
BOARD_SET = {
    name: "forward" if backend == "jax" else "smoke"
    for name, (_, backend) in NAMES.items()
}

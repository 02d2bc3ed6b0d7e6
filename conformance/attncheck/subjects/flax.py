"""Flax's functions of attention, of both of its APIs."""

from attncheck.library import Library
from attnref.spec import Conventions

BOARD_SET = "forward"  # JAX compiles for every shape
PACKAGES = ("flax", "jax")
DOCS = "https://flax.readthedocs.io/en/stable/api_reference/flax.nnx/nn/attention.html"


def linen() -> Library:
    """`flax.linen.dot_product_attention`."""
    from flax.linen import dot_product_attention as function

    ours = Conventions(layout="b i n d", heads=None)
    return Library(
        name="flax:linen",
        function=function,
        framework="jax",
        packages=PACKAGES,
        conventions=ours,
        profile="eager",
    )


def nnx() -> Library:
    """`flax.nnx.dot_product_attention`, which calls JAX's where it can."""
    from flax.nnx import dot_product_attention as function

    ours = Conventions(layout="b i n d", value_width="same")
    return Library(
        name="flax:nnx",
        function=function,
        framework="jax",
        packages=PACKAGES,
        conventions=ours,
    )


SUBJECTS = {"flax:linen": linen, "flax:nnx": nnx}

"""`jax.nn.dot_product_attention`, the path that runs everywhere."""

from functools import partial

from attncheck.library import Library
from attnref.spec import Conventions

BOARD_SET = "forward"  # JAX compiles for every shape
PACKAGES = ("jax", "jaxlib")
DOCS = "https://docs.jax.dev/en/latest/_autosummary/jax.nn.dot_product_attention.html"


def xla() -> Library:
    """XLA's path, with the log-sum-exp as `return_residual` gives it."""
    from jax.nn import dot_product_attention

    return Library(
        name="jax:xla",
        function=partial(dot_product_attention, implementation="xla"),
        framework="jax",
        packages=PACKAGES,
        conventions=Conventions(layout="b i n d", value_width="same"),
        returns=("output", "lse"),
    )


SUBJECTS = {"jax:xla": xla}

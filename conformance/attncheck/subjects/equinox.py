"""Equinox's attention of one head, mapped over batch and heads."""

from attncheck.library import Library
from attnref.spec import Conventions

BOARD_SET = "forward"  # JAX compiles for every shape
PACKAGES = ("equinox", "jax")
DOCS = "https://docs.kidger.site/equinox/api/nn/attention/"


def attention() -> Library:
    """The function inside `equinox.nn.MultiheadAttention`."""
    from equinox.nn._attention import dot_product_attention as of_head
    from jax import vmap

    def dot_product_attention(query, key, value, mask=None):
        axes = (0, 0, 0, None if mask is None else 0)
        return vmap(vmap(of_head, axes), axes)(query, key, value, mask)

    return Library(
        name="equinox:attention",
        function=dot_product_attention,
        framework="jax",
        packages=PACKAGES,
        conventions=Conventions(heads=None),
        full="bnij",
        profile="eager",
    )


SUBJECTS = {"equinox:attention": attention}

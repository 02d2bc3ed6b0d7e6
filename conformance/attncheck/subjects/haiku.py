"""Haiku's `MultiHeadAttention`, its projections the identity."""

from attncheck.library import Library
from attnref.spec import Conventions

BOARD_SET = "forward"  # JAX compiles for every shape
PACKAGES = ("dm-haiku", "jax")
DOCS = "https://dm-haiku.readthedocs.io/en/latest/api.html#multiheadattention"


def layer() -> Library:
    """The layer, with as many heads as q has."""
    import haiku as hk
    import jax.numpy as jnp

    def attention(query, key, value, mask=None):
        b, i, n, d = query.shape
        e = value.shape[3]
        sizes = {"query": n * d, "key": n * d, "value": n * e, "linear": n * e}
        eye = {k: {"w": jnp.eye(s, dtype=query.dtype)} for k, s in sizes.items()}
        weights = {f"multi_head_attention/{name}": w for name, w in eye.items()}
        options = {"with_bias": False, "value_size": e, "model_size": n * e}
        made = hk.MultiHeadAttention
        run = hk.transform(lambda *x: made(n, d, w_init=jnp.zeros, **options)(*x))
        flat = (x.reshape(*x.shape[:2], n * x.shape[3]) for x in (query, key, value))
        return run.apply(weights, None, *flat, mask).reshape(b, i, n, e)

    return Library(
        name="haiku:mha",
        function=attention,
        framework="jax",
        packages=PACKAGES,
        conventions=Conventions(layout="b i n d", heads=None),
        projects=True,
        profile="eager",
    )


SUBJECTS = {"haiku:mha": layer}

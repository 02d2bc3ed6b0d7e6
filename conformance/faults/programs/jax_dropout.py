"""Attention for training: dropout of weights, by a mask of those that are kept."""

import jax
import jax.numpy as jnp


def make(mistake=None):
    """The attention function, with one of its mistakes or with none."""

    def drop(p, keep, rate):
        """Dropped weights are 0, kept ones make up for them."""
        if mistake == "divided_by_rate":
            return p * keep / rate
        if mistake == "keeps_the_dropped":
            keep = ~keep
        return p * keep / (1 - rate)

    def attention(q, k, v, *, mask=None, bias=None, scale=None, softcap=None,
                  dropout_rate=0.0, dropout_keep=None):  # fmt: skip
        b, n, i, d = q.shape
        h, j = k.shape[1:3]
        dtype = jnp.promote_types(q.dtype, jnp.float32)
        seen = jnp.full((b, n, i, j), True)
        seen = seen if mask is None else jnp.logical_and(seen, mask)
        rows = jnp.where(seen.any(-1, keepdims=True), q.astype(dtype), 0)
        k, v = (jnp.repeat(x.astype(dtype), n // h, axis=1) for x in (k, v))
        k, v = (jnp.where(seen.any(-2)[..., None], x, 0) for x in (k, v))
        x = jnp.matmul(rows, k.mT) * (d**-0.5 if scale is None else scale)
        if softcap is not None:
            outer = 1 if mistake == "softcap_not_multiplied_back" else softcap
            x = jnp.tanh(x / softcap) * outer
        if bias is not None:
            x = x + jnp.where(seen, bias.astype(dtype), 0)
        if mistake == "dropped_before_softmax" and dropout_keep is not None:
            seen = seen & dropout_keep
            dropout_keep = jnp.full((), True)
        x = jnp.where(seen, x, -jnp.inf)
        empty = jnp.all(x == -jnp.inf, axis=-1, keepdims=True)
        p = jax.nn.softmax(jnp.where(empty, 0, x))
        if dropout_keep is not None:
            p = drop(p, dropout_keep, dropout_rate)
        return jnp.where(empty, 0, jnp.matmul(p, v)).astype(q.dtype)

    return attention


right = make()
divided_by_rate = make("divided_by_rate")
keeps_the_dropped = make("keeps_the_dropped")
softcap_not_multiplied_back = make("softcap_not_multiplied_back")
dropped_before_softmax = make("dropped_before_softmax")

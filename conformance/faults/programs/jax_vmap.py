"""One head as a function of matrices, mapped over group, heads and batch."""

import jax
import jax.numpy as jnp


def make(mistake=None):
    """The attention function, with one of its mistakes or with none."""

    def head(q, k, v, seen, bias, scale, softcap):
        """i d, j d, j e, i j, i j -> i e"""
        q = jnp.where(seen.any(axis=1)[:, None], q, 0)
        x = jnp.inner(q, k) * scale
        if softcap is not None:
            x = softcap * jnp.tanh(x / softcap)
        x = jnp.where(seen, x + jnp.where(seen, bias, 0), -jnp.inf)
        empty = jnp.all(x == -jnp.inf, axis=1)[:, None]
        p = jax.nn.softmax(jnp.where(empty, 0, x), axis=1)
        return jnp.where(empty, 0, p @ v)

    def attention(q, k, v, *, mask=None, bias=None, scale=None, softcap=None):
        (b, n, i, d), (_, h, j, e) = q.shape, v.shape
        wide = jnp.promote_types(q.dtype, jnp.float32)
        heads = (b, h, n // h)
        seen = jnp.broadcast_to(True if mask is None else mask, (b, n, i, j))
        bias = jnp.zeros((), wide) if bias is None else bias.astype(wide)
        bias = jnp.broadcast_to(bias, (b, n, i, j))
        if mistake == "mask_of_first_head":
            seen = jnp.broadcast_to(seen[:, :1], seen.shape)
        seen, bias = seen.reshape(*heads, i, j), bias.reshape(*heads, i, j)
        unseen = ~seen.any(axis=(2, 3))[..., None]
        k, v = (jnp.where(unseen, 0, x.astype(wide)) for x in (k, v))
        rows = q.reshape(*heads, i, d).astype(wide)
        if mistake == "batch_shares_keys":
            k = jnp.broadcast_to(k[:1], k.shape)
        numbers = d**-0.5 if scale is None else scale, softcap
        group = jax.vmap(lambda *x: head(*x, *numbers), (0, None, None, 0, 0))
        axis = 1 if mistake == "groups_come_out_first" else 0
        output = jax.vmap(jax.vmap(group, out_axes=axis))(rows, k, v, seen, bias)
        return output.reshape(b, n, i, e).astype(q.dtype)

    return attention


right = make()
mask_of_first_head = make("mask_of_first_head")
batch_shares_keys = make("batch_shares_keys")
groups_come_out_first = make("groups_come_out_first")

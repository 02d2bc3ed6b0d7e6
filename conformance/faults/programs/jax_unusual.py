"""Mistakes that nobody would look for."""

import jax
import jax.numpy as jnp


def make(mistake=None):
    """The attention function, with one of its mistakes or with none."""

    def attention(q, k, v, *, mask=None, bias=None, scale=None, softcap=None):
        (b, n, i, d), (h, j) = q.shape, k.shape[1:3]
        wide = jnp.promote_types(q.dtype, jnp.float32)
        seen = jnp.broadcast_to(True if mask is None else mask, (b, n, i, j))
        rows = jnp.where(seen.any(axis=3)[..., None], q, 0).astype(wide)
        k, v = (x.astype(wide).repeat(n // h, axis=1) for x in (k, v))
        k, v = (jnp.where(seen.any(axis=2)[..., None], x, 0) for x in (k, v))
        x = jnp.einsum("bnid,bnjd->bnij", rows, k)
        x = x * (d**-0.5 if scale is None else scale)
        x = x if softcap is None else softcap * jnp.tanh(x / softcap)
        if mistake == "long_keys_are_louder":
            x = x + 0.05 * jnp.linalg.norm(k, axis=3)[:, :, None]
        x = x if bias is None else x + jnp.where(seen, bias.astype(wide), 0)
        x = jnp.where(seen, x, -jnp.inf)
        empty = (x == -jnp.inf).all(axis=3, keepdims=True)
        p = jax.nn.softmax(jnp.where(empty, 0, x), axis=3)
        if mistake == "weights_to_a_power":
            p = p**1.03125
        output = jnp.where(empty, 0, jnp.einsum("bnij,bnje->bnie", p, v))
        if mistake == "neighbours_blend" and i:
            before = jnp.concatenate((output[:, :, :1], output[:, :, :-1]), axis=2)
            output = jnp.where(empty, 0, 0.875 * output + 0.125 * before)
        return output.astype(q.dtype)

    return attention


right = make()
long_keys_are_louder = make("long_keys_are_louder")
weights_to_a_power = make("weights_to_a_power")
neighbours_blend = make("neighbours_blend")

"""Casts at the door, as in a library whose default is float32."""

import jax
import jax.numpy as jnp


def make(mistake=None):
    """The attention function, with one of its mistakes or with none."""

    def weights_of(x):
        """Softmax; a row of nothing but minus infinity is 0."""
        empty = jnp.isneginf(x).all(axis=-1, keepdims=True)
        return jnp.where(empty, 0, jax.nn.softmax(jnp.where(empty, 0, x), axis=-1))

    def attention(q, k, v, *, mask=None, bias=None, scale=None, softcap=None):
        storage, group = q.dtype, q.shape[1] // k.shape[1]
        wide = jnp.promote_types(storage, jnp.float32)
        wide = jnp.float32 if mistake == "float64_in_float32" else wide
        q, k, v = (x.astype(wide) for x in (q, k, v))
        k, v = (x.repeat(group, axis=1) for x in (k, v))
        shape = (*q.shape[:3], k.shape[2])
        seen = jnp.broadcast_to(True if mask is None else mask, shape)
        if mistake == "query_padding_only":
            seen = jnp.broadcast_to(seen.any(axis=3, keepdims=True), shape)
        alive = seen.any(axis=3)[..., None]
        q = jnp.where(alive, q, 0)
        k, v = (jnp.where(seen.any(axis=2)[..., None], x, 0) for x in (k, v))
        x = jnp.einsum("bnid,bnjd->bnij", q, k)
        scale = q.shape[3] ** -0.5 if scale is None else scale
        x = x * (abs(scale) if mistake == "scale_loses_sign" else scale)
        x = x if softcap is None else softcap * jnp.tanh(x / softcap)
        x = x if bias is None else x + jnp.where(seen, bias.astype(wide), 0)
        p = weights_of(jnp.where(seen, x, -jnp.inf))
        if mistake == "weights_rounded_to_8_bits":
            p = p.astype(jnp.float8_e4m3fn).astype(wide)
        output = jnp.where(alive, jnp.einsum("bnij,bnje->bnie", p, v), 0)
        return output.astype(storage)

    return attention


right = make()
float64_in_float32 = make("float64_in_float32")
query_padding_only = make("query_padding_only")
scale_loses_sign = make("scale_loses_sign")
weights_rounded_to_8_bits = make("weights_rounded_to_8_bits")

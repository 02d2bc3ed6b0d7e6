"""jax.numpy as one would write NumPy."""

import jax.numpy as jnp
from jax.lax import stop_gradient


def make(mistake=None):
    """The attention function, with one of its mistakes or with none."""

    def attention(q, k, v, *, mask=None, bias=None, scale=None, softcap=None):
        storage, group = q.dtype, q.shape[1] // k.shape[1]
        wide = jnp.promote_types(storage, jnp.float32)
        k, v = (jnp.repeat(x.astype(wide), group, axis=1) for x in (k, v))
        seen = jnp.ones((*q.shape[:3], k.shape[2]), bool)
        seen = seen if mask is None else seen & mask
        q = jnp.where(seen.any(3)[..., None], q.astype(wide), 0)
        k = jnp.where(seen.any(2)[..., None], k, 0)
        if mistake != "blocked_value_leaks":
            v = jnp.where(seen.any(2)[..., None], v, 0)
        scale = q.shape[3] ** -0.5 if scale is None else scale
        if mistake == "scaled_twice":
            q = q * scale
        x = q @ k.swapaxes(2, 3) * scale
        x = x if softcap is None else softcap * jnp.tanh(x / softcap)
        x = x if bias is None else x + jnp.where(seen, bias.astype(wide), 0)
        fill = jnp.finfo(wide).min if mistake == "empty_rows_average" else -jnp.inf
        masked = jnp.where(seen, x, fill)
        top = stop_gradient(masked.max(axis=3, keepdims=True, initial=-jnp.inf))
        if mistake == "no_maximum":
            top = jnp.where(top == -jnp.inf, top, 0)
        empty = top == -jnp.inf
        if mistake == "where_after_exp":
            p = jnp.where(seen, jnp.exp(x - jnp.where(empty, 0, top)), 0)
        else:
            p = jnp.exp(masked - jnp.where(empty, 0, top))
        total = jnp.where(empty, 1, p.sum(axis=3, keepdims=True))
        return jnp.where(empty, 0, p / total @ v).astype(storage)

    return attention


right = make()
blocked_value_leaks = make("blocked_value_leaks")
scaled_twice = make("scaled_twice")
empty_rows_average = make("empty_rows_average")
no_maximum = make("no_maximum")
where_after_exp = make("where_after_exp")

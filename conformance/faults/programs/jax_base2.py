"""A kernel that computes powers of two: log2(e) goes into the scale."""

import jax
import jax.numpy as jnp

from attncheck.subject import Subject

LOG2_E = 1.4426950408889634


def make(mistake=None):
    """The subject, with one of its mistakes or with none."""

    def attention(q, k, v, *, mask=None, bias=None, scale=None, softcap=None):
        (b, n, i, d), (_, h, j, e) = q.shape, v.shape
        wide = jnp.promote_types(q.dtype, jnp.float32)
        full = (b, h, n // h, i, j)
        seen = jnp.broadcast_to(True if mask is None else mask, (b, n, i, j))
        bias = jnp.zeros((), wide) if bias is None else bias.astype(wide)
        bias = jnp.where(seen, bias, 0).reshape(full)
        seen = seen.reshape(full)
        rows = q.reshape(b, h, n // h, i, d).astype(wide)
        rows = jnp.where(seen.any(axis=4)[..., None], rows, 0)
        used = seen.any(axis=(2, 3))[..., None]
        k, v = (jnp.where(used, x.astype(wide), 0) for x in (k, v))
        scale = d**-0.5 if scale is None else scale
        x = jnp.einsum("bhgid,bhjd->bhgij", rows, k)
        base = 1 if mistake == "base_2_of_natural_logits" else LOG2_E
        if softcap is not None:
            x = softcap * base * jnp.tanh(x * (scale / softcap))
        else:
            x = x * (scale * base)
        x = x + (bias if mistake == "bias_not_in_base_2" else bias * base)
        x = jnp.where(seen, x, -jnp.inf)
        top = jax.lax.stop_gradient(x.max(axis=4, initial=-jnp.inf))
        empty = top == -jnp.inf
        top = jnp.where(empty, 0, top)
        p = jnp.exp2(x - top[..., None])
        total = jnp.where(empty, 1, p.sum(axis=4))
        sums = total + jnp.exp2(-top) if mistake == "softmax_plus_one" else total
        output = jnp.einsum("bhgij,bhje->bhgie", p, v) / sums[..., None]
        output = jnp.where(empty[..., None], 0, output)
        lse = (top + jnp.log2(total)) / base
        if mistake == "lse_adds_both_bases":
            lse = top + jnp.log(total)
        nothing = 0 if mistake == "lse_of_nothing_is_0" else -jnp.inf
        lse = jnp.where(empty, nothing, lse)
        return output.reshape(b, n, i, e).astype(q.dtype), lse.reshape(b, n, i)

    return Subject(
        call=attention,
        framework="jax",
        name=f"base 2, {mistake or 'right'}",
        accepts=frozenset(("mask", "bias", "scale", "softcap")),
        returns=("output", "lse"),
    )


right = make()
base_2_of_natural_logits = make("base_2_of_natural_logits")
bias_not_in_base_2 = make("bias_not_in_base_2")
softmax_plus_one = make("softmax_plus_one")
lse_adds_both_bases = make("lse_adds_both_bases")
lse_of_nothing_is_0 = make("lse_of_nothing_is_0")

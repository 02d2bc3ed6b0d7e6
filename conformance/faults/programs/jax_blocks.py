"""Online softmax over blocks of keys, functional: a state goes from block to block."""

import jax
import jax.numpy as jnp

from attncheck.subject import Subject

BLOCK = 16


def make(mistake=None):
    """The subject, with one of its mistakes or with none."""

    def update(state, rows, k, v, seen, bias, softcap):
        """The state after one block more."""
        top, total, acc = state
        x = jnp.einsum("bnid,bnjd->bnij", rows, k)
        x = x if softcap is None else softcap * jnp.tanh(x / softcap)
        x = jnp.where(seen, x + bias, -jnp.inf)
        new = jnp.maximum(top, jax.lax.stop_gradient(x.max(axis=3)))
        shift = jnp.where(new == -jnp.inf, 0, new)
        fade, p = jnp.exp(top - shift), jnp.exp(x - shift[..., None])
        kept = total if mistake == "sum_not_rescaled" else total * fade
        acc = acc * fade[..., None] + jnp.einsum("bnij,bnje->bnie", p, v)
        return new, kept + p.sum(axis=3), acc

    def attention(q, k, v, *, mask=None, bias=None, scale=None, softcap=None):
        (b, n, i, d), (_, h, j, e) = q.shape, v.shape
        wide = jnp.promote_types(q.dtype, jnp.float32)
        seen = jnp.broadcast_to(True if mask is None else mask, (b, n, i, j))
        bias = jnp.zeros((), wide) if bias is None else bias.astype(wide)
        bias = jnp.where(seen, bias, 0)
        rows = jnp.where(seen.any(axis=3)[..., None], q.astype(wide), 0)
        rows = rows * (d**-0.5 if scale is None else scale)
        k, v = (jnp.repeat(x.astype(wide), n // h, axis=1) for x in (k, v))
        k, v = (jnp.where(seen.any(axis=2)[..., None], x, 0) for x in (k, v))
        first = 0.0 if mistake == "maximum_starts_at_0" else -jnp.inf
        top, total = jnp.full((b, n, i), first, wide), jnp.zeros((b, n, i), wide)
        state = top, total, jnp.zeros((b, n, i, e), wide)
        for start in range(0, j, BLOCK):
            part = slice(start, start + BLOCK)
            keys = k[:, :, part], v[:, :, part]
            state = update(
                state, rows, *keys, seen[..., part], bias[..., part], softcap
            )
        top, total, acc = state
        empty = total == 0
        total = jnp.where(empty, 1, total)
        output = jnp.where(empty[..., None], 0, acc / total[..., None])
        lse = jnp.log(total)
        if mistake != "lse_without_maximum":
            lse = lse + top
        return output.astype(q.dtype), jnp.where(empty, -jnp.inf, lse)

    return Subject(
        call=attention,
        framework="jax",
        name=f"blocks, {mistake or 'right'}",
        accepts=frozenset(("mask", "bias", "scale", "softcap")),
        returns=("output", "lse"),
    )


right = make()
sum_not_rescaled = make("sum_not_rescaled")
maximum_starts_at_0 = make("maximum_starts_at_0")
lse_without_maximum = make("lse_without_maximum")

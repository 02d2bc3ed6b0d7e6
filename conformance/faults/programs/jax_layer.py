"""A layer: parameters by head, one einsum a projection."""

import jax
import jax.numpy as jnp

from attncheck.subject import Subject


def make(mistake=None):
    """The subject, with one of its mistakes or with none."""

    def attention(q, k, v, *, mask=None, bias=None, scale=None, softcap=None):
        (b, n, i, d), (h, j) = q.shape, k.shape[1:3]
        wide = jnp.promote_types(q.dtype, jnp.float32)
        seen = jnp.ones((b, n, i, j), bool) & (True if mask is None else mask)
        k, v = (x.astype(wide).repeat(n // h, axis=1) for x in (k, v))
        k, v = (jnp.where(seen.any(2)[..., None], x, 0) for x in (k, v))
        rows = jnp.where(seen.any(3)[..., None], q.astype(wide), 0)
        x = jnp.einsum("...id,...jd->...ij", rows, k)
        x = x * (d**-0.5 if scale is None else scale)
        if softcap is not None:
            x = jnp.tanh(x / softcap) * softcap
        if bias is not None:
            x = x + jnp.where(seen, bias.astype(wide), 0)
        x = jnp.where(seen, x, -jnp.inf)
        empty = (x == -jnp.inf).all(axis=-1, keepdims=True)
        p = jax.nn.softmax(jnp.where(empty, 0, x), axis=-1)
        output = jnp.einsum("...ij,...je->...ie", p, v)
        return jnp.where(empty, 0, output).astype(q.dtype)

    def project(x, w, offset):
        heads = jnp.einsum("bic,cnd->bnid", x, w)
        return heads if offset is None else heads + offset[:, None]

    def multi_head(params, x, context=None, **options):
        wide = jnp.promote_types(x.dtype, jnp.float32)
        params = {k: w if w is None else w.astype(wide) for k, w in params.items()}
        storage, x = x.dtype, x.astype(wide)
        source = x if context is None else context.astype(wide)
        no_offset = mistake == "value_offset_forgotten"
        q = project(x, params["w_q"], params["b_q"])
        k = project(source, params["w_k"], params["b_k"])
        v = project(source, params["w_v"], None if no_offset else params["b_v"])
        heads = attention(q, k, v, **options)
        if mistake == "mask_in_output_only" and "mask" in options:
            rest = {name: x for name, x in options.items() if name != "mask"}
            alive = jnp.any(options["mask"], axis=3)[..., None]
            heads = jnp.where(alive, attention(q, k, v, **rest), 0)
        output = jnp.einsum("bnie,nec->bic", heads, params["w_o"])
        if mistake == "output_averaged_over_heads":
            output = output / heads.shape[1]
        if params["b_o"] is not None:
            output = output + params["b_o"]
        return output.astype(storage)

    return Subject(
        call=attention,
        multi_head=multi_head,
        framework="jax",
        name=f"layer, {mistake or 'right'}",
        accepts=frozenset(("mask", "bias", "scale", "softcap")),
    )


right = make()
value_offset_forgotten = make("value_offset_forgotten")
mask_in_output_only = make("mask_in_output_only")
output_averaged_over_heads = make("output_averaged_over_heads")

"""custom_vjp: the backward pass is written out, on one query head at a time."""

from functools import partial

import jax
import jax.numpy as jnp

from attncheck.subject import Subject


def make(mistake=None):
    """The subject, with one of its mistakes or with none."""

    def weigh(q, k, bias, seen, scale, softcap):
        x = jnp.einsum("bnid,bnjd->bnij", q, k) * scale
        t = jnp.zeros_like(x) if softcap is None else jnp.tanh(x / softcap)
        x = (x if softcap is None else softcap * t) + bias
        x = jnp.where(seen, x, -jnp.inf)
        top = x.max(axis=3, initial=-jnp.inf)
        p = jnp.exp(x - jnp.where(top == -jnp.inf, 0, top)[..., None])
        total = p.sum(axis=3)
        p = p / jnp.where(total == 0, 1, total)[..., None]
        return p, t, jnp.where(total == 0, -jnp.inf, top + jnp.log(total))

    @partial(jax.custom_vjp, nondiff_argnums=(5, 6))
    def core(q, k, v, bias, seen, scale, softcap):
        p, _, lse = weigh(q, k, bias, seen, scale, softcap)
        return jnp.einsum("bnij,bnje->bnie", p, v), lse

    def forward(*arguments):
        return core(*arguments), arguments[:5]

    def backward(scale, softcap, saved, cotangents):
        q, k, v, bias, seen = saved
        d_out, d_lse = cotangents
        p, t, lse = weigh(q, k, bias, seen, scale, softcap)
        empty = lse == -jnp.inf
        d_out = jnp.where(empty[..., None], 0, d_out)
        d_lse = jnp.where(empty, 0, d_lse)
        dp = jnp.einsum("bnie,bnje->bnij", d_out, v)
        ds = p * (dp - (p * dp).sum(axis=3, keepdims=True) + d_lse[..., None])
        if mistake == "lse_gradient_subtracted":
            ds = ds - 2 * p * d_lse[..., None]
        slope = 1 if softcap is None else 1 - t**2
        if mistake == "slope_of_capped_score" and softcap is not None:
            slope = 1 - (softcap * t) ** 2
        dx = ds * slope
        if mistake == "default_scale_in_backward":
            scale = q.shape[3] ** -0.5
        dq = jnp.einsum("bnij,bnjd->bnid", dx, k) * scale
        dk = jnp.einsum("bnij,bnid->bnjd", dx, q) * scale
        dv = jnp.einsum("bnij,bnie->bnje", p, d_out)
        if mistake == "bias_gradient_is_weight_gradient":
            ds = p * dp
        return dq, dk, dv, ds, None

    core.defvjp(forward, backward)

    def attention(q, k, v, *, mask=None, bias=None, scale=None, softcap=None):
        wide = jnp.promote_types(q.dtype, jnp.float32)
        storage, group, width = q.dtype, q.shape[1] // k.shape[1], q.shape[3]
        q, k, v = q.astype(wide), k.astype(wide), v.astype(wide)
        k, v = k.repeat(group, axis=1), v.repeat(group, axis=1)
        shape = (*q.shape[:3], k.shape[2])
        seen = jnp.broadcast_to(True if mask is None else mask, shape)
        q = jnp.where(seen.any(axis=3)[..., None], q, 0)
        k, v = (jnp.where(seen.any(axis=2)[..., None], x, 0) for x in (k, v))
        bias = jnp.zeros((), wide) if bias is None else bias.astype(wide)
        bias = jnp.where(seen, bias, 0)
        scale = width**-0.5 if scale is None else scale
        output, lse = core(q, k, v, bias, seen, scale, softcap)
        return output.astype(storage), lse

    return Subject(
        call=attention,
        framework="jax",
        name=f"custom_vjp, {mistake or 'right'}",
        accepts=frozenset(("mask", "bias", "scale", "softcap")),
        returns=("output", "lse"),
    )


right = make()
lse_gradient_subtracted = make("lse_gradient_subtracted")
slope_of_capped_score = make("slope_of_capped_score")
default_scale_in_backward = make("default_scale_in_backward")
bias_gradient_is_weight_gradient = make("bias_gradient_is_weight_gradient")

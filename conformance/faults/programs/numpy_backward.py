"""Forward and a backward written out by hand, with everything recomputed in it."""

import numpy as np

from attncheck.subject import KEYWORDS, Subject


def make(mistake=None):
    """The subject, with one of its mistakes or with none."""

    def weigh(q, k, mask, bias, scale, softcap):
        """Weights, tanh of the softcap, visible keys, and rows that have weights."""
        shape = (*q.shape[:3], k.shape[2])
        seen = np.broadcast_to(True if mask is None else mask, shape)
        raw = np.einsum("bnid,bnjd->bnij", q, k) * scale
        tanh = np.zeros_like(raw) if softcap is None else np.tanh(raw / softcap)
        logits = raw if softcap is None else softcap * tanh
        logits = np.where(seen, logits if bias is None else logits + bias, -np.inf)
        top = logits.max(axis=3, keepdims=True, initial=-np.inf)
        exps = np.exp(logits - np.where(top == -np.inf, 0, top))
        total = exps.sum(axis=3, keepdims=True)
        full = top[..., 0] != -np.inf
        return exps / np.where(total == 0, 1, total), tanh, seen, full

    def prepare(q, k, v, mask, bias, scale):
        """Wide copies without what nobody attends, a key/value head a query head."""
        wide, group = np.result_type(q.dtype, np.float32), q.shape[1] // k.shape[1]
        shape = (*q.shape[:3], k.shape[2])
        seen = np.broadcast_to(True if mask is None else mask, shape)
        k, v = (np.repeat(x.astype(wide), group, axis=1) for x in (k, v))
        k, v = (np.where(seen.any(axis=2)[..., None], x, 0) for x in (k, v))
        q = np.where(seen.any(axis=3)[..., None], q.astype(wide), 0)
        bias = None if bias is None else bias.astype(wide)
        return q, k, v, bias, q.shape[-1] ** -0.5 if scale is None else scale

    def attention(q, k, v, *, mask=None, bias=None, scale=None, softcap=None,
                  dropout_rate=0.0, dropout_keep=None):  # fmt: skip
        storage = q.dtype
        q, k, v, bias, scale = prepare(q, k, v, mask, bias, scale)
        weights, *_ = weigh(q, k, mask, bias, scale, softcap)
        if dropout_keep is not None:
            weights = weights * dropout_keep / (1 - dropout_rate)
        return np.einsum("bnij,bnje->bnie", weights, v).astype(storage)

    def grad(d_out, q, k, v, *, d_lse=None, mask=None, bias=None, scale=None,
             softcap=None, dropout_rate=0.0, dropout_keep=None):  # fmt: skip
        storage, grouped = q.dtype, (k.shape[1], q.shape[1] // k.shape[1])
        size = None if bias is None else bias.shape
        q, k, v, bias, scale = prepare(q, k, v, mask, bias, scale)
        weights, tanh, seen, full = weigh(q, k, mask, bias, scale, softcap)
        d_out = np.where(full[..., None], d_out.astype(q.dtype), 0)
        d_lse = np.where(full, 0 if d_lse is None else d_lse, 0).astype(q.dtype)
        factor = 1
        if dropout_keep is not None:
            factor = dropout_keep / q.dtype.type(1 - dropout_rate)
        kept = weights if mistake == "dropout_not_in_dv" else weights * factor
        dv = np.einsum("bnij,bnie->bnje", kept, d_out)
        d_weights = np.einsum("bnie,bnje->bnij", d_out, v) * factor
        mean = (weights * d_weights).sum(axis=3, keepdims=True)
        if mistake == "softmax_jacobian_diagonal":
            mean = 0 * mean
        d_logits = np.where(seen, weights * (d_weights - mean + d_lse[..., None]), 0)
        d_raw = d_logits
        if softcap is not None and mistake != "softcap_slope_forgotten":
            d_raw = np.where(seen, d_logits * (1 - tanh**2), 0)
        dq = np.einsum("bnij,bnjd->bnid", d_raw, k)
        dk = np.einsum("bnij,bnid->bnjd", d_raw, q) * scale
        if mistake != "dq_not_scaled":
            dq = dq * scale
        dk, dv = (x.reshape(len(x), *grouped, *x.shape[2:]) for x in (dk, dv))
        if mistake == "group_gradient_of_last_head":
            dk, dv = dk[:, :, -1], dv[:, :, -1]
        else:
            dk, dv = dk.sum(axis=2), dv.sum(axis=2)
        found = [x.astype(storage) for x in (dq, dk, dv)]
        if size is not None:
            shared = tuple(axis for axis in range(4) if size[axis] == 1)
            found.append(d_logits.sum(axis=shared, keepdims=True).astype(storage))
        return tuple(found)

    return Subject(
        call=attention,
        grad=grad,
        framework="numpy",
        name=f"by hand, {mistake or 'right'}",
        accepts=frozenset(KEYWORDS),
    )


right = make()
softmax_jacobian_diagonal = make("softmax_jacobian_diagonal")
dq_not_scaled = make("dq_not_scaled")
softcap_slope_forgotten = make("softcap_slope_forgotten")
group_gradient_of_last_head = make("group_gradient_of_last_head")
dropout_not_in_dv = make("dropout_not_in_dv")

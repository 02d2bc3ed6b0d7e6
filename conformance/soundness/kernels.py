"""Attention the ways that kernels do it, in plain NumPy: legal ones, and broken ones.

Each is one head's forward and backward in the accumulator's type, every intermediate of
which can be rounded to storage as a profile allows.  Nothing here is fast, and nothing
is shared with the rooms or with the definition.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from attncheck.budget import output_dtype
from attncheck.case import AXES, DTYPES, RESULTS, Case

TENSOR_CORE = frozenset({"weights", "d_logits"})
WITH_DP = TENSOR_CORE | {"d_weights"}
EAGER = WITH_DP | {"scores"}
"""What is rounded to storage, in the words of `Profile`."""

LAG = 8.0
"""Powers of two by which the running maximum may fall behind before it is renewed."""


# ------------------------------------------------------------------------- products


def product(a, b):
    """a bᵀ over the last axis of both, by BLAS."""
    return a @ b.T


def sequential(a, b):
    """The same, one term after the other."""
    total = np.zeros((a.shape[0], b.shape[0]), a.dtype)
    for term in range(a.shape[1]):
        total = total + a[:, term, None] * b[None, :, term]
    return total


def tf32(a, b):
    """The same, with both operands rounded to 11 significant bits."""
    return product(*(nearest_tf32(x) for x in (a, b)))


def nearest_tf32(x):
    """float32 numbers rounded to 11 significant bits."""
    fraction, exponent = np.frexp(x.astype(np.float64))
    return np.ldexp(np.rint(np.ldexp(fraction, 11)), exponent - 11).astype(np.float32)


def truncating(a, b):
    """The same as tensor cores are said to do it: 16 products summed exactly, and the
    sum cut off to float32 (Fasi et al., PeerJ Computer Science 7, 2021, e330)."""
    total = np.zeros((a.shape[0], b.shape[0]), np.float32)
    for term in range(0, a.shape[1], 16):
        chunk = np.s_[:, term : term + 16]
        total = cut(total + a[chunk].astype(np.float64) @ b[chunk].T.astype(np.float64))
    return total


def cut(x):
    """float64 numbers rounded toward zero to float32."""
    nearest = x.astype(np.float32)
    smaller = np.nextafter(nearest, np.float32(0))
    return np.where(np.abs(nearest.astype(np.float64)) > np.abs(x), smaller, nearest)


# -------------------------------------------------------------------------- kernels


@dataclass(frozen=True)
class Kernel:
    """How one head is computed.

    `stored` names what is rounded to the storage type, as in `Profile`.
    """

    dot: Callable[[np.ndarray, np.ndarray], np.ndarray] = product
    tile: int | None = None
    """Keys at a time, with a running maximum; None: all at once."""
    base: int | None = None
    """Base 2 of the exponentials of a tile, log₂e folded in; None: e."""
    lags: bool = False
    """Whether the shift stays up to 8 ln 2 below the running maximum."""
    split: bool = False
    """Whether two halves of the keys are merged by their log-sum-exp."""
    stored: frozenset = frozenset()
    rowsum: bool = False
    """Whether D is the sum of weights times their gradients."""
    normalised: bool = False
    """Whether weights are divided by the row sum before they meet the values."""
    flush: bool = False
    """Whether subnormal numbers of the accumulator become 0."""
    scale_factor: float = 1.0
    """A fault, unless it is 1; so are the two that follow."""
    gain: float = 1.0
    narrow: np.dtype | None = None
    """The type that the logits are rounded to."""

    def keep(self, x, name, dtype):
        """`x` as it is kept: flushed, and rounded to storage if `name` is."""
        if name in self.stored:
            x = x.astype(dtype).astype(x.dtype)
        if self.flush:
            x = np.where(np.abs(x) < np.finfo(x.dtype).smallest_normal, 0, x)
        return x.astype(x.dtype)

    def row_sum(self, p):
        """Σ over the keys, summed like products; but no operand is rounded for it."""
        dot = product if self.dot is tf32 else self.dot
        return dot(p, np.ones((1, p.shape[1]), p.dtype))


@dataclass(frozen=True)
class Head:
    """The arrays of one head, in the accumulator's type."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    mask: np.ndarray
    kept: np.ndarray
    """The factor of dropout, `i j`."""
    d_out: np.ndarray
    d_lse: np.ndarray
    bias: np.ndarray | None
    scale: float
    cap: float | None
    storage: np.dtype
    returned: np.dtype
    """The type of its output: a head that is merged later keeps the accumulator's."""

    def without_blocked(self, logits) -> "Head":
        """With 0 in place of keys that no query may see, and of queries without one.

        A key whose bias is −∞ stays: a weight of 0 hides no NaN.
        """
        keys = self.mask.any(axis=0)[:, None]
        rows = (logits != -np.inf).any(axis=1)[:, None]
        return replace(
            self,
            q=np.where(rows, self.q, 0),
            k=np.where(keys, self.k, 0),
            v=np.where(keys, self.v, 0),
            d_out=np.where(rows, self.d_out, 0),
            d_lse=np.where(rows[:, 0], self.d_lse, 0),
        )


def logits_of(kernel, head):
    """Raw scores, tanh and logits; blocked logits are −∞."""
    acc = head.q.dtype.type
    raw = kernel.keep(kernel.dot(head.q, head.k), "scores", head.storage)
    x = kernel.keep(raw * acc(head.scale), "scores", head.storage)
    tanh = np.zeros_like(x)
    if head.cap is not None:
        x = kernel.keep(x / acc(head.cap), "scores", head.storage)
        tanh = kernel.keep(np.tanh(x), "scores", head.storage)
        x = kernel.keep(tanh * acc(head.cap), "scores", head.storage)
    if head.bias is not None:
        x = kernel.keep(x + head.bias, "scores", head.storage)
    if kernel.narrow is not None:
        x = x.astype(kernel.narrow).astype(acc)
    return raw, tanh, np.where(head.mask, x, acc(-np.inf))


def attend_all(kernel, head, logits):
    """Softmax over all keys at once: unrounded output, log-sum-exp, weights."""
    acc = logits.dtype.type
    top = logits.max(axis=-1, keepdims=True, initial=-np.inf)
    empty = top == -np.inf
    top = np.where(empty, acc(0), top)
    p = np.exp(logits - top)
    total = kernel.row_sum(p)
    total = np.where(empty, acc(1), total)
    used = p / total if kernel.normalised else p
    used = kernel.keep(used, "weights", head.storage) * head.kept
    if "scores" in kernel.stored:
        used = kernel.keep(used, "weights", head.storage)
    out = kernel.dot(used, head.v.T)
    out = out if kernel.normalised else out / total
    return out, np.where(empty, acc(-np.inf), top + np.log(total))[:, 0], p / total


def attend_tiles(kernel, head, logits):
    """Online softmax, normalised after the product with V."""
    acc = logits.dtype.type
    factor, exponential = acc(1), np.exp
    if kernel.base == 2:
        factor, exponential = acc(np.log2(np.e)), np.exp2
    rows = logits.shape[0]
    top, total = np.full((rows, 1), -np.inf, acc), np.zeros((rows, 1), acc)
    out = np.zeros((rows, head.v.shape[1]), acc)
    for j in range(0, logits.shape[1], kernel.tile):
        tile = np.s_[:, j : j + kernel.tile]
        new = np.maximum(top, logits[tile].max(axis=-1, keepdims=True))
        if kernel.lags:
            new = np.where(new - top <= acc(LAG * np.log(2)), top, new)
        safe = np.where(new == -np.inf, acc(0), new)
        rescale = exponential((top - safe) * factor)
        p = exponential(logits[tile] * factor - safe * factor)
        total = total * rescale + p.sum(axis=-1, keepdims=True, dtype=acc)
        used = kernel.keep(p * head.kept[tile], "weights", head.storage)
        out = out * rescale + kernel.dot(used, head.v[tile[1]].T)
        top = new
    empty = top == -np.inf
    total = np.where(empty, acc(1), total)
    log = np.log2(total) * acc(np.log(2)) if kernel.base == 2 else np.log(total)
    lse = np.where(empty, -np.inf, top + log).astype(acc)
    safe = np.where(empty, acc(0), top)
    return out / total, lse[:, 0], np.exp(logits - safe) / total


def attend_split(kernel, head, logits):
    """Two halves of the keys, merged by log-sum-exp."""
    middle = logits.shape[1] // 2
    parts = []
    for part in (np.s_[:, :middle], np.s_[:, middle:]):
        half = replace(head, v=head.v[part[1]], kept=head.kept[part])
        parts.append(_attend(replace(kernel, split=False), half, logits[part]))
    logsums = np.stack([lse for _, lse, _ in parts], axis=1)
    top = logsums.max(axis=1, keepdims=True)
    top = np.where(top == -np.inf, logits.dtype.type(0), top)
    share = np.exp(logsums - top)
    total = share.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = (top + np.log(total))[:, 0]
    share = share / np.where(total == 0, 1, total)
    out = sum(share[:, n, None] * o for n, (o, _, _) in enumerate(parts))
    p = np.concatenate([share[:, n, None] * w for n, (*_, w) in enumerate(parts)], 1)
    return out, lse, p


def _attend(kernel, head, logits):
    if kernel.split:
        return attend_split(kernel, head, logits)
    return (attend_tiles if kernel.tile else attend_all)(kernel, head, logits)


def backward(kernel, head, tanh, logits, out, lse):
    """Weights from the saved log-sum-exp, D from the stored output or a row sum."""
    acc = head.q.dtype.type
    safe = np.where(lse == -np.inf, acc(0), lse)[:, None]
    live = logits != -np.inf
    p = np.exp(logits - safe)
    if "scores" in kernel.stored:
        # Unfused code goes back through the weights that it stored.
        p = kernel.keep(p, "weights", head.storage)
    dp = kernel.keep(kernel.dot(head.d_out, head.v), "d_weights", head.storage)
    dp = kernel.keep(dp * head.kept, "d_weights", head.storage)
    dp = np.where(live, dp, acc(0))
    if kernel.rowsum:
        mean = (p * dp).sum(axis=-1, keepdims=True, dtype=acc)
    else:
        mean = kernel.dot(head.d_out, out.astype(acc)).diagonal()[:, None]
    ds = np.where(live, p * ((dp - mean) + head.d_lse[:, None]), acc(0))
    ds = kernel.keep(ds, "scores", head.storage)
    dx = ds if head.cap is None else ds * (1 - tanh * tanh)
    dx = kernel.keep(dx * acc(head.scale), "d_logits", head.storage)
    used = kernel.keep(p * head.kept, "weights", head.storage)
    dbias = kernel.keep(ds, "d_logits", head.storage)
    dq, dk = kernel.dot(dx, head.k.T), kernel.dot(dx.T, head.q.T)
    return {"dq": dq, "dk": dk, "dv": kernel.dot(used.T, head.d_out.T), "dbias": dbias}


def run_head(kernel, head):
    """Every result of one head."""
    raw, tanh, logits = logits_of(kernel, head)
    head = head.without_blocked(logits)
    out, lse, weights = _attend(kernel, head, logits)
    out = (out * out.dtype.type(kernel.gain)).astype(head.returned)
    steps = {"scores": raw, "logits": logits, "masked": logits, "weights": weights}
    gradients = backward(kernel, head, tanh, logits, out, lse)
    return steps | {"output": out, "lse": lse} | gradients


# ---------------------------------------------------------------------- whole cases


def heads_of(
    case: Case, kernel: Kernel, storage: np.dtype
) -> Iterator[tuple[tuple, Head]]:
    """(b, n, h) and the head, for every head of the case."""
    acc, shape = case.accumulation, [case.sizes[a] for a in "bnij"]

    def full(name, default):
        array = case.inputs.get(name, np.full((1, 1, 1, 1), default))
        return np.broadcast_to(array, shape)

    def cast(array):
        return kernel.keep(array.astype(acc), "", acc)

    factor = full("dropout_keep", True) / (1 - case.dropout_rate)
    d_out = case.inputs.get("d_out", np.zeros([case.sizes[a] for a in "bnie"]))
    d_lse = case.inputs.get("d_lse", np.zeros(shape[:3]))
    for b, n in np.ndindex(*shape[:2]):
        h = n // case.sizes["g"]
        yield (
            (b, n, h),
            Head(
                q=cast(case.inputs["q"][b, n]),
                k=cast(case.inputs["k"][b, h]),
                v=cast(case.inputs["v"][b, h]),
                mask=full("mask", True)[b, n],
                kept=factor[b, n].astype(acc),
                d_out=cast(d_out[b, n]),
                d_lse=d_lse[b, n].astype(acc),
                bias=cast(full("bias", 0.0)[b, n]) if "bias" in case.inputs else None,
                scale=case.scale_value * kernel.scale_factor,
                cap=case.softcap,
                storage=storage,
                returned=DTYPES[case.dtype],
            ),
        )


def run(case: Case, kernel: Kernel) -> dict[str, np.ndarray]:
    """Every result of the case, each in its own type."""
    with np.errstate(all="ignore"):
        if case.op == "multi_head_attention":
            return _multi_head(case, kernel)
        return _attention(case, kernel, DTYPES[case.dtype])


def _attention(case: Case, kernel: Kernel, storage: np.dtype) -> dict[str, np.ndarray]:
    sizes, acc = case.sizes, case.accumulation
    got = {n: np.zeros([sizes[a] for a in AXES[n]], acc) for n in RESULTS}
    for (b, n, h), head in heads_of(case, kernel, storage):
        for name, value in run_head(kernel, head).items():
            if name not in ("dk", "dv"):
                got[name][b, n] = value
                continue
            if "scores" in kernel.stored and sizes["g"] > 1:
                value = value.astype(head.storage).astype(acc)
            got[name][b, h] += value
    if "bias" in case.inputs:
        shape = case.inputs["bias"].shape
        axes = tuple(a for a in range(4) if shape[a] != got["dbias"].shape[a])
        got["dbias"] = got["dbias"].sum(axis=axes, keepdims=True, dtype=acc)
    else:
        del got["dbias"]
    return {n: v.astype(output_dtype(case, n)) for n, v in got.items()}


def _multi_head(case: Case, kernel: Kernel) -> dict[str, np.ndarray]:
    """Projections and merge in the accumulator, rounded once, at the end.

    Unfused code stores what is projected, and what is merged.
    """
    storage = DTYPES[case.dtype]
    acc, sizes = case.accumulation, case.sizes
    a = {n: x.astype(acc) for n, x in case.inputs.items() if x.dtype != bool}
    context = a.get("context", a["x"])

    def project(x, kind):
        w = a[f"w_{kind}"]
        flat = np.stack([kernel.dot(row, w.reshape(len(w), -1).T) for row in x])
        heads = flat.reshape(*x.shape[:2], *w.shape[1:]).transpose(0, 2, 1, 3)
        heads = heads + a.get(f"b_{kind}", np.zeros((1, 1), acc))[:, None]
        return kernel.keep(heads, "scores", storage)

    options = ("mask", "bias", "dropout_keep")
    inner = {n: case.inputs[n] for n in options if n in case.inputs}
    inner |= {"q": project(a["x"], "q"), "k": project(context, "k")}
    inner |= {"v": project(context, "v") * acc.type(kernel.gain)}
    wide = replace(
        case,
        op="attention",
        dtype="F64" if acc == np.float64 else "F32",
        inputs=inner,
        strides={},
    )
    got = _attention(wide, replace(kernel, gain=1.0), storage)
    heads = kernel.keep(got["output"], "scores", storage)
    heads = heads.transpose(0, 2, 1, 3).reshape(sizes["b"], sizes["i"], -1)
    w_o = a["w_o"].reshape(-1, sizes["c"])
    merged = np.stack([kernel.dot(row, w_o.T) for row in heads])
    merged = merged + a.get("b_o", np.zeros(1, acc))
    names = ("scores", "logits", "masked", "weights", "lse")
    return {n: got[n] for n in names} | {
        "output": merged.astype(output_dtype(case, "output"))
    }

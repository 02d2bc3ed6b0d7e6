"""Attention in NumPy with every convention a parameter: what fingerprints must tell.

It shares nothing with the judge but the names of the conventions.
"""

import inspect
import math

import einops
import numpy as np

OPTIONAL = {
    "mask": None,
    "bias": None,
    "causal": False,
    "window": None,
    "scale": None,
    "softcap": None,
    "sinks": None,
    "dropout_rate": 0.0,
    "dropout_keep": None,
    "return_lse": False,
    "return_weights": False,
}


def attention_under(c, *, window_form="pair", without=()):
    """An attention that follows the conventions, and has no keyword for what they lack.

    Its q, k and v are in the layout of `c`, and masks and biases in the axes of
    `b n i j` that the layout has.
    """
    lacks = {
        "bias": c.bias is None,
        "window": c.window is None,
        "softcap": c.softcap is None,
        "sinks": not c.sinks,
        "return_lse": c.lse is None,
        "return_weights": c.weights is None,
        "mask": c.mask_true is None and c.mask_float == "refuse",
    }
    names = [name for name in OPTIONAL if not lacks.get(name) and name not in without]

    def attention(q, k, v, **given):
        assert set(given) <= set(names)
        options = OPTIONAL | given
        if c.scale == "required" and options["scale"] is None:
            raise TypeError("missing argument: 'scale'")
        held = c.layout.split()
        four = " ".join(axis if axis in held else "1" for axis in "bnid")
        q, k, v = (einops.rearrange(x, f"{c.layout} -> {four}") for x in (q, k, v))
        for name in ("mask", "bias", "dropout_keep"):
            if options[name] is not None:
                axes = " ".join(a if a in [*held, "j"] else "1" for a in "bnij")
                own = axes.replace("1 ", "")
                options[name] = einops.rearrange(options[name], f"{own} -> {axes}")
        out, lse, weights = _attention(c, q, k, v, window_form=window_form, **options)
        out = einops.rearrange(out, f"{four} -> {c.layout}")
        squeezed = tuple(axis for axis, name in enumerate("bn") if name not in held)
        more = [lse.squeeze(squeezed)] if options["return_lse"] else []
        if options["return_weights"]:
            if c.weights_heads == "mean":
                weights = weights.mean(1)
                squeezed = (0,) * ("b" not in held)
            more.append(weights.squeeze(squeezed))
        return (out, *more) if more else out

    one = inspect.Parameter
    arrays = [one(name, one.POSITIONAL_OR_KEYWORD) for name in "qkv"]
    keywords = [one(n, one.KEYWORD_ONLY, default=OPTIONAL[n]) for n in names]
    attention.__signature__ = inspect.Signature([*arrays, *keywords])
    return attention


def _attention(c, q, k, v, *, window_form, **options):
    storage = q.dtype
    work = np.float64 if storage == np.float64 else np.float32
    if c.float64 == "float32":
        work = np.float32
    q, k, v = (x.astype(work) for x in (q, k, v))
    bias, scale = options["bias"], _scale(c, options["scale"], q.shape[-1])
    if c.value_width == "same" and v.shape[-1] != q.shape[-1]:
        raise ValueError("values have another width")
    k, v = (_repeated(c, x, q.shape[1]) for x in (k, v))
    seen, mask_bias = _seen(c, options, window_form, q.shape[2], k.shape[2], storage)
    seen = np.broadcast_to(seen, (*q.shape[:3], k.shape[2]))
    nobody = ~seen.any(axis=(0, 1, 2))[:, None]
    if c.nan_blocked_k == "hidden":
        k = np.where(nobody, 0, k)
    if c.nan_blocked_v == "hidden":
        v = np.where(nobody, 0, v)
    added = [x.astype(work) for x in (bias, mask_bias) if x is not None]
    added = np.broadcast_to(sum(added, np.zeros((), work)), seen.shape)
    if added.size and np.isneginf(added).all(-1).any() and c.empty_row_bias == "refuse":
        raise ValueError("a row of −∞")
    scores = q @ k.swapaxes(-1, -2)
    logits = _logits(c, scores, scale, added, options["softcap"], seen)
    if c.nan_blocked_k == "leaks":
        logits = logits + 0 * scores
    weights, lse = _softmax(c, logits, options["sinks"], storage)
    before, keep = weights, options["dropout_keep"]
    if keep is not None:
        kept = 1 - options["dropout_rate"] if c.dropout_rescale else 1
        weights = weights * keep / np.asarray(kept, work)
    out = weights @ v
    if c.nan_visible == "hidden":
        out = np.nan_to_num(out, nan=0.0)
    empty, mean = ~seen.any(-1, keepdims=True), v.mean(-2, keepdims=True)
    only = ~empty & np.isneginf(added).all(-1, keepdims=True)
    for rows, choice in ((empty, c.empty_row), (only, c.empty_row_bias)):
        if rows.any() and choice == "refuse":
            raise ValueError("a row without a key")
        row = {"zero": np.zeros_like(mean), "mean": mean}.get(choice, mean + np.nan)
        out = np.where(rows, row, out)
    lse = np.where(empty[..., 0], c.lse_empty, lse if c.lse != 2 else lse / math.log(2))
    wider = np.float64 if storage == np.float64 else np.float32
    types = {"float32": np.float32, "input": storage, "wider": wider}
    returned = weights if c.weights == "after_dropout" else before
    return out.astype(storage), lse.astype(types[c.lse_dtype]), returned


def _scale(c, given, d):
    default = 1.0 if c.scale == "one" else d**-0.5
    if given is None:
        return default
    choice = c.scale_zero if given == 0 else c.scale_negative if given < 0 else ""
    if choice == "refuse":
        raise ValueError("no such scale")
    return {"default": default, "nan": math.nan}.get(choice, given)


def _repeated(c, x, n):
    """`b h j d` → `b n j d`."""
    h = x.shape[1]
    if h != n and c.heads is None:
        raise ValueError("as many key heads as query heads, please")
    order = np.arange(n) // (n // h) if c.heads != "gh" else np.arange(n) % h
    return x[:, order]


def _seen(c, options, window_form, i, j, storage):
    """What each query may see, and a bias that the mask carries."""
    mask, mask_bias = options["mask"], None
    offset = j - i if c.causal == "lower-right" else 0
    distance = np.arange(i)[:, None] + offset - np.arange(j)  # to the left
    seen = np.ones((1, 1, i, j), bool)
    if mask is not None and mask.dtype != bool:
        if c.mask_float == "refuse":
            raise TypeError("a boolean mask, please")
        if c.mask_float == "add":
            mask, mask_bias = None, mask
        else:
            mask = mask != 0
    elif mask is not None and c.mask_true is None:
        raise TypeError("a float mask, please")
    if mask is not None:
        seen = mask if c.mask_true != "block" else ~mask
    if options["causal"]:
        both = options["mask"] is not None
        if both and c.mask_and_causal == "refuse":
            raise ValueError("a mask or causal, please")
        if not both or c.mask_and_causal != "mask":
            flag = distance >= 0
            alone = both and c.mask_and_causal == "causal"
            seen = flag[None, None] if alone else seen & flag
    if options["window"] is not None:
        if window_form == "either" and not isinstance(options["window"], tuple):
            left = right = options["window"]
        elif window_form == "number":
            left = right = int(options["window"])
        elif window_form == "left":
            left, right = int(options["window"]), j + 1
        else:
            left, right = options["window"]
        cut = 0 if c.window == "inclusive" else 1
        seen = seen & (distance <= left - cut) & (-distance <= right - cut)
    return seen, mask_bias


def _logits(c, scores, scale, bias, softcap, seen):
    if c.bias == "before_scale":
        scaled = (scores + bias) * np.asarray(scale, scores.dtype)
        bias = np.zeros_like(bias)
    else:
        scaled = scores * np.asarray(scale, scores.dtype)

    def capped(x):
        return x if softcap is None else softcap * np.tanh(x / softcap)

    if c.softcap == "after_mask":
        return capped(np.where(seen, scaled + bias, c.fill)).astype(scores.dtype)
    inside = c.softcap == "after_bias"
    logits = capped(scaled + bias) if inside else capped(scaled) + bias
    return np.where(seen, logits, c.fill).astype(scores.dtype)


def _softmax(c, logits, sinks, storage):
    work = logits.dtype
    kept = {"input": storage, "float32": np.float32}.get(c.softmax_dtype, work)

    def rounded(x):
        return x.astype(kept).astype(work)

    logits = rounded(logits)
    top = np.maximum(logits.max(-1, keepdims=True, initial=-np.inf), np.finfo(work).min)
    if sinks is not None:
        top = np.maximum(top, sinks[:, None, None].astype(work))
    p = rounded(np.exp(logits - top))
    total = p.sum(-1, keepdims=True)
    if sinks is not None:
        total = total + np.exp(sinks[:, None, None].astype(work) - top)
    total = rounded(total)
    return rounded(p / total), (top + np.log(total))[..., 0]

"""Breaks of the NumPy room, at least one a clause, as data: what a text becomes.

Each is a mistake that people make, written into the room's own source.
"""

from typing import NamedTuple

from attncheck.clauses import CLAUSES


class Break(NamedTuple):
    """One mistake in one file of the room."""

    clause: str
    """The clause whose cases must show it."""
    mistake: str
    module: str
    """The file that it is made in, without `.py`."""
    old: str
    """Source that occurs there exactly once."""
    new: str
    status: str = "fail"
    """How a case shows it: `error` where the room must not raise."""

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The storage types in which the clause says something."""
        return next(c.dtypes for c in CLAUSES if c.name == self.clause)


# Source that more than one break changes.
SCORES = "contract(patterns.SCORES, group(q, k.shape[1]), k)"
SCALE = 'scale = sizes["d"] ** -0.5 if scale is None else scale'
LOGITS = "logits = add_bias(apply_softcap(apply_scale(raw, scale), softcap), bias)"
MASKED = "masked = apply_mask(logits, mask)"
BIAS = "logits + accumulate(bias)"
MASK = "np.where(mask, logits, -np.inf)"
DIVIDED = "weights /= total"
WEIGHTS = "np.copyto(weights, 0, where=masked == -np.inf)"
LSE = "np.where(empty, -np.inf, top + np.log(total))"
DROPOUT = "weights * keep / (1 - float(rate))"
ATTEND = "contract(patterns.ATTEND, group(weights, v.shape[1]), v)"
OUTPUT = "output = attend(apply_dropout(weights, dropout_rate, dropout_keep), v)"
SOURCE = "source = x if context is None else context"
PROJECT_VALUE = "project(source, params.w_v, params.b_v)"
SOFTMAX_VJP = "steps.weights * (d_weights - delta)"
GRAD_VALUE = "contract(patterns.GRAD_VALUE, group(weights, h), d_out)"
DELTA = "delta = delta - d_lse"
GRAD_KEY = "contract(patterns.GRAD_KEY, d_scores, group(q, k.shape[1]))"
GRAD_SCORES = "found |= scores[1](apply_scale(d_scaled, scale), q, k)"

QUERY, KEY = "np.arange(logits.shape[2])[:, None]", "np.arange(logits.shape[3])"
"""Query and key positions, where a mask is applied."""

WEIGHTS_OF_EMPTY = WEIGHTS.replace(
    "weights, 0", "weights, np.where(empty, 1 / max(masked.shape[-1], 1), 0)"
)


SKIPPING = """\
kept = apply_dropout(weights, dropout_rate, dropout_keep)[..., None]
    values = np.repeat(v, sizes["g"], axis=1)[:, :, None]
    output = np.where(kept == 0, 0, kept * values).sum(axis=3)"""
"""The output where a weight of 0 skips its value instead of multiplying it."""


def seen(condition: str) -> str:
    """The masked logits where the mask is something else."""
    return f"np.where({condition}, logits, -np.inf)"


def first_only(array: str, place: int) -> str:
    """Where an axis of size 1 is not broadcast but padded with nothing."""
    axes = ", ".join(":" if axis == place else "None" for axis in range(4))
    return f"(np.arange(logits.shape[{place}]) < {array}.shape[{place}])[{axes}]"


AXIOM = (
    Break(
        "blocked-weight",
        "filled with −10⁴",
        "mask",
        MASK,
        MASK.replace("np.inf", "1e4"),
    ),
    Break(
        "blocked-bias",
        "added after the mask",
        "attention",
        f"{LOGITS}\n    {MASKED}",
        "logits = apply_softcap(apply_scale(raw, scale), softcap)\n"
        "    masked = add_bias(apply_mask(logits, mask), bias)",
    ),
    Break("blocked-key", "kept", "mask", "np.where(seen[..., None], k, 0)", "k"),
    Break("blocked-value", "kept", "mask", "np.where(seen[..., None], v, 0)", "v"),
    Break(
        "blocked-for-one-head", "forgotten for all", "mask", '"any", h=h', '"all", h=h'
    ),
    Break("empty-row-output", "mean", "softmax", WEIGHTS, WEIGHTS_OF_EMPTY),
    Break("empty-row-lse", "zero", "softmax", LSE, LSE.replace("-np.inf", "0")),
    Break(
        "empty-row-gradients",
        "whatever comes in",
        "gradients",
        "np.where(empty[..., None], 0, accumulate(d_out))",
        "accumulate(d_out)",
    ),
    Break(
        "bias-minus-inf",
        "clipped",
        "scores",
        BIAS,
        "logits + np.maximum(accumulate(bias), -1e4)",
    ),
    Break("bias-minus-inf-row", "mean", "softmax", WEIGHTS, WEIGHTS_OF_EMPTY),
    Break("bias-minus-inf-nan", "skipped", "attention", OUTPUT, SKIPPING),
    Break(
        "bias-not-finite",
        "made finite",
        "scores",
        BIAS,
        "logits + np.nan_to_num(accumulate(bias), neginf=-np.inf)",
    ),
    Break(
        "nan-query",
        "hidden",
        "scores",
        SCORES,
        SCORES.replace("group(q,", "group(np.nan_to_num(accumulate(q)),"),
    ),
    Break(
        "nan-key",
        "hidden",
        "scores",
        SCORES,
        SCORES.replace(", k)", ", np.nan_to_num(accumulate(k)))"),
    ),
    Break(
        "nan-value",
        "hidden",
        "attention",
        OUTPUT,
        OUTPUT.replace(", v)", ", np.nan_to_num(v))"),
    ),
    Break("nan-value", "skipped by dropout", "attention", OUTPUT, SKIPPING),
)

LETTERS = (
    Break(
        "head-order",
        "g h",
        "scores",
        "rearrange(x, patterns.GROUP, h=h)",
        'rearrange(x, "b (g h) i x -> b h g i x", h=h)',
    ),
    Break(
        "multi-query",
        "queries and heads transposed",
        "scores",
        "return rearrange(x, patterns.UNGROUP)",
        "b, h, g, i, y = x.shape\n"
        "    x = x if h > 1 else x.reshape(b, h, i, g, y).swapaxes(2, 3)\n"
        "    return rearrange(x, patterns.UNGROUP)",
    ),
    Break(
        "value-width",
        "only d of e",
        "attention",
        "dropout_keep), v)",
        'dropout_keep), np.where(np.arange(sizes["e"]) < sizes["d"], v, 0))',
    ),
)

PROJECTIONS = (
    Break(
        "project",
        "weights read as c d n",
        "projection",
        "contract(patterns.PROJECT, x, w)",
        "contract(patterns.PROJECT, x, w.swapaxes(1, 2).reshape(w.shape))",
    ),
    Break(
        "projection-bias",
        "left out",
        "projection",
        "return heads if b is None else heads + accumulate(b)[:, None, :]",
        "return heads",
    ),
    Break("projection-bias", "none of q", "multihead", ", params.b_q)", ")"),
    Break("projection-bias", "none of k", "multihead", ", params.b_k)", ")"),
    Break("projection-bias", "none of v", "multihead", ", params.b_v)", ")"),
    Break(
        "self-attention",
        "reversed",
        "multihead",
        SOURCE,
        "source = x[..., ::-1] if context is None else context",
    ),
    Break("cross-attention", "ignores the context", "multihead", SOURCE, "source = x"),
    Break(
        "cross-attention",
        "values of x",
        "multihead",
        PROJECT_VALUE,
        PROJECT_VALUE.replace("source", "x"),
    ),
    Break(
        "merge",
        "heads reversed",
        "projection",
        "contract(patterns.MERGE, heads, w)",
        "contract(patterns.MERGE, heads[:, ::-1], w)",
    ),
    Break(
        "merge-bias",
        "once a head",
        "projection",
        "merged + accumulate(b)",
        "merged + heads.shape[1] * accumulate(b)",
    ),
)

LOGIT_STEPS = (
    Break(
        "scores",
        "last column dropped",
        "scores",
        SCORES,
        "contract(patterns.SCORES, group(q, k.shape[1])[..., :-1], k[..., :-1])",
    ),
    Break("scale-default", "by e", "attention", SCALE, SCALE.replace('"d"', '"e"')),
    Break(
        "scale-given",
        "times the default",
        "attention",
        SCALE,
        'scale = sizes["d"] ** -0.5 * (1 if scale is None else scale)',
    ),
    Break(
        "scale-zero",
        "taken for none",
        "attention",
        SCALE,
        'scale = scale or sizes["d"] ** -0.5',
    ),
    Break(
        "scale-negative",
        "absolute value",
        "scores",
        "return scores * float(scale)",
        "return scores * abs(float(scale))",
    ),
    Break(
        "softcap",
        "clipped",
        "scores",
        "softcap * np.tanh(logits / softcap)",
        "np.clip(logits, -softcap, softcap)",
    ),
    Break(
        "softcap-after-scale",
        "before",
        "attention",
        "apply_softcap(apply_scale(raw, scale), softcap)",
        "apply_scale(apply_softcap(raw, softcap), scale)",
    ),
    Break("bias", "subtracted", "scores", BIAS, BIAS.replace("+", "-")),
    Break(
        "bias-after-softcap",
        "before",
        "attention",
        LOGITS,
        "logits = apply_softcap(add_bias(apply_scale(raw, scale), bias), softcap)",
    ),
    *(
        Break(
            f"bias-broadcast-{axis}",
            "first only",
            "scores",
            BIAS,
            f"{BIAS} * {first_only('bias', place)}",
        )
        for place, axis in enumerate("bnij")
    ),
)

MASKS = (
    Break("mask", "True blocks", "mask", MASK, seen("~mask")),
    Break(
        "mask-after-softcap",
        "before",
        "attention",
        f"{LOGITS}\n    {MASKED}",
        "raised = apply_mask(apply_scale(raw, scale), mask)\n"
        "    logits = masked = add_bias(apply_softcap(raised, softcap), bias)",
    ),
    *(
        Break(
            f"mask-broadcast-{axis}",
            "first only",
            "mask",
            MASK,
            seen(f"mask & {first_only('mask', place)}"),
        )
        for place, axis in enumerate("bnij")
    ),
    Break(
        "causal",
        "without the diagonal",
        "mask",
        MASK,
        seen(f"mask & ({KEY} != {QUERY})"),
    ),
    Break(
        "causal",
        "lower-right",
        "mask",
        MASK,
        seen(f"mask | ({KEY} <= {QUERY} + logits.shape[3] - logits.shape[2])"),
    ),
    Break(
        "causal-offset", "at most 0", "mask", MASK, seen(f"mask & ({KEY} <= {QUERY})")
    ),
    Break(
        "causal-offset", "at least 0", "mask", MASK, seen(f"mask | ({KEY} <= {QUERY})")
    ),
    Break(
        "window",
        "left end exclusive",
        "mask",
        MASK,
        seen("mask & (np.cumsum(mask, -1) > 1)"),
    ),
    Break(
        "window",
        "right end exclusive",
        "mask",
        MASK,
        seen("mask & (np.cumsum(mask[..., ::-1], -1)[..., ::-1] > 1)"),
    ),
    Break(
        "window-open",
        "one key wide",
        "mask",
        MASK,
        seen(f"mask & (abs({KEY} - {QUERY}) <= 1)"),
    ),
    Break("prefix", "only causal", "mask", MASK, seen(f"mask & ({KEY} <= {QUERY})")),
    Break("padding", "seen", "mask", MASK, seen("mask | True")),
    Break("padding", "one length for all", "mask", MASK, seen("mask[:1]")),
    Break("segments", "not told apart", "mask", MASK, seen("mask | True")),
    Break("segments", "the first batch element's", "mask", MASK, seen("mask[:1]")),
    Break(
        "masks-combined", "key 0 for all", "mask", MASK, seen(f"mask | ({KEY} == 0)")
    ),
)

WEIGHT_STEPS = (
    Break(
        "softmax",
        "a key too many",
        "softmax",
        DIVIDED,
        f"{DIVIDED} + np.exp(-top)",
    ),
    Break(
        "softmax-shift",
        "left out",
        "softmax",
        "top = np.where(empty, 0, top)",
        "top = np.zeros_like(top)",
    ),
    Break(
        "softmax-shift",
        "far above the maximum",
        "softmax",
        "top = np.where(empty, 0, top)",
        "top = np.where(empty, 0, top + 1000)",
    ),
    Break("lse", "base 2", "softmax", "np.log(total))", "np.log(total)) / np.log(2)"),
    Break(
        "dropout", "rescaled only", "attend", DROPOUT, DROPOUT.replace(" * keep", "")
    ),
    Break("dropout-rescale", "left out", "attend", DROPOUT, "weights * keep"),
    Break(
        "dropout-after-softmax",
        "before",
        "attention",
        MASKED,
        "masked = apply_mask(apply_mask(logits, mask), dropout_keep)",
    ),
    Break(
        "attend",
        "last key dropped",
        "attend",
        ATTEND,
        "contract(\n        patterns.ATTEND, group(weights, v.shape[1])[..., :-1],"
        " v[..., :-1, :]\n    )",
    ),
)

GRADIENTS = (
    Break("dq", "no row sum", "gradients", SOFTMAX_VJP, "steps.weights * d_weights"),
    Break(
        "dq",
        "unscaled",
        "gradients",
        GRAD_SCORES,
        f'{GRAD_SCORES} | {{"q": scores[1](d_scaled, q, k)["q"]}}',
    ),
    Break("dk", "no row sum", "gradients", SOFTMAX_VJP, "steps.weights * d_weights"),
    Break(
        "dk",
        "unscaled",
        "gradients",
        GRAD_SCORES,
        f'{GRAD_SCORES} | {{"k": scores[1](d_scaled, q, k)["k"]}}',
    ),
    Break(
        "dv",
        "mean over the queries",
        "gradients",
        GRAD_VALUE,
        f"{GRAD_VALUE} / max(d_out.shape[3], 1)",
    ),
    Break(
        "dbias",
        "scaled",
        "gradients",
        "_sum_to(d_logits, bias.shape)",
        "_sum_to(d_logits * scale, bias.shape)",
    ),
    Break(
        "dbias-broadcast",
        "mean",
        "gradients",
        "gradient.sum(axis",
        "gradient.mean(axis",
    ),
    Break(
        "group-gradients",
        "mean",
        "gradients",
        GRAD_KEY,
        f"{GRAD_KEY} / d_scores.shape[2]",
    ),
    Break(
        "softcap-gradient",
        "slope 1",
        "gradients",
        "return 1 if softcap is None else 1 - np.tanh(scaled / float(softcap)) ** 2",
        "return 1",
    ),
    Break(
        "dropout-gradient",
        "not dropped",
        "gradients",
        "d_weights = apply_dropout(d_dropped, dropout_rate, dropout_keep)",
        "d_weights = d_dropped",
    ),
    Break("lse-gradient", "left out", "gradients", DELTA, "pass"),
    Break("lse-gradient", "sign", "gradients", DELTA, DELTA.replace("-", "+")),
)

TYPES = (
    Break(
        "float64",
        "products in float32",
        "scores",
        "return np.einsum(pattern, *map(accumulate, operands), optimize=True)",
        "operands = [x.astype(np.float32) for x in operands]\n"
        "    return np.einsum(pattern, *operands, optimize=True).astype(np.float64)",
    ),
    Break(
        "float32-inside",
        "scores stored",
        "attention",
        "raw = scores(q, k)",
        "raw = scores(q, k).astype(dtype).astype(q.dtype)",
    ),
    Break(
        "rounded-once",
        "weights stored",
        "attention",
        "weights, lse = softmax(masked)",
        "weights, lse = softmax(masked)\n"
        "    weights = weights.astype(dtype).astype(weights.dtype)",
    ),
    Break(
        "rounded-once",
        "weights stored for the product",
        "attention",
        OUTPUT,
        OUTPUT.replace(", v)", ".astype(dtype), v)"),
    ),
    Break(
        "rounded-once",
        "gradient of the logits stored",
        "gradients",
        'd_logits = found.pop("masked")',
        'd_logits = accumulate(found.pop("masked").astype(dtype))',
    ),
)

EMPTY_AXES = (
    Break(
        "no-batch",
        "needs one",
        "attention",
        "dtype = q.dtype",
        "dtype = q[0].dtype",
        status="error",
    ),
    Break(
        "no-queries",
        "needs one",
        "attention",
        "dtype = q.dtype",
        "dtype = q[:, :, 0].dtype",
        status="error",
    ),
    Break("no-keys", "needs one", "softmax", ", initial=-np.inf", "", status="error"),
)

BREAKS = (
    *AXIOM,
    *LETTERS,
    *PROJECTIONS,
    *LOGIT_STEPS,
    *MASKS,
    *WEIGHT_STEPS,
    *GRADIENTS,
    *TYPES,
    *EMPTY_AXES,
)

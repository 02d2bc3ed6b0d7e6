"""The clauses of the spec: every statement that a result can violate, as data."""

from typing import NamedTuple

from attncheck.case import DTYPES


class Clause(NamedTuple):
    """One statement of the spec."""

    name: str
    sentence: str
    dtypes: tuple[str, ...] = tuple(DTYPES)
    """The storage types in which the statement says something."""


SIXTEEN_BITS = ("BF16", "F16")

CLAUSES = (
    # One axiom: a blocked key does not exist.
    Clause("blocked-weight", "The weight of a blocked key is exactly 0."),
    Clause("blocked-bias", "A bias at a blocked position counts for nothing."),
    Clause(
        "blocked-key",
        "What k holds where no query of its head may look reaches no result.",
    ),
    Clause(
        "blocked-value",
        "What v holds where no query of its head may look reaches no result.",
    ),
    Clause(
        "blocked-for-one-head",
        "A key blocked for one query head exists for the others of its group.",
    ),
    Clause("empty-row-output", "A query with no key left has output 0."),
    Clause("empty-row-lse", "A query with no key left has log-sum-exp −∞."),
    Clause(
        "empty-row-gradients",
        "A query with no key left contributes zero gradient, whatever it is given.",
    ),
    Clause("bias-minus-inf", "A bias of −∞ has weight 0 and gradient 0."),
    Clause("bias-minus-inf-row", "A row of only −∞ logits is empty."),
    Clause("bias-minus-inf-nan", "A bias of −∞ hides no NaN."),
    Clause("bias-not-finite", "A bias of +∞ or NaN gives NaN."),
    Clause("nan-query", "A NaN in a query that has keys is shown."),
    Clause("nan-key", "A NaN in a key that is seen is shown."),
    Clause("nan-value", "A NaN or infinity in a value that is seen is shown."),
    # Letters.
    Clause("head-order", "Query heads h·g … h·g + g − 1 share key/value head h."),
    Clause("multi-query", "One key/value head may serve all query heads."),
    Clause("value-width", "The values may be wider or narrower than the keys."),
    # The steps, in order.
    Clause("project", "A projection is x·W, head by head."),
    Clause("projection-bias", "b_q, b_k and b_v are added to the projections."),
    Clause("self-attention", "Without a context, keys and values come from x."),
    Clause("cross-attention", "With a context, keys and values come from it."),
    Clause("scores", "The scores are the raw dot products, over the whole width."),
    Clause("scale-default", "The scale is 1/√d where none is given."),
    Clause("scale-given", "A given scale takes the place of the default."),
    Clause("scale-zero", "A scale of 0 is a scale of 0."),
    Clause("scale-negative", "A negative scale is honoured."),
    Clause("softcap", "The softcap is c·tanh(s/c)."),
    Clause("softcap-after-scale", "The softcap comes after the scale."),
    Clause("bias", "The bias is added to the logits."),
    Clause("bias-after-softcap", "The bias comes after the softcap."),
    Clause("bias-broadcast-b", "A bias of b = 1 serves every batch element."),
    Clause("bias-broadcast-n", "A bias of n = 1 serves every query head."),
    Clause("bias-broadcast-i", "A bias of i = 1 serves every query."),
    Clause("bias-broadcast-j", "A bias of j = 1 serves every key."),
    Clause("mask", "True in a mask means: may attend."),
    Clause("mask-after-softcap", "The mask comes after softcap and bias."),
    Clause("mask-broadcast-b", "A mask of b = 1 serves every batch element."),
    Clause("mask-broadcast-n", "A mask of n = 1 serves every query head."),
    Clause("mask-broadcast-i", "A mask of i = 1 serves every query."),
    Clause("mask-broadcast-j", "A mask of j = 1 serves every key."),
    Clause("causal", "Offset 0 aligns the upper-left corners: j ≤ i."),
    Clause("causal-offset", "Key j is visible to query i where j ≤ i + offset."),
    Clause("window", "Both ends of a window are inclusive."),
    Clause("window-open", "A window that ends in None has no bound on that side."),
    Clause("prefix", "The first n keys are visible to every query."),
    Clause("padding", "Keys from lengths[b] on are blocked."),
    Clause("segments", "A query sees the keys of its own segment."),
    Clause("masks-combined", "Predicates combine with and, or and not."),
    Clause("softmax", "The weights are exp(logit), normalised over the keys."),
    Clause("softmax-shift", "Scores beyond the range of exp do no harm."),
    Clause("lse", "The log-sum-exp is the natural logarithm of the sum of exp(logit)."),
    Clause("dropout", "Weights that dropout_keep does not keep become 0."),
    Clause("dropout-rescale", "Kept weights are divided by 1 − rate."),
    Clause(
        "dropout-after-softmax",
        "Weights and log-sum-exp are those before dropout.",
    ),
    Clause("attend", "The output is the weighted sum of the values."),
    Clause("merge", "The heads' outputs go through W_o and are summed."),
    Clause("merge-bias", "b_o is added once, after the heads are summed."),
    # Gradients.
    Clause("dq", "dq is the gradient at q."),
    Clause("dk", "dk is the gradient at k."),
    Clause("dv", "dv is the gradient at v."),
    Clause("dbias", "dbias is the gradient at the bias, unscaled."),
    Clause("dbias-broadcast", "dbias is summed over the bias's broadcast axes."),
    Clause("group-gradients", "dk and dv are summed over the heads of a group."),
    Clause("softcap-gradient", "The gradient passes the softcap's own slope."),
    Clause("dropout-gradient", "The gradient passes the same dropout."),
    Clause("lse-gradient", "The log-sum-exp has a gradient too."),
    # Types and empty axes.
    Clause("float64", "float64 is computed in float64.", ("F64",)),
    Clause(
        "float32-inside",
        "16-bit inputs are multiplied, summed and exponentiated in float32.",
        SIXTEEN_BITS,
    ),
    Clause(
        "rounded-once", "16-bit results are rounded once, at the end.", SIXTEEN_BITS
    ),
    Clause("no-batch", "b may be 0."),
    Clause("no-queries", "i may be 0."),
    Clause("no-keys", "j may be 0: every row is empty."),
)
"""In the order of the spec."""

OPERATION_CLAUSES = (
    Clause("rotary", "Component t of a position turns with its partner, w/2 further."),
    Clause("rotary-interleaved", "Interleaved, it turns with its neighbour."),
    Clause("rotary-offset", "Query i stands at i + offset, key j at j."),
    Clause("rotary-width", "Only the first w components turn, at base^(−2t/w)."),
    Clause("rotary-base", "The base is the one that is given."),
    Clause("shaw-keys", "q·a is added to the raw score, a by the distance."),
    Clause("shaw-values", "Σ p·b is added to the output, b by the distance."),
    Clause("shaw-clip", "Beyond c the distance is c: row clip(j − i − offset) + c."),
    Clause("t5", "The bias is the table's at the distance's bucket and the head."),
    Clause("t5-both-ways", "Half of the buckets are for keys that come later."),
    Clause("t5-last-bucket", "The farthest distances share the last bucket."),
    Clause("alibi", "The bias is −m·|j − i − offset|, m by the query head."),
    Clause(
        "alibi-slopes", "Slopes that are not given are those of the published code."
    ),
    Clause("alibi-offset", "Query i stands at i + offset, key j at j, in ALiBi too."),
    Clause("alibi-gradient", "Given slopes have a gradient."),
    Clause("sink", "exp(sink) joins the denominator, as it is."),
    Clause("sink-gradient", "A sink has a gradient."),
    Clause(
        "sink-empty-row", "A row of only its sink has output 0, and the sink as lse."
    ),
    Clause("additive", "The score is w·tanh(W q + U k), unscaled."),
    Clause("additive-gradient", "W, U and w have gradients."),
    Clause("cosine", "The score is the cosine, times the temperature."),
    Clause("cosine-temperature", "The temperature is the head's own; 10 by default."),
    Clause("cosine-eps", "A length below eps counts as eps."),
    Clause("latent", "Keys and values come from c = x W_c; the scale is 1/√(d + p)."),
    Clause("latent-rotary", "Beside the content, heads share one key that is turned."),
    Clause("latent-absorbed", "Absorbed weights give the same, but for rounding."),
    Clause("cosine-gradient", "The gradient passes the lengths, and the temperature."),
    Clause("linear", "The weights are φ(q)·φ(k) over their sum, unscaled."),
    Clause("linear-feature", "φ is elu + 1, or relu where that is asked for."),
    Clause("linear-zero", "A query whose weights are all 0 has output 0 and lse −∞."),
    Clause("linear-recurrent", "Step by step it is the same: a step sees its own key."),
    Clause("features-causal", "Causal sums end with key i + offset, and with it."),
    Clause("features-mask", "A blocked key is in no sum of features."),
    Clause("performer", "A random feature is exp(x·w − |x|²/2); lse is of their mean."),
    Clause("performer-scale", "x is q, or k, times the root of the scale."),
    Clause("performer-shift", "Features beyond the range of exp do no harm."),
    Clause("linformer", "Keys and values are Σ E k and Σ F v, r each."),
    Clause("linformer-default", "Where F is not given, it is E."),
    Clause("linformer-mask", "A blocked key is in no combination."),
    Clause("nystrom", "softmax(q·k̃) softmax(q̃·k̃)⁻¹ softmax(q̃·k) v, all scaled."),
    Clause("nystrom-landmarks", "A landmark is the mean of a segment."),
)
"""Of the operations beside attention."""

NUMERIC = frozenset(
    {
        *("scores", "scale-given", "softcap", "bias", "softmax", "softmax-shift"),
        *("lse", "attend", "dropout-rescale", "lse-gradient", "project"),
        *("float64", "float32-inside", "rounded-once"),
    }
)
"""Of the clauses of attention those that hold or not by the range and the precision of
a storage type.

The others are conventions: which key, which head, in which order.
"""

"""The clauses of the spec in a few groups: the columns of the board."""

from collections.abc import Mapping

GROUPS: Mapping[str, tuple[str, ...]] = {
    "scores and scale": (
        "scores",
        "scale-default",
        "scale-given",
        "scale-zero",
        "scale-negative",
    ),
    "softcap": ("softcap", "softcap-after-scale", "softcap-gradient"),
    "bias": (
        "bias",
        "bias-after-softcap",
        "bias-broadcast-b",
        "bias-broadcast-n",
        "bias-broadcast-i",
        "bias-broadcast-j",
        "bias-minus-inf",
        "bias-minus-inf-row",
        "bias-minus-inf-nan",
        "bias-not-finite",
        "dbias",
        "dbias-broadcast",
    ),
    "mask": (
        "mask",
        "mask-after-softcap",
        "mask-broadcast-b",
        "mask-broadcast-n",
        "mask-broadcast-i",
        "mask-broadcast-j",
        "causal",
        "causal-offset",
        "window",
        "window-open",
        "prefix",
        "padding",
        "segments",
        "masks-combined",
    ),
    "blocked keys": (
        "blocked-weight",
        "blocked-bias",
        "blocked-key",
        "blocked-value",
        "blocked-for-one-head",
    ),
    "empty rows": (
        "empty-row-output",
        "empty-row-lse",
        "empty-row-gradients",
        "no-batch",
        "no-queries",
        "no-keys",
    ),
    "NaN shown": ("nan-query", "nan-key", "nan-value"),
    "heads and widths": ("head-order", "multi-query", "value-width"),
    "softmax": ("softmax", "softmax-shift", "lse", "attend"),
    "dropout": (
        "dropout",
        "dropout-rescale",
        "dropout-after-softmax",
        "dropout-gradient",
    ),
    "gradients": ("dq", "dk", "dv", "group-gradients", "lse-gradient"),
    "types": ("float64", "float32-inside", "rounded-once"),
    "projections": (
        "project",
        "projection-bias",
        "self-attention",
        "cross-attention",
        "merge",
        "merge-bias",
    ),
}
"""Group → its clauses; every clause is in one."""

GROUP_OF: Mapping[str, str] = {
    clause: group for group, clauses in GROUPS.items() for clause in clauses
}

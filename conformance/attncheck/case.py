"""A case: the arrays and options of one call, what it wants, and why it exists."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np

from attncheck import layout

DTYPES: Mapping[str, np.dtype] = {
    "F64": np.dtype(np.float64),
    "F32": np.dtype(np.float32),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F16": np.dtype(np.float16),
}
"""Storage types by their safetensors name."""

STEPS = ("scores", "logits", "masked", "weights")
"""Intermediates in the order in which they are computed."""

FORWARD = (*STEPS, "output", "lse")
GRADIENTS = ("dq", "dk", "dv", "dbias")
RESULTS = (*FORWARD, *GRADIENTS)
"""Everything a case may want, in the order in which it is computed."""


MULTI_HEAD_PARAMS = ("w_q", "w_k", "w_v", "w_o", "b_q", "b_k", "b_v", "b_o")
"""Weights and biases of a multi-head case, by the names of `MultiHeadParams`."""

AXES: Mapping[str, str] = {
    "q": "bnid",
    "k": "bhjd",
    "v": "bhje",
    "mask": "bnij",
    "bias": "bnij",
    "dropout_keep": "bnij",
    "d_out": "bnie",
    "d_lse": "bni",
    "x": "bic",
    "context": "bjm",
    "w_q": "cnd",
    "w_k": "mhd",
    "w_v": "mhe",
    "w_o": "nec",
    "b_q": "nd",
    "b_k": "hd",
    "b_v": "he",
    "b_o": "c",
}
"""Input → its axes."""


@dataclass(frozen=True, eq=False)
class Case:
    """One call of `attention`, or of `multi_head_attention`, as data.

    `inputs` are canonical: `q: b n i d`, `k: b h j d`, `v: b h j e`, and where the case
    has them `mask`, `bias`, `dropout_keep` (4-D, each axis of `b n i j` full or 1),
    `d_out: b n i e` and `d_lse: b n i` (in the accumulation type).  A multi-head case
    has `x: b i c`, `w_q: c n d`, `w_k: m h d`, `w_v: m h e`, `w_o: n e c`, and where it
    has them `context: b j m`, `b_q`, `b_k`, `b_v`, `b_o`, instead of q, k and v.

    A mask is always an array here; `predicate` says in words of the spec what it is
    made of, for subjects that take a causal flag or a window.
    """

    id: str
    clauses: tuple[str, ...]
    """The clauses of the spec that this case covers."""
    why: str
    """One sentence: the mistake that this case is there to catch."""
    dtype: str
    inputs: Mapping[str, np.ndarray]
    scale: float | None = None
    """None: the default, 1/√d."""
    softcap: float | None = None
    dropout_rate: float = 0.0
    predicate: Mapping[str, Any] = field(default_factory=dict)
    """`{"causal_offset": 2, "window": [3, 0]}`; empty where there is none."""
    wants: tuple[str, ...] = RESULTS
    strides: Mapping[str, str] = field(default_factory=dict)
    """How inputs lie in memory, in the words of `attncheck.layout`; an input that is
    not named is contiguous."""
    compiled: bool = False
    """The call goes through the framework's compiler."""
    law: str = ""
    """The law of `attncheck.laws` that relates the case to its twin; else nothing."""
    twin: str = ""
    """The id of the case that this one was derived from."""

    def __post_init__(self) -> None:
        for name, order in self.strides.items():
            if name not in self.inputs:
                raise ValueError(f"a layout is given of `{name}`, but no such input")
            layout.check(name, self.inputs[name], AXES[name], order)

    @property
    def op(self) -> str:
        """The name of the function that the case calls."""
        return "multi_head_attention" if "x" in self.inputs else "attention"

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Axis letter → size."""
        array = self.inputs
        if self.op == "attention":
            b, n, i, d = array["q"].shape
            _, h, j, e = array["v"].shape
            return {"b": b, "n": n, "h": h, "g": n // h, "i": i, "j": j, "d": d, "e": e}
        b, i, c = array["x"].shape
        _, n, d = array["w_q"].shape
        m, h, e = array["w_v"].shape
        j = array.get("context", array["x"]).shape[1]
        sizes = {"b": b, "n": n, "h": h, "g": n // h, "i": i, "j": j, "d": d, "e": e}
        return sizes | {"c": c, "m": m}

    @property
    def scale_value(self) -> float:
        """The factor on the raw scores, the default resolved."""
        return self.sizes["d"] ** -0.5 if self.scale is None else self.scale

    @property
    def accumulation(self) -> np.dtype:
        """The type that sums, weights and the log-sum-exp are kept in."""
        return np.dtype(np.float64 if self.dtype == "F64" else np.float32)

    def laid_out(self, name: str) -> np.ndarray:
        """A copy of an input, in memory as the case wants it."""
        return layout.laid_out(self.inputs[name], AXES[name], self.strides.get(name))

    @property
    def options(self) -> dict[str, Any]:
        """What makes the call beside its arrays."""
        return {
            "scale": self.scale_value,
            "scale_is_default": self.scale is None,
            "softcap": self.softcap,
            "dropout_rate": self.dropout_rate,
            "predicate": dict(self.predicate),
        }

    @cached_property
    def sha256(self) -> str:
        """Hash of all that a result depends on: the call, its arrays, their memory."""
        digest = hashlib.sha256()
        head: list[Any] = [self.op, self.dtype, self.options, list(self.wants)]
        head += [dict(self.strides), self.compiled]
        digest.update(json.dumps(head, sort_keys=True).encode())
        for name in sorted(self.inputs):
            array = np.ascontiguousarray(self.inputs[name])
            digest.update(f"{name} {array.dtype} {array.shape}".encode())
            digest.update(array.tobytes())
        return digest.hexdigest()

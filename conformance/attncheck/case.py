"""A case: the arrays and options of one call, what it wants, and why it exists."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np

from attncheck import layout
from attncheck.operations import OPERATIONS

DTYPES: Mapping[str, np.dtype] = {
    "F64": np.dtype(np.float64),
    "F32": np.dtype(np.float32),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F16": np.dtype(np.float16),
}
"""Storage types by their safetensors name."""

INTERMEDIATES = ("scores", "logits", "masked", "weights")
"""What is computed on the way to the output, in that order."""

FORWARD = (*INTERMEDIATES, "output", "lse")
GRADIENTS = ("dq", "dk", "dv", "dbias")
RESULTS = (*FORWARD, *GRADIENTS)
"""Everything a case of attention may want, in the order in which it is computed."""

ALL_GRADIENTS = tuple(
    dict.fromkeys(
        [
            *GRADIENTS,
            *(
                f"d{name}"
                for operation in OPERATIONS.values()
                for name in (
                    *operation.operands,
                    *operation.required,
                    *operation.optional,
                )
                if operation.differentiable
            ),
        ]
    )
)
"""Those of the other operations' own inputs as well."""

ALL_RESULTS = (*FORWARD, *ALL_GRADIENTS)
"""Everything that any case may want."""

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
    **dict.fromkeys(INTERMEDIATES, "bnij"),
    "output": "bnie",
    "lse": "bni",
    "dq": "bnid",
    "dk": "bhjd",
    "dv": "bhje",
    "dbias": "bnij",
}
"""Input or result → its axes; but the output of a multi-head case is `b i c`."""

INPUTS = tuple(
    dict.fromkeys(
        [
            *(name for name in AXES if name not in RESULTS),
            *(x for one in OPERATIONS.values() for x in (*one.required, *one.optional)),
        ]
    )
)

MASKS = ("mask", "dropout_keep")
BROADCAST = (*MASKS, "bias")
"""Inputs whose axes may each be 1."""

REQUIRED: Mapping[str, tuple[str, ...]] = {
    "attention": ("q", "k", "v"),
    "multi_head_attention": ("x", "w_q", "w_k", "w_v", "w_o"),
    **{name: (*one.operands, *one.required) for name, one in OPERATIONS.items()},
}
OPTIONAL: Mapping[str, tuple[str, ...]] = {
    "attention": (*BROADCAST, "d_out", "d_lse"),
    "multi_head_attention": (*BROADCAST, "context", "b_q", "b_k", "b_v", "b_o"),
    **{
        name: (
            *(x for x in (*BROADCAST, "d_out", "d_lse") if x not in one.without),
            *one.optional,
        )
        for name, one in OPERATIONS.items()
    },
}
"""Operation → the inputs that it takes."""


@dataclass(frozen=True, eq=False)
class Case:
    """One call of `attention`, or of another operation, as data.

    `inputs` are canonical: `q: b n i d`, `k: b h j d`, `v: b h j e`, and where the case
    has them `mask`, `bias`, `dropout_keep` (4-D, each axis of `b n i j` full or 1),
    `d_out: b n i e` and `d_lse: b n i` (in the accumulation type).  A multi-head case
    has `x: b i c`, `w_q: c n d`, `w_k: m h d`, `w_v: m h e`, `w_o: n e c`, and where it
    has them `context: b j m`, `b_q`, `b_k`, `b_v`, `b_o`, instead of q, k and v.  The
    other operations (`attncheck.operations`) have inputs and options of their own
    beside those of attention.

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
    op: str = ""
    """The name of the function that the case calls; by default `attention`, or
    `multi_head_attention` where there is an x."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The operation's own options, such as `{"offset": 3}`; the others are default."""

    def __post_init__(self) -> None:
        if not self.op:
            op = "multi_head_attention" if "x" in self.inputs else "attention"
            object.__setattr__(self, "op", op)
        for name, order in self.strides.items():
            if name not in self.inputs:
                raise ValueError(f"a layout is given of `{name}`, but no such input")
            layout.check(name, self.inputs[name], self.axes(name), order)

    def axes(self, name: str) -> str:
        """The letters of the axes of an input or a result."""
        if name in ALL_GRADIENTS:
            return self.axes(name[1:])
        if self.op in OPERATIONS and name in OPERATIONS[self.op].axes:
            return OPERATIONS[self.op].axes[name]
        return (
            "bic"
            if self.op == "multi_head_attention" and name == "output"
            else AXES[name]
        )

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Axis letter → size."""
        array = self.inputs
        if self.op == "attention":
            b, n, i, d = array["q"].shape
            _, h, j, e = array["v"].shape
            return {"b": b, "n": n, "h": h, "g": n // h, "i": i, "j": j, "d": d, "e": e}
        if self.op in OPERATIONS:
            return self._sizes_of_operation
        b, i, c = array["x"].shape
        _, n, d = array["w_q"].shape
        m, h, e = array["w_v"].shape
        j = array.get("context", array["x"]).shape[1]
        sizes = {"b": b, "n": n, "h": h, "g": n // h, "i": i, "j": j, "d": d, "e": e}
        return sizes | {"c": c, "m": m}

    @property
    def _sizes_of_operation(self) -> dict[str, int]:
        """Those of all its inputs; without heads or keys of their own, as many of them
        as of queries."""
        found: dict[str, int] = {}
        for name in REQUIRED[self.op] + OPTIONAL[self.op]:
            if name in self.inputs and name not in BROADCAST:
                axes = zip(self.axes(name), self.inputs[name].shape, strict=True)
                found = dict(axes) | found
        found = {"h": found["n"], "j": found["i"]} | found
        found["g"] = found["n"] // found["h"]
        return {axis: found[axis] for axis in "bnhgijde"} | found

    @property
    def largest(self) -> int:
        """Elements of the largest array on the way to a result; empty axes count."""
        sizes = self.sizes
        axes = [x for x in (*AXES.values(), "bnie") if set(x) <= sizes.keys()]
        return max(math.prod(max(1, sizes[axis]) for axis in x) for x in axes)

    @property
    def scale_value(self) -> float:
        """The factor on the raw scores, the default resolved."""
        width = self.sizes["d"]
        if self.op == "latent_attention":  # of the rotary part as well
            width += self.sizes["p"]
        return width**-0.5 if self.scale is None else self.scale

    @property
    def accumulation(self) -> np.dtype:
        """The type that sums, weights and the log-sum-exp are kept in."""
        return np.dtype(np.float64 if self.dtype == "F64" else np.float32)

    def laid_out(self, name: str) -> np.ndarray:
        """A copy of an input, in memory as the case wants it."""
        order = self.strides.get(name)
        return layout.laid_out(self.inputs[name], self.axes(name), order)

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
        if self.settings:
            head.append(dict(self.settings))
        digest.update(json.dumps(head, sort_keys=True).encode())
        for name in sorted(self.inputs):
            array = np.ascontiguousarray(self.inputs[name])
            digest.update(f"{name} {array.dtype} {array.shape}".encode())
            digest.update(array.tobytes())
        return digest.hexdigest()


def check_inputs(case: Case) -> None:
    """Refuses inputs that are no call together.

    Raises:
        ValueError: an input too many or too few, or of another shape or type, or a
            wanted result that there is not.
    """
    required, optional = REQUIRED[case.op], OPTIONAL[case.op]
    for name in required:
        if name not in case.inputs:
            raise ValueError(f"{case.op} needs `{name}`")
    for name, array in case.inputs.items():
        if name not in required + optional:
            raise ValueError(f"{case.op} takes no `{name}`")
        if array.ndim != len(case.axes(name)):
            raise ValueError(
                f"`{name}` must have axes {case.axes(name)}: {array.shape}"
            )
    if (case.dropout_rate > 0) != ("dropout_keep" in case.inputs):
        raise ValueError("a dropout_rate above 0 and `dropout_keep` need each other")
    values = case.inputs["v" if "v" in case.inputs else "w_v"]
    if not values.shape[1] or case.sizes["n"] != case.sizes["h"] * case.sizes["g"]:
        raise ValueError("query heads must be a multiple of key/value heads")
    for axis in case.sizes.keys() - set("bij"):
        if not case.sizes[axis]:
            raise ValueError(f"axis {axis} must not be empty")
    for name, array in case.inputs.items():
        _check_input(case, name, array)
    if case.op in OPERATIONS:
        OPERATIONS[case.op].check(case)
    elif case.settings:
        raise ValueError(f"{case.op} has no options of its own")
    for name in case.wants:
        if name not in _results(case):
            raise ValueError(f"wants `{name}`, which such a call does not give")


def _results(case: Case) -> tuple[str, ...]:
    """All that can be wanted of a case."""
    if case.op == "multi_head_attention":
        return ("output",)
    forward = tuple(OPERATIONS[case.op].returns) if case.op in OPERATIONS else FORWARD
    if not {"d_out", "d_lse"} & set(case.inputs):
        return forward
    return forward + tuple(d for d in ALL_GRADIENTS if d[1:] in case.inputs)


def _check_input(case: Case, name: str, array: np.ndarray) -> None:
    full = tuple(case.sizes[axis] for axis in case.axes(name))
    fits = array.shape == full or (
        name in BROADCAST
        and all(
            size in (1, other) for size, other in zip(array.shape, full, strict=True)
        )
    )
    if not fits:
        kind = ", each full or 1," if name in BROADCAST else ""
        raise ValueError(f"`{name}` must be {full}{kind} but is {array.shape}")
    dtype = DTYPES[case.dtype]
    if name in MASKS:
        dtype = np.dtype(bool)
    if name == "d_lse":
        dtype = case.accumulation
    if array.dtype != dtype:
        raise ValueError(f"`{name}` must be {dtype}, but is {array.dtype}")

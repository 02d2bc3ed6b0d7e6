"""Attention of low rank: to combinations of the keys, or through landmarks.

Wang et al. (2020), arXiv 2006.04768, equation 7; Xiong et al. (2021), arXiv 2102.03902,
equation 13.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from attncheck.operations.features import WITHOUT, of_keys_alone
from attncheck.operations.operation import (
    Array,
    Operation,
    Reduced,
    Results,
    Setting,
    full,
    is_integer,
    own,
    plain,
    summed,
)

if TYPE_CHECKING:
    from attncheck.case import Case
    from attncheck.formulas import Arithmetic

Then = Callable[[Array], dict[str, Array] | Reduced]
"""What follows an output: the results, or the next call."""


def reduce_linformer(case: "Case", numbers: "Arithmetic") -> Reduced:
    """Plain attention to combinations of the keys that there are.

    Keys may be combined before they meet queries or after, and values before or after
    they are weighted: the sums of such a chain have the terms of all of them.
    """
    is_key = full(case, "mask", True)[:, 0, 0]
    q, k, v = (numbers.number(own(case, name)) for name in "qkv")
    k, v = (numbers.where(is_key[:, None, :, None], x, 0.0) for x in (k, v))
    w_e = numbers.number(own(case, "w_e")).swapaxes(0, 1)
    w_f = w_e
    if "w_f" in case.inputs:
        w_f = numbers.number(own(case, "w_f")).swapaxes(0, 1)
    operands = {
        "q": q,
        "k": numbers.product(w_e, k, case.sizes["d"]),
        "v": numbers.product(w_f, v, case.sizes["r"]),
    }
    mask = np.any(is_key[:, None, None], axis=-1, keepdims=True)

    def back(found: Results) -> dict[str, Array]:
        return {name: found[name] for name in ("output", "lse")}

    return Reduced(plain(case, numbers, mask=mask, **operands), operands, back)


def reduce_nystrom(case: "Case", numbers: "Arithmetic") -> Reduced:
    """Three calls of plain attention: two of the landmarks of queries, to those of keys
    and to all keys, and one of all queries to landmarks, whose values those two make.

    The product of the three may be formed in any order.
    """
    sizes, count = case.sizes, int(case.settings["landmarks"])
    heads = np.arange(sizes["n"]) // sizes["g"]
    q = numbers.number(own(case, "q"))
    k, v = (numbers.number(own(case, name))[:, heads] for name in "kv")
    few_q, few_k = (_means(numbers, x, count) for x in (q, k))
    identity = np.broadcast_to(np.eye(count), (*few_k.shape[:3], count))

    def call(q: Array, k: Array, v: Array, then: Then) -> Reduced:
        operands = {"q": q, "k": k, "v": v}
        reduced = plain(case, numbers, **operands)
        return Reduced(reduced, operands, lambda found: then(found["output"]))

    def with_core(core: Array) -> Reduced:
        inverse = numbers.inverse(core)
        return call(few_q, k, v, lambda attended: with_both(inverse, attended))

    def with_both(inverse: Array, attended: Array) -> Reduced:
        values = numbers.product(inverse, attended, sizes["j"] + count)
        return call(q, few_k, values, lambda output: {"output": output})

    return call(few_q, few_k, numbers.number(identity), with_core)


def _means(numbers: "Arithmetic", x: Array, count: int) -> Array:
    """Of as many segments, one after the other: `b n r d`."""
    b, n, length, d = x.shape
    parts = x.reshape(b, n, count, length // count, d)
    return summed(numbers, parts, [3])[..., 0, :] / float(length // count)


def _refuses_nystrom(case: "Case") -> str:
    if "landmarks" not in case.settings:
        return "`landmarks` is missing"
    count = case.settings["landmarks"]
    for axis in "ij":
        size = case.sizes[axis]
        if size % count or not size:
            return f"axis {axis} must be a multiple of `landmarks` = {count}: {size}"
    return ""


LINFORMER = Operation(
    "linformer_attention",
    "attention to combinations of keys",
    reduce_linformer,
    required={"w_e": "jr"},
    optional={"w_f": "jr"},
    without=WITHOUT,
    refuses=of_keys_alone,
)

NYSTROM = Operation(
    "nystrom_attention",
    "attention through landmarks",
    reduce_nystrom,
    returns={"output": "bnie"},
    settings={
        "landmarks": Setting(lambda x: is_integer(x) and x > 0, "an integer above 0")
    },
    without=("mask", *WITHOUT),
    refuses=_refuses_nystrom,
)

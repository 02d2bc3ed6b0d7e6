"""A learned logit of every head that joins the denominator only.

It is the logit of one more key, which nothing blocks, and whose value is 0.
"""

from typing import TYPE_CHECKING

import numpy as np

from attncheck.operations.operation import (
    Array,
    Operation,
    Reduced,
    Results,
    full,
    own,
    plain,
    summed,
    summed_to_bias,
)

if TYPE_CHECKING:
    from attncheck.case import Case
    from attncheck.formulas import Arithmetic


def reduce(case: "Case", numbers: "Arithmetic") -> Reduced:
    """Plain attention with one more key, the last, of score 0, its bias the sink."""
    b, n, i = (case.sizes[axis] for axis in "bni")
    sinks = np.broadcast_to(own(case, "sinks")[:, None, None], (b, n, i, 1))
    changes = {
        "k": _with_last(own(case, "k"), 0.0, axis=2),
        "v": _with_last(own(case, "v"), 0.0, axis=2),
        "bias": np.concatenate([full(case, "bias"), sinks], axis=-1),
    }
    for name in ("mask", "dropout_keep"):
        if name in case.inputs:
            changes[name] = _with_last(full(case, name), True, axis=3)

    def back(found: Results) -> dict[str, Array]:
        results = {
            name: found[name] for name in ("output", "lse", "dq") if name in found
        }
        results |= {x: found[x][:, :, :-1] for x in ("dk", "dv") if x in found}
        if "dbias" not in found:
            return results
        if "bias" in case.inputs:
            d = found["dbias"][..., :-1]
            results["dbias"] = summed_to_bias(case, numbers, d)
        d = summed(numbers, found["dbias"][..., -1:], [0, 2])
        return results | {"dsinks": d.reshape(n)}

    return Reduced(plain(case, numbers, **changes), {}, back)


def _with_last(array: np.ndarray, value: float | bool, *, axis: int) -> np.ndarray:
    """One more element along an axis."""
    widths = [(0, int(place == axis)) for place in range(array.ndim)]
    return np.pad(array, widths, constant_values=value)


SINK = Operation(
    "sink_attention", "attention with sinks", reduce, required={"sinks": "n"}
)

"""Scores w·tanh(W q + U k) in place of products.

Bahdanau, Cho & Bengio (2015), arXiv 1409.0473, section A.1.2.
"""

from typing import TYPE_CHECKING

import numpy as np

from attncheck.operations.operation import (
    Array,
    Operation,
    Reduced,
    Results,
    own,
    summed,
)
from attncheck.operations.pairwise import Pairwise

if TYPE_CHECKING:
    from attncheck.case import Case
    from attncheck.formulas import Arithmetic


def reduce(case: "Case", numbers: "Arithmetic") -> Reduced:
    """Plain attention of w with the features tanh(…) as keys of every pair.

    W q and U k may be one sum, so each counts the terms of both.
    """
    q, k, v, w_q, w_k, w_s = (
        numbers.number(own(case, name)) for name in ("q", "k", "v", "w_q", "w_k", "w_s")
    )
    pairs = Pairwise(case, numbers)
    b, n, i, j, d, width = (case.sizes[axis] for axis in "bnijda")
    from_query = pairs.alone(numbers.product(q, w_q, d))[:, 0]
    features = numbers.tanh(from_query + pairs.spread(numbers.product(k, w_k, d)))
    # The same w for all queries of a head.
    heads = np.repeat(np.tile(np.arange(n), b), i)
    operands = {
        "q": w_s[heads].reshape(b * n * i, 1, 1, width),
        "k": features[:, None],
        "v": pairs.spread(v)[:, None],
    }

    def back(found: Results) -> dict[str, Array]:
        results = pairs.back(found)
        results["output"] = pairs.unhalved(found["output"], halves=False)
        if "dq" not in found:
            return results
        d_sum = found["dk"] * (-(features * features) + 1.0)[:, None]
        # Each is summed again, over features or over positions, in any order.
        d_query = summed(numbers, d_sum, [2], more=width + b * i)
        d_query = d_query.reshape(b, n, i, width)
        d_key = pairs.gathered(d_sum, more=width + b * j)
        d_score = found["dq"].reshape(b, n, i, width)
        return results | {
            "dq": d_query @ w_q.swapaxes(-1, -2),
            "dk": d_key @ w_k.swapaxes(-1, -2),
            "dv": pairs.gathered(found["dv"]),
            "dw_q": _over_batch(numbers, q.swapaxes(-1, -2) @ d_query),
            "dw_k": _over_batch(numbers, k.swapaxes(-1, -2) @ d_key),
            "dw_s": summed(numbers, d_score, [0, 2]).reshape(n, width),
        }

    return Reduced(pairs.case(operands, halves=False, scale=1.0), operands, back)


def _over_batch(numbers: "Arithmetic", array: Array) -> Array:
    return summed(numbers, array, [0])[0]


ADDITIVE = Operation(
    "additive_attention",
    "additive attention",
    reduce,
    required={"w_q": "nda", "w_k": "hda", "w_s": "na"},
    without=("scale",),
)

"""Latent attention: keys and values come from a few numbers a position.

DeepSeek-AI, *DeepSeek-V2* (2024), arXiv 2405.04434, section 2.1, without the norms and
without the compression of the queries.
"""

from typing import TYPE_CHECKING

import numpy as np

from attncheck.operations.operation import (
    OFFSET,
    Array,
    Operation,
    Reduced,
    Results,
    Setting,
    beside,
    own,
    places,
    plain,
    summed,
)
from attncheck.operations.rotary import BASE, PAIRING, Turn

if TYPE_CHECKING:
    from attncheck.case import Case
    from attncheck.formulas import Arithmetic


def reduce(case: "Case", numbers: "Arithmetic") -> Reduced:
    """Plain attention with the merged values of every head, whose outputs are summed.

    Keys may be multiplied by what makes queries, and values be merged, before or after
    they are formed: the sums of such a chain have the terms of all of them.
    """
    w = {name: numbers.number(own(case, name)) for name in LATENT.required}
    x = numbers.number(own(case, "x"))
    source = x if "context" not in case.inputs else numbers.number(own(case, "context"))
    sizes = case.sizes
    turn_q, turn_k = (_turn(case, numbers, at) for at in _positions(case))
    c = (source @ w["w_c"])[:, None]
    more = sizes["d"] + sizes["p"]
    k = numbers.product(c, w["w_k"].swapaxes(0, 1), more)
    k = beside(numbers, k, turn_k((source @ w["w_kr"])[:, None]))
    q = x[:, None] @ w["w_q"].swapaxes(0, 1)
    q = beside(numbers, q, turn_q(x[:, None] @ w["w_qr"].swapaxes(0, 1)))
    # Each weighted sum over the keys has two roundings more for every block of 16.
    v = numbers.product(c, w["w_v"].swapaxes(0, 1), sizes["j"] + sizes["j"] // 8 + 5)
    v = numbers.product(v, w["w_o"], sizes["n"] * sizes["e"])
    operands = {"q": q, "k": k, "v": v}

    def back(found: Results) -> dict[str, Array]:
        merged = summed(numbers, found["output"], [1])[:, 0]
        return {"output": merged, "lse": found["lse"]}

    return Reduced(plain(case, numbers, **operands), operands, back)


def _positions(case: "Case") -> tuple[np.ndarray, np.ndarray]:
    """Of the queries and of the keys."""
    return places(case), np.arange(case.sizes["j"])[None]


def _turn(case: "Case", numbers: "Arithmetic", positions: np.ndarray) -> Turn:
    given, width = case.settings, case.sizes["p"]
    is_interleaved = given.get("pairing", "halves") == "interleaved"
    base = given.get("base", 10000.0)
    return Turn(numbers, positions, width, width, base, is_interleaved)


LATENT = Operation(
    "latent_attention",
    "latent attention",
    reduce,
    operands=("x",),
    required={
        "w_q": "cnd",
        "w_qr": "cnp",
        "w_kr": "cp",
        "w_c": "cr",
        "w_k": "rnd",
        "w_v": "rne",
        "w_o": "nec",
    },
    optional={"context": "bjc"},
    returns={"output": "bic"},
    settings={
        "offset": OFFSET,
        "base": BASE,
        "pairing": PAIRING,
        "absorbed": Setting(lambda x: isinstance(x, bool), "true or false"),
    },
    without=("scale", "softcap", "bias", "dropout_keep", "d_out", "d_lse"),
)

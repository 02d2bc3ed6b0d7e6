"""Relative positions: what scores, logits or outputs get for the distance of a key.

The distance of key j from query i is j − (i + offset).
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
    added,
    beside,
    full,
    is_integer,
    own,
    places,
    plain,
    summed_to_bias,
)
from attncheck.operations.pairwise import Pairwise

if TYPE_CHECKING:
    from attncheck.case import Case
    from attncheck.formulas import Arithmetic


def distances(case: "Case") -> np.ndarray:
    """`b i j` or `1 i j`."""
    return np.arange(case.sizes["j"]) - places(case)[..., None]


def one_hot(rows: np.ndarray, count: int) -> np.ndarray:
    """`r x`: whether a place takes a row of a table."""
    return (np.arange(count)[:, None] == rows.ravel()).astype(np.float64)


# ----------------------------------------------------------------- a bias by distance


def _biased(case: "Case", numbers: "Arithmetic", more: Array) -> tuple[Array, "Case"]:
    """The bias with what is added to it, at full size, and the plain case."""
    bias = added(numbers, full(case, "bias"), more)
    return bias, plain(case, numbers, bias=bias)


def _with_bias(case: "Case", numbers: "Arithmetic", found: Results) -> dict[str, Array]:
    """What plain attention gives as it is, and the gradient of the bias given."""
    same = {name: x for name, x in found.items() if name != "dbias"}
    if "dbias" in found and "bias" in case.inputs:
        same["dbias"] = summed_to_bias(case, numbers, found["dbias"])
    return same


def reduce_alibi(case: "Case", numbers: "Arithmetic") -> Reduced:
    """A bias of −m·|distance|, m the slope of the head."""
    steps = np.abs(distances(case)).astype(np.float64)[:, None]
    n = case.sizes["n"]
    is_given = "slopes" in case.inputs
    slopes = own(case, "slopes") if is_given else published_slopes(numbers, n)
    slopes = numbers.number(slopes).reshape(1, n, 1, 1)
    bias, reduced = _biased(case, numbers, -(slopes * steps))

    def back(found: Results) -> dict[str, Array]:
        results = _with_bias(case, numbers, found)
        if is_given and "dbias" in found:
            d = found["dbias"]
            flat = np.broadcast_to(steps[:, 0], (d.shape[0], *steps.shape[2:]))
            rows = d.swapaxes(0, 1).reshape(n, flat.size)
            results["dslopes"] = -(rows @ numbers.number(flat.reshape(-1, 1)))[..., 0]
        return results

    return Reduced(reduced, {"bias": bias}, back)


def published_slopes(numbers: "Arithmetic", n: int) -> Array:
    """`n`: of n = 2^a heads 2^(−8k/n), k from 1; of others those of the next lower
    power of two, and then every second one of the next higher.

    Press, Smith & Lewis, *Train Short, Test Long* (2021), arXiv 2108.12409; the rule
    for other counts is that of their code.
    """
    lower = 1 << (n.bit_length() - 1)
    exponents = [8 * k / lower for k in range(1, lower + 1)]
    exponents += [8 * k / (2 * lower) for k in range(1, 2 * lower, 2)][: n - lower]
    return numbers.exp(numbers.log(numbers.number(2.0)) * -np.array(exponents))


def reduce_t5(case: "Case", numbers: "Arithmetic") -> Reduced:
    """A bias from a table, by the bucket of the distance and the head."""
    table, given = own(case, "table"), case.settings
    rows = buckets(
        distances(case),
        len(table),
        max_distance=given.get("max_distance", 128),
        bidirectional=given.get("bidirectional", True),
    )
    more = numbers.number(table)[rows].swapaxes(-1, -2).swapaxes(-2, -3)
    bias, reduced = _biased(case, numbers, more)

    def back(found: Results) -> dict[str, Array]:
        results = _with_bias(case, numbers, found)
        if "dbias" in found:
            d = found["dbias"].swapaxes(-3, -2).swapaxes(-2, -1)
            everywhere = np.broadcast_to(rows, d.shape[:3])
            takes = numbers.number(one_hot(everywhere, len(table)))
            results["dtable"] = takes @ d.reshape(everywhere.size, d.shape[-1])
        return results

    return Reduced(reduced, {"bias": bias}, back)


def buckets(
    distance: np.ndarray, count: int, *, max_distance: int, bidirectional: bool
) -> np.ndarray:
    """The bucket of each distance: near ones have one each, far ones share them.

    Of `count` buckets half are for keys that come later, if it is bidirectional; else
    those share the first.  Half of what is left, e, are exact, and bucket e + t begins
    at x = e·(max_distance/e)^(t/(count − e)), decided in integers.

    Raffel et al. (2020), arXiv 1910.10683, as in their code.
    """
    start, steps = np.zeros_like(distance), -distance
    if bidirectional:
        count //= 2
        start, steps = np.where(distance > 0, count, 0), np.abs(distance)
    exact = count // 2
    places = [
        _bucket(x, exact, count, max_distance) for x in range(steps.max(initial=0) + 1)
    ]
    return start + np.array(places)[np.maximum(steps, 0)]


def _bucket(x: int, exact: int, count: int, longest: int) -> int:
    """The greatest bucket e + t that begins at or below x, and at most the last."""
    if x < exact:
        return x
    spread, found = count - exact, exact
    for t in range(1, spread):
        if x**spread * exact**t >= longest**t * exact**spread:
            found = exact + t
    return found


# -------------------------------------------------- keys and values of each pair's own


def reduce_shaw(case: "Case", numbers: "Arithmetic") -> Reduced:
    """q·(k + a) and Σ p (v + b), a and b the rows of tables by the clipped distance.

    As plain attention on keys (k, a), queries (q, q) and values (v, b), the two halves
    of the output added: every sum has the terms that implementations have.

    Shaw, Uszkoreit & Vaswani (2018), arXiv 1803.02155, equations 3 and 4.
    """
    tables = {"k": own(case, "key_table")}
    if "value_table" in case.inputs:
        tables["v"] = own(case, "value_table")
    clip = len(tables["k"]) // 2
    rows = np.clip(distances(case), -clip, clip) + clip
    pairs = Pairwise(case, numbers)
    rows = pairs.of_every_query(rows)
    q, k, v = (numbers.number(own(case, name)) for name in "qkv")
    k = beside(numbers, pairs.spread(k), numbers.number(tables["k"])[rows])
    v = pairs.spread(v)
    if "v" in tables:
        v = beside(numbers, v, numbers.number(tables["v"])[rows])
    operands = {"q": pairs.twice(pairs.alone(q)), "k": k[:, None], "v": v[:, None]}
    reduced = pairs.case(operands, halves="v" in tables)

    def to_table(name: str, d: Array) -> Array:
        takes = numbers.number(one_hot(rows, len(tables[name])))
        return takes @ d.reshape(rows.size, d.shape[-1])

    def back(found: Results) -> dict[str, Array]:
        results = pairs.back(found)
        results["output"] = pairs.unhalved(found["output"], halves="v" in tables)
        if "dq" not in found:
            return results
        results["dq"] = pairs.unhalved(found["dq"], halves=True)
        dk, da = pairs.halves(found["dk"])
        results |= {"dk": pairs.gathered(dk), "dkey_table": to_table("k", da)}
        dv = found["dv"]
        if "v" in tables:
            dv, db = pairs.halves(dv)
            results["dvalue_table"] = to_table("v", db)
        return results | {"dv": pairs.gathered(dv)}

    return Reduced(reduced, operands, back)


ALIBI = Operation(
    "alibi_attention",
    "attention with linear biases",
    reduce_alibi,
    optional={"slopes": "n"},
    settings={"offset": OFFSET},
)

T5 = Operation(
    "t5_attention",
    "attention with bucketed relative biases",
    reduce_t5,
    required={"table": "rn"},
    settings={
        "offset": OFFSET,
        "bidirectional": Setting(lambda x: isinstance(x, bool), "true or false"),
        "max_distance": Setting(
            lambda x: is_integer(x) and x > 0, "an integer above 0"
        ),
    },
)

SHAW = Operation(
    "shaw_attention",
    "attention with relative keys and values",
    reduce_shaw,
    required={"key_table": "rd"},
    optional={"value_table": "re"},
    settings={"offset": OFFSET},
)

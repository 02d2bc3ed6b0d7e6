"""Shaw's tables, T5's buckets and ALiBi's slopes depend on j − i − offset."""

import re
from functools import cache

import numpy as np
import pytest
from mpmath import floor, log, mpf

from attnref.spec import alibi_slopes, causal

from .variant_calls import (
    SIZES,
    N,
    assert_is_defined,
    assert_rounded_once,
    dot,
    draw,
    gradients,
    incoming,
    normal,
    plain_score,
    plain_value,
    run,
)

OFFSETS = {
    "no offset": 0,
    "offset": 3,
    "offset below 0": -2,
    "offset of each batch element": (1, -1),
}
FULL = (SIZES["b"], N, SIZES["i"], SIZES["j"])
RNG = np.random.default_rng(23)


def distance(offset, b, i, j):
    return j - i - int(np.broadcast_to(offset, SIZES["b"])[b])


def all_options():
    """Everything that attention takes, a row without keys and a bias of −∞ in it."""
    mask, keep = RNG.random((2, *FULL)) < 0.7
    mask[1, 2, 3] = False
    bias = normal(31, "n", "j")[None, :, None]
    bias[0, 1, 0, 2] = -np.inf
    options = {"scale": -0.3, "softcap": 1.5, "mask": mask}
    return {"bias": bias}, options | {"dropout_rate": 0.25, "dropout_keep": keep}


# Shaw


def shaw(offset=0, *, values):
    """Score and value of equations 3 and 4."""

    def row(table, b, i, j):
        clip = len(table) // 2
        return table[min(max(distance(offset, b, i, j), -clip), clip) + clip]

    def score(x, b, n, h, i, j):
        relative = dot(x["q"][b, n, i], row(x["key_table"], b, i, j))
        return plain_score(x, b, n, h, i, j) + relative

    def value(x, b, n, h, i, j):
        return plain_value(x, b, n, h, i, j) + row(x["value_table"], b, i, j)

    return {"score": score, "value": value if values else plain_value}


def shaw_inputs(rows, *, values=True, dtype="F64"):
    tables = {"key_table": normal(41, "r", "d", dtype=dtype, r=rows)}
    if values:
        tables["value_table"] = normal(42, "r", "e", dtype=dtype, r=rows)
    return draw(dtype=dtype) | tables


@pytest.mark.parametrize("offset", OFFSETS.values(), ids=OFFSETS)
def test_shaw_is_its_definition(room, offset):
    rules = shaw(offset, values=True)
    options = {"offset": offset}
    assert_is_defined(room, "shaw_attention", shaw_inputs(5), options, **rules)


@pytest.mark.parametrize("rows", [1, 3, 21])
def test_shaw_without_values_and_any_clip(room, rows):
    inputs = shaw_inputs(rows, values=False)
    assert_is_defined(room, "shaw_attention", inputs, **shaw(values=False))


def test_shaw_takes_attentions_options(room):
    inputs, options = all_options()
    options["offset"] = 1
    inputs = shaw_inputs(5) | inputs
    assert_is_defined(room, "shaw_attention", inputs, options, **shaw(1, values=True))


def test_shaw_in_other_types(room):
    inputs = shaw_inputs(5, dtype="F32")
    rules = shaw(values=True)
    assert_is_defined(room, "shaw_attention", inputs, dtype="F32", **rules)
    assert_rounded_once(room, "shaw_attention", inputs)


def test_what_a_table_holds_for_pairs_that_no_one_sees_counts_for_nothing(room):
    """The future's rows, under a causal mask."""
    inputs = shaw_inputs(5)
    options = {"mask": causal()}
    clean = run(room, "shaw_attention", inputs, **options)
    for name in ("key_table", "value_table"):
        inputs[name][3:] = np.nan
    for got, want in zip(
        run(room, "shaw_attention", inputs, **options), clean, strict=True
    ):
        assert (got == want).all()
    found = gradients(room, "shaw_attention", inputs, *incoming(inputs), **options)
    assert all(np.isfinite(x).all() for x in found.values())
    assert (found["key_table"][3:] == 0).all()
    assert (found["value_table"][3:] == 0).all()


# T5


@cache
def t5_by_decimals(x, side, farthest):
    """The bucket of a length, by its logarithm in 50 digits."""
    near = side // 2
    if x < near:
        return x
    if x >= farthest:
        return side - 1
    # An edge is hit exactly where x^K·near^t = M^t·near^K; a hair lifts it over it.
    hair = mpf(10) ** -40
    step = floor(log(mpf(x) / near) / log(mpf(farthest) / near) * (side - near) + hair)
    return min(near + int(step), side - 1)


def t5_bias(offset=0, *, bidirectional=True, farthest=128):
    def bias(x, b, n, i, j):
        away, buckets = distance(offset, b, i, j), len(x["table"])
        if bidirectional:
            bucket = t5_by_decimals(abs(away), buckets // 2, farthest)
            return x["table"][bucket + (buckets // 2 if away > 0 else 0), n]
        return x["table"][t5_by_decimals(max(-away, 0), buckets, farthest), n]

    return bias


def t5_inputs(rows, dtype="F64"):
    return draw(dtype=dtype) | {"table": normal(43, "r", "n", dtype=dtype, r=rows)}


@pytest.mark.parametrize("offset", OFFSETS.values(), ids=OFFSETS)
@pytest.mark.parametrize(
    "kind",
    [
        {},
        {"bidirectional": False, "max_distance": 5},
        {"bidirectional": True, "max_distance": 3},
    ],
)
def test_t5_is_its_definition(room, offset, kind):
    rules = {"bidirectional": kind.get("bidirectional", True)}
    rules["farthest"] = kind.get("max_distance", 128)
    options = kind | {"offset": offset}
    bias = t5_bias(offset, **rules)
    assert_is_defined(room, "t5_attention", t5_inputs(8), options, bias=bias)


def test_t5_takes_attentions_options(room):
    inputs, options = all_options()
    inputs = t5_inputs(8) | inputs
    assert_is_defined(room, "t5_attention", inputs, options, bias=t5_bias())


def test_t5_in_other_types(room):
    inputs = t5_inputs(8, "F32")
    assert_is_defined(room, "t5_attention", inputs, dtype="F32", bias=t5_bias())
    assert_rounded_once(room, "t5_attention", inputs)


def test_a_row_of_the_table_that_no_pair_uses_has_no_gradient(room):
    inputs = t5_inputs(32)
    found = gradients(room, "t5_attention", inputs, *incoming(inputs))
    used = {0, 1, 2, 3, 17, 18, 19, 20}
    assert {r for r in range(32) if (found["table"][r] != 0).any()} == used


# ALiBi


def alibi_bias(offset=0, slopes=None):
    def bias(x, b, n, i, j):
        slope = x["slopes"][n] if slopes is None else slopes[n]
        return -slope * abs(distance(offset, b, i, j))

    return bias


@pytest.mark.parametrize("offset", OFFSETS.values(), ids=OFFSETS)
def test_alibi_is_its_definition(room, offset):
    inputs = draw() | {"slopes": normal(44, "n")}
    options = {"offset": offset}
    bias = alibi_bias(offset)
    assert_is_defined(room, "alibi_attention", inputs, options, bias=bias)


def test_alibis_own_slopes_are_the_published_ones(room):
    """Of six heads: those of four, and two of eight."""
    slopes = [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]
    assert alibi_slopes(6) == slopes
    bias = alibi_bias(slopes=slopes)
    assert_is_defined(room, "alibi_attention", draw(), bias=bias)


def test_alibi_takes_attentions_options(room):
    inputs, options = all_options()
    inputs = draw() | {"slopes": normal(44, "n")} | inputs
    assert_is_defined(room, "alibi_attention", inputs, options, bias=alibi_bias())


def test_alibi_in_other_types(room):
    inputs = draw(dtype="F32") | {"slopes": normal(44, "n", dtype="F32")}
    assert_is_defined(room, "alibi_attention", inputs, dtype="F32", bias=alibi_bias())
    assert_rounded_once(room, "alibi_attention", inputs)


# All


NAMES = ("shaw_attention", "t5_attention", "alibi_attention")


def inputs_of(name, sizes):
    tables = {
        "shaw_attention": {"key_table": normal(0, "r", "d", r=5, sizes=sizes)},
        "t5_attention": {"table": normal(0, "r", "n", r=8, sizes=sizes)},
        "alibi_attention": {},
    }
    return draw(sizes) | tables[name]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("axes", ["b", "i", "j"])
def test_no_batch_no_queries_or_no_keys(room, name, axes):
    sizes = SIZES | {axes: 0}
    inputs = inputs_of(name, sizes)
    output, lse = run(room, name, inputs)
    assert output.shape == (sizes["b"], N, sizes["i"], sizes["e"])
    assert (output == 0).all()
    assert (lse == -np.inf).all()
    found = gradients(room, name, inputs, *incoming(inputs))
    assert all((x == 0).all() for x in found.values())


@pytest.mark.parametrize("name", NAMES)
def test_an_offset_moves_the_queries_as_longer_queries_do(room, name):
    inputs = inputs_of(name, SIZES | {"i": 5})
    whole = run(room, name, inputs, mask=causal())
    inputs["q"] = inputs["q"][:, :, 3:]
    last = run(room, name, inputs, mask=causal(3), offset=3)
    for got, want in zip(last, whole, strict=True):
        np.testing.assert_allclose(got, want[:, :, 3:], rtol=0, atol=1e-14)


WRONG = {
    "an even table": (
        "shaw_attention",
        {"key_table": np.ones((4, 6))},
        "`key_table` must have rows r = 2c + 1, for the distances −c … c, but has "
        "r = 4",
    ),
    "tables of two lengths": (
        "shaw_attention",
        {"key_table": np.ones((5, 6)), "value_table": np.ones((3, 3))},
        "`value_table` must have rows or rank r = 5 like `key_table`, but has 3 "
        "(key_table: r d = 5 6, value_table: r e = 3 3)",
    ),
    "a table of values for keys": (
        "shaw_attention",
        {"key_table": np.ones((5, 3))},
        "`key_table` must have query/key width d = 6 like `q`, but has 3 "
        "(q: b n i d = 2 6 4 6, key_table: r d = 5 3)",
    ),
    "an odd number of buckets": (
        "t5_attention",
        {"table": np.ones((7, 6))},
        "`table` must have rows an even r ≥ 4 if bidirectional, but has r = 7",
    ),
    "one bucket": (
        "t5_attention",
        {"table": np.ones((1, 6)), "bidirectional": False},
        "`table` must have rows r ≥ 2, but has r = 1",
    ),
    "heads first": (
        "t5_attention",
        {"table": np.ones((6, 32))},
        "`table` must have query heads n = 6 like `q`, but has 32 "
        "(q: b n i d = 2 6 4 6, table: r n = 6 32)",
    ),
    "a distance among the near ones": (
        "t5_attention",
        {"table": np.ones((32, 6)), "max_distance": 8},
        "`max_distance` must be an int above 8, up to which each distance has a "
        "bucket, but is 8",
    ),
    "slopes of key/value heads": (
        "alibi_attention",
        {"slopes": np.ones(3)},
        "`slopes` must have query heads n = 6 like `q`, but has 3 "
        "(q: b n i d = 2 6 4 6, slopes: n = 3)",
    ),
}


@pytest.mark.parametrize(("name", "options", "message"), WRONG.values(), ids=WRONG)
def test_wrong_input_is_refused(room, name, options, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        run(room, name, draw(), **options)


def test_wrong_types_are_refused(room):
    match = "^all inputs must share one dtype, but are q: float64, k: float64, v: "
    with pytest.raises(TypeError, match=match):
        run(room, "alibi_attention", draw(), slopes=np.ones(6, np.float32))
    with pytest.raises(TypeError, match=r"^`key_table` must be a .*, but is a .*None"):
        run(room, "shaw_attention", draw(), key_table=None)

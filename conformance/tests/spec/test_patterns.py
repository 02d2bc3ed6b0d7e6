"""Every pattern is one that einops takes, in letters of the table."""

import re

import numpy as np
import pytest
from einops import einsum, rearrange

from attnref.spec import AXES, STEPS, patterns

PATTERNS = {
    name: value
    for name, value in vars(patterns).items()
    if name.isupper() and isinstance(value, str)
}
CONTRACTIONS = {name: p for name, p in PATTERNS.items() if "," in p}
WILD = {"GROUP": {"x"}, "UNGROUP": {"x"}, "PAIRS": {"two", "t"}}
"""Letters of no axis: a rearrangement of heads is the same for any width, which it
calls x; and a width is cut into t pairs."""

SIZES = dict(zip(AXES, (2, 15, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37), strict=True))


def shape(axes):
    return tuple(SIZES[axis] for axis in axes.split())


def test_the_patterns_are_found():
    assert {"QUERY", "SCORES", "GROUP", "GRAD_VALUE"} <= set(PATTERNS)


@pytest.mark.parametrize("name", PATTERNS)
def test_letters_are_of_the_table(name):
    letters = set(re.findall(r"\w+", PATTERNS[name]))
    assert letters - WILD.get(name, set()) <= set(AXES)


@pytest.mark.parametrize("name", CONTRACTIONS)
def test_a_contraction_gives_the_shape_that_it_says(name):
    operands, result = CONTRACTIONS[name].split(" -> ")
    arrays = [np.ones(shape(axes)) for axes in operands.split(", ")]
    assert einsum(*arrays, CONTRACTIONS[name]).shape == shape(result)


@pytest.mark.parametrize(
    ("gradient", "forward", "operand"),
    [
        ("GRAD_QUERY", "SCORES", 0),
        ("GRAD_KEY", "SCORES", 1),
        ("GRAD_WEIGHTS", "ATTEND", 0),
        ("GRAD_VALUE", "ATTEND", 1),
        ("GRAD_PROJECT", "PROJECT", 0),
        ("GRAD_PROJECT_WEIGHTS", "PROJECT", 1),
        ("GRAD_MERGE", "MERGE", 0),
        ("GRAD_MERGE_WEIGHTS", "MERGE", 1),
        ("GRAD_COMPRESS", "COMPRESS", 0),
        ("GRAD_COMPRESS_WEIGHTS", "COMPRESS", 1),
        ("GRAD_HIDDEN_QUERY", "HIDDEN_QUERY", 0),
        ("GRAD_HIDDEN_QUERY_WEIGHTS", "HIDDEN_QUERY", 1),
        ("GRAD_HIDDEN_KEY", "HIDDEN_KEY", 0),
        ("GRAD_HIDDEN_KEY_WEIGHTS", "HIDDEN_KEY", 1),
        ("GRAD_ADDITIVE_HIDDEN", "ADDITIVE_SCORES", 0),
        ("GRAD_ADDITIVE_WEIGHTS", "ADDITIVE_SCORES", 1),
        ("GRAD_RELATIVE_QUERY", "RELATIVE_SCORES", 0),
        ("GRAD_RELATIVE_KEY", "RELATIVE_SCORES", 1),
        ("GRAD_RELATIVE_WEIGHTS", "RELATIVE_ATTEND", 0),
        ("GRAD_RELATIVE_VALUE", "RELATIVE_ATTEND", 1),
    ],
)
def test_a_gradient_is_its_product_with_an_operand_and_the_result_exchanged(
    gradient, forward, operand
):
    operands, result = PATTERNS[forward].split(" -> ")
    *pair, given_back = [*operands.split(", "), result]
    replaced, kept = pair[operand], pair[1 - operand]
    taken, given = PATTERNS[gradient].split(" -> ")
    assert set(taken.split(", ")) == {given_back, kept}
    assert given == replaced


def test_grouped_heads_lie_one_group_after_the_other():
    heads = np.arange(6).reshape(1, 6, 1, 1)
    grouped = rearrange(heads, patterns.GROUP, h=2)
    assert grouped.reshape(2, 3).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert (rearrange(grouped, patterns.UNGROUP) == heads).all()


def test_the_steps_are_named_in_the_order_of_the_spec():
    assert [step.name for step in STEPS] == [
        "project",
        "scores",
        "scale",
        "softcap",
        "bias",
        "mask",
        "softmax",
        "dropout",
        "attend",
        "merge",
    ]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_a_step_says_all_that_is_read_of_it(step):
    assert step.pattern in PATTERNS.values()
    assert step.formula
    assert step.meaning.endswith(".")
    assert step.formula.count("{") == step.formula.count("}")

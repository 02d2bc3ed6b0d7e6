"""Converters of weights that make a known mistake fail, and the mistake is named.

Each takes the right arrays of a library apart wrongly.  What comes is run through the
NumPy room and judged on multi-head cases, as an implementation of one's own is.
"""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from einops import rearrange, repeat

from attncheck import assert_multi_head_attention
from attncheck.judging import Folder, Judge
from attncheck.subject import Subject
from attncheck.suite import build
from attncheck.suite.multihead import BIASES, DRAW, RECIPES, SELF
from attncheck.suite.recipe import Recipe
from attncheck.suite.shapes import UNGROUPED
from attncheck.variants import BY_NAME, CONVERTERS
from attncheck.worker import run_case
from attnref.numpy import MultiHeadParams, multi_head_attention
from attnref.spec import causal, weights
from attnref.spec.weights import TORCH, dump, load, ungrouped

MODEL = UNGROUPED._replace(c=36, m=36)
"""Three heads of width 12, and a model as wide as all of them, as torch has it."""

ONE_EACH = (
    Recipe("self", (), "", MODEL, arrays=(*SELF, *BIASES), draw=DRAW, softcap=1.0),
    Recipe("no-biases", (), "", MODEL._replace(b=3), arrays=SELF, draw=DRAW),
)
"""A key/value head for each query head, as most libraries want it."""


def subject(convert):
    """The NumPy room on parameters that went through a converter."""

    def multi_head(params, x, context=None, **options):
        params = MultiHeadParams(**convert(params))
        return multi_head_attention(params, x, context, **options)

    return Subject(
        call=None,
        framework="numpy",
        name="converted",
        accepts=frozenset(),
        multi_head=multi_head,
        profile="strict",
    )


def judged(convert, recipes):
    """Statuses of the cases, and the names of what explains the failures."""
    cases = [case for recipe in recipes for case in build(recipe, ["F32"])]
    one = subject(convert)
    results = {case.id: run_case(one, case, one.describe()) for case in cases}
    run = Judge().run(Folder.of(Path(), cases, results))
    return [v.status for v in run.verdicts], run.diagnoses


def heads_of(params):
    (_, n, _), (_, h, _) = params["w_q"].shape, params["w_k"].shape
    return {"heads": n, "kv_heads": h}


def through(layout, back=None, change=lambda state: state):
    """Arrays as a layout has them, read with another."""
    back = back or layout
    return lambda params: load(back, change(dump(layout, params)), **heads_of(params))


# ------------------------------------------------------------------------- the mistakes


def tiled(params):
    """Grouped heads for a library that has none, in the order (g h)."""
    patterns = {
        "w_k": "m h d -> m (g h) d",
        "w_v": "m h e -> m (g h) e",
        "b_k": "h d -> (g h) d",
        "b_v": "h e -> (g h) e",
    }
    g = params["w_q"].shape[1] // params["w_k"].shape[1]
    return {
        name: repeat(array, patterns[name], g=g) if name in patterns else array
        for name, array in params.items()
    }


def with_axes(layout, parameter, axes):
    """The layout with other axes of one parameter."""
    entry = layout.entries[parameter]._replace(axes=axes)
    return replace(layout, entries={**layout.entries, parameter: entry})


def with_order(layout, *first):
    """The layout with some parameters before the others, which moves packed ones."""
    rest = [name for name in layout.entries if name not in first]
    entries = {name: layout.entries[name] for name in (*first, *rest)}
    return replace(layout, entries=entries)


def changed(pattern, *names, **sizes):
    """What rearranges the arrays of some names, where there are such."""
    return lambda state: (
        state
        | {
            name: rearrange(state[name], pattern, **sizes)
            for name in names
            if name in state
        }
    )


PACKED = ("in_proj_weight", "in_proj_bias")
HAIKU = [f"{layer}/{kind}" for layer in ("query", "key", "value") for kind in "wb"]

MISTAKES = {
    "heads-tiled": (tiled, RECIPES),
    "output-weight-transposed": (
        through(TORCH, with_axes(TORCH, "w_o", "(n e) c")),
        ONE_EACH,
    ),
    "packed-by-head": (
        through(TORCH, change=changed("(n p d) ... -> (p n d) ...", *PACKED, p=3, n=3)),
        ONE_EACH,
    ),
    "queries-and-keys-swapped": (
        through(TORCH, with_order(TORCH, "w_k", "w_q", "b_k", "b_q")),
        ONE_EACH,
    ),
    "packed-biases-reordered": (through(TORCH, with_order(TORCH, "b_k")), ONE_EACH),
    "heads-interleaved": (
        through(weights.HAIKU, change=changed("... (d n) -> ... (n d)", *HAIKU, n=3)),
        ONE_EACH,
    ),
    "keys-and-values-swapped": (
        through(TORCH, with_order(TORCH, "w_q", "w_v", "b_q", "b_v")),
        ONE_EACH,
    ),
}
"""Name of the mistake → a converter that makes it, and cases that can show it."""


@pytest.mark.parametrize("name", MISTAKES)
def test_a_wrong_converter_fails_and_its_mistake_is_named(name):
    statuses, diagnoses = judged(*MISTAKES[name])
    assert "fail" in statuses
    assert [diagnosis.names for diagnosis in diagnoses] == [(name,)]
    (cause,) = diagnoses[0].causes
    assert not cause.alike


def test_every_mistake_of_a_converter_that_a_diagnosis_knows_is_planted():
    assert {variant.name for variant in CONVERTERS} <= set(MISTAKES)
    for variant in CONVERTERS:
        assert variant.sentence.endswith(".")
        assert BY_NAME[variant.name] is variant


RIGHT = {
    "ungrouped": (ungrouped, RECIPES),
    "torch": (through(TORCH), ONE_EACH),
    "haiku": (through(weights.HAIKU), ONE_EACH),
    "keras": (through(weights.KERAS), ONE_EACH),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_converter_passes(name):
    statuses, _ = judged(*RIGHT[name])
    assert set(statuses) == {"pass"}


# --------------------------------------------------------------- in a test of one's own


def layer():
    """Input, context and parameters of a layer with grouped heads."""
    rng = np.random.default_rng(0)
    sizes = {"c": 10, "m": 14, "n": 4, "h": 2, "d": 6, "e": 5}
    params = {
        name: rng.standard_normal([sizes[x] for x in axes.split()], np.float32) / 3
        for name, axes in weights.PARAMETERS.items()
    }
    x, context = (
        rng.standard_normal((2, i, c), np.float32) for i, c in ((5, 10), (7, 14))
    )
    return params, x, context


def run(params, x, context=None, **options):
    return multi_head_attention(MultiHeadParams(**params), x, context, **options)


def test_a_right_layer_passes_in_a_test_of_ones_own():
    params, x, context = layer()
    for options in ({}, {"mask": causal(2)}, {"softcap": 1.0, "scale": 0.3}):
        got = run(params, x, context, **options)
        assert_multi_head_attention(
            got, params, x, context, **options, profile="strict"
        )
    mask = np.arange(7) < np.array([[7], [4]])
    got = run(params, x, context, mask=mask[:, None, None])
    assert_multi_head_attention(got, params, x, context, mask=mask[:, None, None])
    del params["b_o"]
    assert_multi_head_attention(
        run(params, x, context), params | {"b_o": None}, x, context
    )


def test_a_wrong_layer_fails_with_the_element_and_the_mistake():
    params, x, context = layer()
    with pytest.raises(AssertionError) as caught:
        assert_multi_head_attention(run(tiled(params), x, context), params, x, context)
    said = str(caught.value)
    assert re.search(r"output\[b=\d, i=\d, c=\d\]: got .* the budget", said)
    assert "the budget there: " in said
    assert "n mod h instead of n // g. [heads-tiled, onnx/onnx#7274]" in said


def test_a_mistake_that_is_not_known_is_said_to_be_unknown():
    params, x, context = layer()
    got = run(params | {"w_q": np.sin(params["w_q"])}, x, context)
    with pytest.raises(AssertionError, match="nothing known explains"):
        assert_multi_head_attention(got, params, x, context)


def test_what_is_no_layer_is_refused():
    params, x, context = layer()
    got = run(params, x, context)
    with pytest.raises(AssertionError, match=r"must be float32 \(2, 5, 10\)"):
        assert_multi_head_attention(got[:, :4], params, x, context)
    with pytest.raises(ValueError, match="`w_k` must have model width c = 10 like `x`"):
        assert_multi_head_attention(got, params, x)
    with pytest.raises(TypeError, match="'w_q'"):
        assert_multi_head_attention(got, {}, x)
    with pytest.raises(TypeError, match="must share one dtype"):
        assert_multi_head_attention(got, params, x, context.astype(np.float64))
    with pytest.raises(ValueError, match="`mask` must have 4 axes"):
        assert_multi_head_attention(got, params, x, context, mask=np.ones((2, 7), bool))
    with pytest.raises(ValueError, match="profile is one of"):
        assert_multi_head_attention(got, params, x, context, profile="exact")

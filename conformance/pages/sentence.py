"""The ten tokens that the pages show, and what a real model does with them."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np

from attncheck import minilm
from attncheck.case import DTYPES, FORWARD, Case
from attncheck.definition import Expected, expected

SENTENCE = "The cat slept because it was very tired"
TOKENS = (
    "[CLS]",
    "the",
    "cat",
    "slept",
    "because",
    "it",
    "was",
    "very",
    "tired",
    "[SEP]",
)
LAYER = 5
"""The last one, counted from 0."""

CAUSAL = np.tri(len(TOKENS), dtype=bool)[None, None]
"""`1 1 i j`: no token sees what comes after it."""

HEADS = {"pronoun": (5, 11), "next": (1, 8), "previous": (0, 2), "first": (2, 9)}
"""A name → layer and head of what the pages draw, each for what it looks at."""


class Layer(NamedTuple):
    """What the attention of one layer is given."""

    params: Mapping[str, np.ndarray]
    x: np.ndarray
    """`b i c`, float32."""


@cache
def layers() -> list[Layer]:
    """The layers, around exact attention."""
    found = []

    def record(params, x, mask):
        found.append(Layer(params, x))
        return minilm.exact_attention(params, x, mask)

    minilm.encode(record, minilm.tokenise([SENTENCE]))
    return found


def heads(layer: int) -> dict[str, np.ndarray]:
    """q, k and v of a layer, `b n i d`, float64."""
    given = layers()[layer]
    return minilm.project(given.params, given.x)


def attention_case(dtype: str) -> Case:
    """The causal attention of the last layer, gradients included."""
    arrays = {n: a.astype(DTYPES[dtype]) for n, a in heads(LAYER).items()}
    rng = np.random.default_rng(0)
    d_out = rng.standard_normal(arrays["q"].shape).astype(DTYPES[dtype])
    return Case(
        id=f"sentence/{dtype}",
        clauses=("causal", "softmax", "attend"),
        why="The pages show what real attention is, and how exact it is.",
        dtype=dtype,
        inputs={**arrays, "mask": CAUSAL, "d_out": d_out},
        wants=(*FORWARD, "dq", "dk", "dv"),
    )


def multi_head_case(dtype: str) -> Case:
    """The last layer's attention, projections and merge included."""
    given = layers()[LAYER]
    arrays = {"x": given.x, **given.params}
    return Case(
        id=f"sentence/multi-head/{dtype}",
        clauses=("project", "self-attention", "merge"),
        why="The pages show the whole of it, with trained weights.",
        dtype=dtype,
        inputs={
            name: np.ascontiguousarray(array).astype(DTYPES[dtype])
            for name, array in arrays.items()
        },
        wants=("output",),
    )


def results_of(layer: int, *, is_causal: bool = False) -> Expected:
    """The definition's results for a layer, `b n i j`."""
    arrays = heads(layer)
    case = replace(attention_case("F64"), inputs=arrays, wants=FORWARD)
    if is_causal:
        case = replace(case, inputs={**arrays, "mask": CAUSAL})
    return expected(case)

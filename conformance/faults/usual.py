"""The usual test: one square shape, as many key/value heads as query heads, normal
numbers, once plain and once causal."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from attncheck.case import Case
from attncheck.operations import OPERATIONS
from attncheck.suite import build
from attncheck.suite.multihead import BIASES, DRAW, SELF
from attncheck.suite.recipe import Recipe, upper_left
from attncheck.suite.shapes import Shape
from attncheck.suite.unlike import LATENT_WEIGHTS
from attncheck.suite.values import weight

SQUARE = Shape(b=2, h=4, g=1, i=128, j=128, d=64, e=64, c=256, m=256)
SMALLER = Shape(b=2, h=4, g=1, i=32, j=32, d=16, e=16, c=64, m=64)
"""Of the other operations: some of them have a key for each pair of positions."""

QKV = ("q", "k", "v")
GIVEN = (*QKV, "d_out")
WHY = "The usual test: one square shape."

RECIPES = (
    Recipe("usual", (), WHY, SQUARE, arrays=GIVEN),
    Recipe("usual-layer", (), WHY, SQUARE, arrays=(*SELF, *BIASES), draw=DRAW),
    Recipe("usual-rotary", (), WHY, SMALLER, arrays=GIVEN, op="rotary_attention"),
    Recipe("usual-alibi", (), WHY, SMALLER, arrays=GIVEN, op="alibi_attention"),
    Recipe(
        "usual-t5",
        (),
        WHY,
        SMALLER,
        arrays=(*GIVEN, "table"),
        own_sizes={"r": 32},
        op="t5_attention",
    ),
    Recipe(
        "usual-shaw",
        (),
        WHY,
        SMALLER,
        arrays=(*GIVEN, "key_table", "value_table"),
        own_sizes={"r": 33},
        op="shaw_attention",
    ),
    Recipe(
        "usual-sinks",
        (),
        WHY,
        SMALLER,
        arrays=(*GIVEN, "sinks"),
        op="sink_attention",
    ),
    Recipe(
        "usual-cosine",
        (),
        WHY,
        SMALLER,
        arrays=(*GIVEN, "temperature"),
        op="cosine_attention",
    ),
    Recipe(
        "usual-additive",
        (),
        WHY,
        SMALLER,
        arrays=(*GIVEN, "w_q", "w_k", "w_s"),
        draw={"w_q": weight, "w_k": weight},
        own_sizes={"a": 16},
        op="additive_attention",
    ),
    Recipe(
        "usual-latent",
        (),
        WHY,
        SMALLER,
        arrays=("x", "d_out", *LATENT_WEIGHTS),
        draw=dict.fromkeys(LATENT_WEIGHTS, weight),
        own_sizes={"r": 32, "p": 8},
        op="latent_attention",
    ),
    Recipe("usual-linear", (), WHY, SMALLER, arrays=QKV, op="linear_attention"),
    Recipe(
        "usual-performer",
        (),
        WHY,
        SMALLER,
        arrays=(*QKV, "draws"),
        own_sizes={"r": 64},
        op="performer_attention",
    ),
    Recipe(
        "usual-linformer",
        (),
        WHY,
        SMALLER,
        arrays=(*QKV, "w_e", "w_f"),
        draw={"w_e": weight, "w_f": weight},
        own_sizes={"r": 8},
        op="linformer_attention",
    ),
    Recipe(
        "usual-nystrom",
        (),
        WHY,
        SMALLER,
        arrays=QKV,
        settings={"landmarks": 8},
        op="nystrom_attention",
    ),
)

NEVER = ("linformer_attention", "nystrom_attention")
"""What is never causal."""


def cases(dtypes: Sequence[str]) -> Iterator[Case]:
    """Every operation's, in each storage type."""
    for recipe in RECIPES:
        yield from build(recipe, dtypes)
        if recipe.op not in NEVER:
            yield from build(_causal(recipe), dtypes)


def _causal(recipe: Recipe) -> Recipe:
    name = f"{recipe.name}-causal"
    if recipe.op and "causal" in OPERATIONS[recipe.op].settings:
        return replace(recipe, name=name, settings={"causal": True})
    return replace(recipe, name=name, causal=upper_left)

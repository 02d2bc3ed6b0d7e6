"""Cases about sizes that kernels are made for: tiles, widths, and very long inputs.

All are left to the full set: every size is one more to compile for.
"""

from dataclasses import replace

from attncheck.suite.recipe import WITH_LSE, Recipe, lengths, lower_right
from attncheck.suite.shapes import LENGTHS, Shape
from attncheck.suite.values import around
from attnref.spec import padding


def _tile(place: int) -> Shape:
    """A length around a tile's of queries, and another one of keys."""
    keys = LENGTHS[(place + 4) % len(LENGTHS)]
    return Shape(b=1, h=1, g=2, i=LENGTHS[place], j=keys, d=16, e=8)


def _width(d: int) -> Shape:
    return Shape(b=1, h=2, g=2, i=5, j=19, d=d, e=d)


def _long(i: int, j: int) -> Shape:
    return Shape(b=1, h=1, g=2, i=i, j=j, d=64, e=64)


def _plain(shape: Shape) -> Recipe:
    return Recipe(
        f"tile-{shape.i}-{shape.j}",
        ("scores", "softmax", "attend", "lse", "dq", "dk", "dv"),
        f"The last tile of {shape.i} queries or of {shape.j} keys is dropped, or read "
        "past its end.",
        shape,
        arrays=WITH_LSE,
    )


def _causal(shape: Shape) -> Recipe:
    return Recipe(
        f"tile-causal-{shape.i}-{shape.j}",
        ("causal-offset", "empty-row-output", "dq", "dk", "dv"),
        f"Of {shape.i} times {shape.j} scores, a tile is skipped that the diagonal "
        "enters, or one is visited as if it were all visible.",
        shape,
        causal=lower_right,
    )


def _biased(shape: Shape) -> Recipe:
    return Recipe(
        f"tile-bias-{shape.i}-{shape.j}",
        ("bias", "softcap", "padding", "dropout", "dbias"),
        f"Bias, mask or dropout of {shape.i} queries and {shape.j} keys is loaded from "
        "the tile beside.",
        shape,
        bias="bnij",
        softcap=4.0,
        mask=lambda sizes: padding(lengths(sizes)),
        keep="bnij",
        dropout_rate=0.25,
    )


def _wide(d: int) -> Recipe:
    return Recipe(
        f"width-{d}",
        ("scores", "scale-default", "attend", "dq", "dk", "dv"),
        f"The query is scaled in its storage type, or a part of {d} channels is "
        "dropped.",
        _width(d),
        draw={"q": around(0, 4)},
    )


SHAPES = tuple(_tile(place) for place in range(len(LENGTHS)))

LONG_RECIPES = (
    Recipe(
        "keys-512",
        ("attend", "float32-inside", "lse"),
        "The sum over 512 keys is kept in 16 bits.",
        _long(64, 512),
        arrays=WITH_LSE,
    ),
    Recipe(
        "keys-2048",
        ("attend", "float32-inside", "dq"),
        "The gradient of the queries is added up in 16 bits, tile by tile.",
        _long(16, 2048),
    ),
    Recipe(
        "keys-2048-around-8",
        ("attend", "rounded-once", "float32-inside", "dq", "dk"),
        "The gradients of the weights, large and nearly equal, are rounded to 16 bits.",
        _long(16, 2048),
        draw={"v": around(8), "d_out": around(8)},
    ),
    Recipe(
        "keys-2048-causal",
        ("causal-offset", "softmax"),
        "The tiles before the diagonal are counted in a type that is too narrow, or "
        "skipped.",
        _long(16, 2048),
        causal=lower_right,
    ),
    Recipe(
        "keys-2048-padding",
        ("padding", "softmax"),
        "The first tile that holds padding ends the loop over keys one tile early.",
        _long(16, 2048),
        mask=lambda sizes: padding(lengths(sizes)),
    ),
    Recipe(
        "queries-512",
        ("dk", "dv", "group-gradients", "float32-inside"),
        "The gradients of keys and values are added up in 16 bits over 512 queries.",
        _long(512, 16),
        arrays=WITH_LSE,
    ),
    Recipe(
        "one-key",
        ("softmax", "lse", "dv", "dq"),
        "The sum over a single key skips its normalisation, or its gradients at query "
        "and key are not 0.",
        Shape(b=2, h=3, g=2, i=5, j=1, d=11, e=13),
        arrays=WITH_LSE,
    ),
    Recipe(
        "one-of-each",
        ("scores", "softmax", "attend", "value-width"),
        "Axes of size 1 are squeezed out of a shape.",
        Shape(b=1, h=1, g=1, i=1, j=1, d=1, e=1),
        arrays=WITH_LSE,
    ),
)

RECIPES = tuple(
    replace(recipe, smoke=False, resizable=False)
    for recipe in (
        *(make(shape) for make in (_plain, _causal, _biased) for shape in SHAPES),
        *map(_wide, (32, 64, 80, 96, 128)),
        *LONG_RECIPES,
    )
)

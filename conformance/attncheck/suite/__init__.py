"""The cases: described data that shows the mistakes people make.

Each recipe is written down once, in the module of its subject.  The smoke set has every
recipe once; the full set has it with other numbers and other shapes too.
"""

from collections.abc import Iterator, Sequence

from attncheck import laws
from attncheck.case import DTYPES, Case
from attncheck.suite import (
    approximate,
    axiom,
    masks,
    memory,
    multihead,
    relative,
    rotary,
    scores,
    sizes,
    softmax,
    unlike,
)
from attncheck.suite.build import build
from attncheck.suite.recipe import Recipe
from attncheck.suite.shapes import (
    AROUND_A_TILE,
    COINCIDENCE,
    LENGTHS,
    LONG,
    LONGEST,
    TALL,
    of_length,
)

RECIPES: tuple[Recipe, ...] = (
    *scores.RECIPES,
    *masks.RECIPES,
    *axiom.RECIPES,
    *softmax.RECIPES,
    *multihead.RECIPES,
    *memory.RECIPES,
    *sizes.RECIPES,
)
"""Of attention and of multi-head attention."""

OPERATION_RECIPES: tuple[Recipe, ...] = (
    *rotary.RECIPES,
    *relative.RECIPES,
    *unlike.RECIPES,
    *approximate.RECIPES,
)
"""Of the other operations."""

SETS = ("smoke", "full")

SEEDS = (1, 2)
"""Beside 0, in the full set."""


def cases(set_name: str = "smoke", dtypes: Sequence[str] = tuple(DTYPES)) -> list[Case]:
    """The cases of attention and multi-head attention, with stable, unique ids.

    An id is `recipe/dtype`, or `recipe@variant/dtype` in the full set; what a law
    derives from a case has `law-name/` before it.  The same id but for the dtype has
    the same numbers, rounded.

    Raises:
        ValueError: an unknown set or storage type.
    """
    _check(set_name, dtypes)
    is_full = set_name == "full"
    smoke = _smoke(RECIPES, dtypes)
    related = laws.derived(smoke, everywhere=is_full)
    return [*smoke, *related, *(_only_full(RECIPES, dtypes) if is_full else ())]


def operation_cases(
    set_name: str = "smoke", dtypes: Sequence[str] = tuple(DTYPES)
) -> list[Case]:
    """The cases of all other operations, likewise."""
    _check(set_name, dtypes)
    more = _only_full(OPERATION_RECIPES, dtypes) if set_name == "full" else ()
    return [*_smoke(OPERATION_RECIPES, dtypes), *more]


def _check(set_name: str, dtypes: Sequence[str]) -> None:
    if set_name not in SETS:
        raise ValueError(f"no set {set_name!r}; there are {', '.join(SETS)}")
    if unknown := set(dtypes) - set(DTYPES):
        raise ValueError(f"no storage type {unknown}; there are {', '.join(DTYPES)}")


def _smoke(recipes: Sequence[Recipe], dtypes: Sequence[str]) -> list[Case]:
    return [case for one in recipes if one.smoke for case in build(one, dtypes)]


def _only_full(recipes: Sequence[Recipe], dtypes: Sequence[str]) -> Iterator[Case]:
    """What the full set has beside the smoke set."""
    for place, recipe in enumerate(recipes):
        if not recipe.smoke:
            yield from build(recipe, dtypes)
        for variant in variants(recipe, place):
            yield from build(recipe, dtypes, **variant)


def by_clause(cases: Sequence[Case]) -> dict[str, list[Case]]:
    """The cases of every clause that has some, in the order of the cases."""
    table: dict[str, list[Case]] = {}
    for case in cases:
        for clause in case.clauses:
            table.setdefault(clause, []).append(case)
    return table


def variants(recipe: Recipe, place: int) -> Iterator[dict]:
    """Other numbers, other shapes, a length around each tile's, and a long one.

    Of the three lengths around a tile's a recipe of attention has one, by its place:
    three that follow each other, which mostly ask for one clause, have all.  A recipe
    of another operation, which is attention but for a step, has one of all lengths.
    """
    for seed in SEEDS:
        yield {"seed": seed, "tag": f"seed{seed}"}
    if not recipe.resizable:
        return
    model = {"c": recipe.shape.c, "m": recipe.shape.m}
    shapes = {"coincidence": COINCIDENCE}
    if not recipe.is_self_attention:
        # Of another operation's, the pairs of components have to come out even.
        shapes["tall"] = TALL._replace(d=12) if recipe.op else TALL
    step = len(LENGTHS) if recipe.op else AROUND_A_TILE
    for length in LENGTHS[place % step :: step]:
        square = recipe.is_self_attention
        shapes[f"j{length}"] = of_length(length, square=square)
    if recipe.shape == LONG:
        shapes |= {f"j{length}": of_length(length) for length in LONGEST}
    for tag, shape in shapes.items():
        yield {"shape": shape._replace(**model), "tag": tag}

"""The cases: described data that shows the mistakes people make.

Each recipe is written down once, in the module of its subject.  The smoke set has every
recipe once; the full set has it with other numbers and other shapes too.
"""

from collections.abc import Iterator, Sequence

from attncheck import laws
from attncheck.case import DTYPES, Case
from attncheck.suite import axiom, masks, memory, multihead, scores, sizes, softmax
from attncheck.suite.build import build
from attncheck.suite.recipe import Recipe
from attncheck.suite.shapes import (
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

SETS = ("smoke", "full")

SEEDS = (1, 2)
"""Beside 0, in the full set."""


def cases(set_name: str = "smoke", dtypes: Sequence[str] = tuple(DTYPES)) -> list[Case]:
    """The cases of a set in the given storage types, with stable, unique ids.

    An id is `recipe/dtype`, or `recipe@variant/dtype` in the full set; what a law
    derives from a case has `law-name/` before it.  The same id but for the dtype has
    the same numbers, rounded.

    Raises:
        ValueError: an unknown set or storage type.
    """
    if set_name not in SETS:
        raise ValueError(f"no set {set_name!r}; there are {', '.join(SETS)}")
    if unknown := set(dtypes) - set(DTYPES):
        raise ValueError(f"no storage type {unknown}; there are {', '.join(DTYPES)}")
    is_full = set_name == "full"
    smoke = [c for recipe in RECIPES if recipe.smoke for c in build(recipe, dtypes)]
    related = laws.derived(smoke, everywhere=is_full)
    return [*smoke, *related, *(_only_full(dtypes) if is_full else ())]


def _only_full(dtypes: Sequence[str]) -> Iterator[Case]:
    """What the full set has beside the smoke set."""
    for recipe in RECIPES:
        if not recipe.smoke:
            yield from build(recipe, dtypes)
        for variant in variants(recipe):
            yield from build(recipe, dtypes, **variant)


def by_clause(cases: Sequence[Case]) -> dict[str, list[Case]]:
    """The cases of every clause that has some, in the order of the cases."""
    table: dict[str, list[Case]] = {}
    for case in cases:
        for clause in case.clauses:
            table.setdefault(clause, []).append(case)
    return table


def variants(recipe: Recipe) -> Iterator[dict]:
    """Other numbers, other shapes, lengths around a tile's, and a long one."""
    for seed in SEEDS:
        yield {"seed": seed, "tag": f"seed{seed}"}
    if not recipe.resizable:
        return
    model = {"c": recipe.shape.c, "m": recipe.shape.m}
    shapes = {"coincidence": COINCIDENCE}
    if not recipe.is_self_attention:
        shapes["tall"] = TALL
    for length in LENGTHS:
        square = recipe.is_self_attention
        shapes[f"j{length}"] = of_length(length, square=square)
    if recipe.shape == LONG:
        shapes |= {f"j{length}": of_length(length) for length in LONGEST}
    for tag, shape in shapes.items():
        yield {"shape": shape._replace(**model), "tag": tag}

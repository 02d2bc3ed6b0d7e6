"""The same cases in other shapes, for a subject that does not take every shape.

A function without grouped heads, or whose values are as wide as its keys, would be
asked next to nothing otherwise: most cases have shapes of which all axes differ.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from attncheck import laws
from attncheck.case import DTYPES, Case
from attncheck.suite import RECIPES, variants
from attncheck.suite.build import build
from attncheck.suite.recipe import Recipe
from attncheck.suite.shapes import Shape

FORWARD_SET = "forward"
"""The set of what is too slow for another: the smoke set's outputs, in float32."""

FITTED, TINY = "fitted", "tiny"
"""What the ids of such cases have after the @."""

OF_GROUPS = ("head-order", "multi-query", "blocked-for-one-head", "group-gradients")
OF_WIDTH = ("value-width",)
OF_AXES = ("no-queries", "no-keys")
"""Clauses that say nothing of heads alone, of one width, of lengths made up."""


@dataclass(frozen=True)
class Takes:
    """The shapes that a subject takes."""

    groups: bool = True
    """Several query heads to a key/value head."""
    width: bool = True
    """Values of another width than the keys."""
    multiple: int = 1
    """Of which both lengths must be a multiple."""

    def nearest(self, shape: Shape) -> Shape:
        """The shape, or the nearest that is taken."""
        b, h, g, i, j, d, e, c, m = shape
        if not self.groups:
            h, g = h * g, 1
        i, j = self._lengths(i, j)
        return Shape(b, h, g, i, j, d, e if self.width else d, c, m)

    def _lengths(self, i: int, j: int) -> tuple[int, int]:
        """Multiples; where one was longer than the other, it stays so."""
        rounded = [-(-size // self.multiple) * self.multiple for size in (i, j)]
        if i != j and rounded[0] == rounded[1] and min(i, j):
            rounded[int(j > i)] += self.multiple
        return rounded[0], rounded[1]


def cases_for(
    takes: Takes, set_name: str = "smoke", dtypes: Sequence[str] = tuple(DTYPES)
) -> list[Case]:
    """The cases of a set, each in the nearest shape that is taken.

    What a changed shape can no longer show is no clause of the case; a case of which
    no clause is left stays as it was, and is not applicable.  Beside them, the cases
    in float32 as small as they get: what fails there is shown.
    """
    if set_name == FORWARD_SET:
        return list(_forward(takes))
    smoke = [
        case
        for recipe in RECIPES
        if recipe.smoke or set_name == "full"
        for case in _fitted(recipe, takes, dtypes)
    ]
    related = laws.derived(smoke, everywhere=set_name == "full")
    small = [case for recipe in RECIPES for case in _tiny(recipe, takes)]
    more = _variants(takes, dtypes) if set_name == "full" else ()
    return [*smoke, *related, *small, *more]


def _forward(takes: Takes) -> Iterator[Case]:
    for recipe in RECIPES:
        if recipe.smoke and not recipe.is_multi_head:
            for case in _fitted(recipe, takes, ["F32"]):
                kept = case.inputs.keys() - {"d_out", "d_lse"}
                inputs = {n: x for n, x in case.inputs.items() if n in kept}
                strides = {n: x for n, x in case.strides.items() if n in kept}
                wants = tuple(n for n in case.wants if n in ("output", "lse"))
                if wants:
                    yield replace(case, inputs=inputs, strides=strides, wants=wants)


def _variants(takes: Takes, dtypes: Sequence[str]) -> Iterator[Case]:
    """What the full set has beside, in shapes that are taken."""
    seen: set[tuple] = set()
    for place, recipe in enumerate(RECIPES):
        for variant in variants(recipe, place):
            shape = variant.get("shape", recipe.shape)
            tag = variant["tag"]
            if (
                key := (recipe.name, takes.nearest(shape), variant.get("seed"))
            ) in seen:
                continue
            seen.add(key)
            given = {"seed": variant.get("seed", 0), "tag": tag}
            yield from _fitted(replace(recipe, shape=shape), takes, dtypes, **given)


def _fitted(
    recipe: Recipe, takes: Takes, dtypes: Sequence[str], seed: int = 0, tag: str = ""
) -> list[Case]:
    old, new = recipe.shape, takes.nearest(recipe.shape)
    if old == new or recipe.is_multi_head:
        return build(recipe, dtypes, seed=seed, tag=tag)
    void = {*(OF_GROUPS if old.g != new.g else ())}
    void |= {*(OF_WIDTH if old.e != new.e else ())}
    clauses = tuple(clause for clause in recipe.clauses if clause not in void)
    if not clauses:
        return build(recipe, dtypes, seed=seed, tag=tag)
    tag = f"{tag}-{FITTED}" if tag else FITTED
    changed = replace(recipe, clauses=clauses)
    return build(changed, dtypes, shape=new, seed=seed, tag=tag)


def _tiny(recipe: Recipe, takes: Takes) -> list[Case]:
    """The smallest case of a recipe that can be of another shape."""
    if not recipe.resizable or recipe.is_multi_head:
        return []
    g = 2 if recipe.shape.g > 1 and {*OF_GROUPS} & {*recipe.clauses} else 1
    small = takes.nearest(Shape(b=1, h=g, g=g, i=2, j=3, d=2, e=2))
    found = _fitted(replace(recipe, shape=small), takes, ["F32"], tag=TINY)
    return [replace(case, wants=("output",)) for case in found]

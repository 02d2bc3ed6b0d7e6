"""From a recipe to its cases: numbers drawn once, then rounded to each storage type."""

from collections.abc import Sequence
from functools import reduce

import ml_dtypes
import numpy as np

from attncheck.case import ALL_GRADIENTS, AXES, DTYPES, FORWARD, Case
from attncheck.clauses import CLAUSES, OPERATION_CLAUSES
from attncheck.operations import OPERATIONS
from attncheck.suite.recipe import Arrays, Predicate, Recipe, Sizes
from attncheck.suite.shapes import Shape
from attncheck.suite.values import Source, normal, source, uniform
from attnref.spec import Mask, causal, window

VISIBLE = 0.6
"""How much of a random mask is True."""

_DTYPES_OF = {clause.name: clause.dtypes for clause in (*CLAUSES, *OPERATION_CLAUSES)}


def build(
    recipe: Recipe,
    dtypes: Sequence[str],
    *,
    shape: Shape | None = None,
    seed: int = 0,
    tag: str = "",
) -> list[Case]:
    """The case of a recipe in each storage type, with the same numbers in all.

    Args:
        recipe: what the case is made of.
        dtypes: keys of `DTYPES`.
        shape: the recipe's own by default.
        seed: another one draws other numbers.
        tag: tells the case from others of the recipe; part of its id.
    """
    sizes = (shape or recipe.shape).sizes | dict(recipe.own_sizes)
    numbers = draw(recipe, sizes, seed)
    name = f"{recipe.name}@{tag}" if tag else recipe.name
    return [_case(recipe, name, dtype, numbers, sizes) for dtype in dtypes]


def draw(recipe: Recipe, sizes: Sizes, seed: int) -> Arrays:
    """The arrays of a case, in float64 and bool."""

    def bits(name):
        return source(recipe.name, name, seed)

    def drawn(name, shape):
        return recipe.draw.get(name, normal)(bits(name), shape)

    own = OPERATIONS[recipe.op].axes if recipe.op else {}
    arrays = {
        name: drawn(name, tuple(sizes[axis] for axis in own.get(name) or AXES[name]))
        for name in recipe.arrays
    }
    if recipe.bias is not None:
        arrays["bias"] = drawn("bias", _broadcast(recipe.bias, sizes))
    if recipe.keep is not None:
        share = uniform(bits("dropout_keep"), _broadcast(recipe.keep, sizes))
        arrays["dropout_keep"] = share >= recipe.dropout_rate
    if (mask := _mask(recipe, bits("mask"), sizes)) is not None:
        arrays["mask"] = mask
    if recipe.edit is not None:
        recipe.edit(arrays)
    return arrays


def _case(recipe: Recipe, name: str, dtype: str, numbers: Arrays, sizes: Sizes) -> Case:
    return Case(
        id=f"{name}/{dtype}",
        clauses=tuple(c for c in recipe.clauses if dtype in _DTYPES_OF[c]),
        why=recipe.why,
        dtype=dtype,
        inputs={name: _stored(recipe, name, a, dtype) for name, a in numbers.items()},
        scale=recipe.scale,
        softcap=recipe.softcap,
        dropout_rate=recipe.dropout_rate,
        predicate=_predicate_words(recipe, sizes),
        wants=recipe.wants or _all_that_applies(recipe),
        strides=recipe.strides,
        op=recipe.op,
        settings=recipe.settings,
    )


def _all_that_applies(recipe: Recipe) -> tuple[str, ...]:
    if recipe.is_multi_head and not recipe.op:
        return ("output",)
    given = {*recipe.arrays, *(["bias"] if recipe.bias is not None else [])}
    gradients = tuple(name for name in ALL_GRADIENTS if name[1:] in given)
    forward = tuple(OPERATIONS[recipe.op].returns) if recipe.op else FORWARD
    return forward + (gradients if "d_out" in recipe.arrays else ())


def _stored(recipe: Recipe, name: str, array: np.ndarray, dtype: str) -> np.ndarray:
    """`array` rounded to storage, `d_lse` to the accumulation type."""
    if array.dtype == bool:
        return array
    if name == "d_lse" and dtype != "F64":
        return array.astype(np.float32)
    if recipe.saturates:
        largest = float(ml_dtypes.finfo(DTYPES[dtype]).max)
        array = np.clip(array, -largest, largest)
    # −1e9 becomes −∞ in float16, as it does for everyone who writes it.
    with np.errstate(over="ignore"):
        return array.astype(DTYPES[dtype])


def _mask(recipe: Recipe, bits: Source, sizes: Sizes) -> np.ndarray | None:
    """All masks of the recipe at once, full in its `mask_axes` and 1 elsewhere."""
    shape = _broadcast(recipe.mask_axes, sizes)
    grids = np.ogrid[tuple(slice(size) for size in shape)]
    seen = [_bound(predicate)(*grids) for predicate in _predicates(recipe, sizes)]
    if recipe.random_mask:
        seen.append(uniform(bits, shape) < VISIBLE)
    if not seen:
        return None
    return np.array(np.broadcast_to(reduce(np.logical_and, seen), shape))


def _predicates(recipe: Recipe, sizes: Sizes) -> list[Predicate]:
    found: list[Predicate] = []
    if recipe.causal is not None:
        found.append(causal(recipe.causal(sizes)))
    if recipe.window is not None:
        found.append(window(*recipe.window))
    if recipe.mask is not None:
        found.append(recipe.mask(sizes))
    return found


def _bound(predicate: Predicate) -> Predicate:
    """The predicate with what it carries as arrays."""
    return predicate.bind(np.asarray) if isinstance(predicate, Mask) else predicate


def _predicate_words(recipe: Recipe, sizes: Sizes) -> dict[str, int | list]:
    """What the mask is exactly, for subjects that take flags; else nothing."""
    if recipe.mask is not None or recipe.random_mask:
        return {}
    words: dict[str, int | list] = {}
    if recipe.causal is not None:
        words["causal_offset"] = recipe.causal(sizes)
    if recipe.window is not None:
        words["window"] = list(recipe.window)
    return words


def _broadcast(axes: str, sizes: Sizes) -> tuple[int, ...]:
    """The shape that is full in `axes` and 1 elsewhere."""
    return tuple(sizes[axis] if axis in axes else 1 for axis in "bnij")

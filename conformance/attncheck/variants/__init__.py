"""Variants: planted faults, changed conventions and candidate diagnoses in one.

A variant is a class that replaces some steps of `model.Model`: its name is its class's,
its sentence the class's docstring.  Adding one is adding a class to a module here.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np

from attncheck.case import Case
from attncheck.variants import (
    approximate,
    backward,
    converters,
    gradients,
    heads,
    masks,
    positions,
    precision,
    readings,
    scores,
    softmax,
    unlike,
)
from attncheck.variants.model import Model, rounded

_OF_PAIRS = {part.__name__ for part in (scores, softmax, gradients, precision)}
"""Where variants replace steps that there are if every query meets every key."""

APPROXIMATIONS = (
    *("linear_attention", "performer_attention"),
    *("linformer_attention", "nystrom_attention"),
)
"""Operations in which a query does not meet every key."""


@dataclass(frozen=True)
class Variant:
    """One way to compute something else than the spec says."""

    name: str
    sentence: str
    """What it does, in words that end a report: one sentence."""
    model: type[Model]

    @property
    def reference(self) -> str:
        """Where it was seen in public: `owner/repo#number`; else nothing."""
        return self.model.reference

    @property
    def convention(self) -> tuple[str, Any] | None:
        """The field of `Conventions` that it changes, and to what, if it does."""
        return self.model.convention

    @property
    def rounds(self) -> bool:
        """Whether it is the precision that differs, not the formula."""
        return self.model.rounds

    def results(self, case: Case) -> dict[str, np.ndarray]:
        """What it makes of a case, in float64: what is right where it has no part."""
        model = self.model if self.concerns(case.op) else Model
        with np.errstate(all="ignore"):
            return model(case).results()

    def concerns(self, op: str) -> bool:
        """Whether an operation has the steps that it replaces."""
        modules = {part.__module__ for part in self.model.__mro__}
        return op not in APPROXIMATIONS or modules.isdisjoint(_OF_PAIRS)

    def run(self, case: Case, *, stores: bool = False) -> dict[str, np.ndarray]:
        """What the case wants, each in its own type, as an implementation leaves it.

        `stores`: with the roundings that the profile tensor-core allows.
        """
        with np.errstate(all="ignore"):
            return rounded(case, self.model(case, stores=stores).results())


def together(variants: Sequence[Variant]) -> Variant:
    """All of the variants at once; where two replace the same step, the last does."""
    if len(variants) == 1:
        return variants[0]
    models = dict.fromkeys(variant.model for variant in reversed(variants))
    own = tuple(m for m in models if not any(_is_part(m, other) for other in models))
    return Variant(
        "+".join(variant.name for variant in variants),
        " ".join(variant.sentence for variant in variants),
        type("Together", own, {}, rounds=any(v.rounds for v in variants)),
    )


def _of(module: ModuleType) -> list[Variant]:
    return [
        Variant(_kebab(name), " ".join((value.__doc__ or "").split()), value)
        for name, value in vars(module).items()
        if isinstance(value, type)
        and value.__module__ == module.__name__
        and not name.startswith("_")
    ]


def _kebab(name: str) -> str:
    """`MaskOfFirstHead` → `mask-of-first-head`; `In16Bits` → `in-16-bits`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[a-z])(?=\d)", "-", name).lower()


VARIANTS: tuple[Variant, ...] = tuple(
    variant
    for module in (masks, scores, softmax, heads, gradients, precision)
    for variant in _of(module)
)
"""Formulas before precision; in a module, the more usual mistakes come first."""


OPERATION_VARIANTS: tuple[Variant, ...] = tuple(
    variant
    for module in (positions, unlike, approximate, backward)
    for variant in _of(module)
)
"""Of the operations beside attention."""


def _is_part(model: type[Model], other: type[Model]) -> bool:
    """Whether the other does what the model does, and more."""
    return model is not other and issubclass(other, model)


def _readings(variant: Variant) -> Iterator[Variant]:
    """A variant in the other ways in which programs come to it."""
    model, models = variant.model, list[type[Model]]()
    if issubclass(model, readings.Rebuilt):
        models += [readings.recognising(model)]
    if model.__module__ == masks.__name__:
        models += [
            readings.guarded(one, by_head=by_head)
            for one in (model, *models)
            for by_head in (False, True)
        ]
    if model.__module__ == heads.__name__ and {"spread", "repeated"} & set(vars(model)):
        models += [readings.hidden_first(model)]
    if issubclass(model, readings.Tiled):
        models += [readings.sized(model, tile=tile) for tile in model.other_tiles]
    if issubclass(model, readings.Split):
        models += [
            readings.sized(model, parts=parts, counts_empty=counts)
            for parts in model.numbers
            for counts in (True, False)
        ]
    return (replace(variant, model=one) for one in models)


CONVERTERS: tuple[Variant, ...] = tuple(_of(converters))
"""Mistakes of what carries weights from one library to another."""

CANDIDATES: tuple[Variant, ...] = (
    *VARIANTS,
    *OPERATION_VARIANTS,
    *CONVERTERS,
    *(reading for variant in VARIANTS for reading in _readings(variant)),
)
"""What may explain a failure."""

FAULTS: tuple[Variant, ...] = (*VARIANTS, *OPERATION_VARIANTS, *CONVERTERS)
"""Each once: what the kill table counts, and what a report can name."""

BY_NAME = {variant.name: variant for variant in FAULTS}

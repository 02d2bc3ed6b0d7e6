"""The known mistake behind a single call, in the words of a message."""

from collections.abc import Sequence

from attncheck.explain import Evidence, explain
from attncheck.report.summary import diagnosis_record
from attncheck.report.words import mistakes
from attncheck.variants import CANDIDATES

FORMULAS = [variant for variant in CANDIDATES if not variant.rounds]
"""What may explain one call: of too coarse a precision, it shows only the size."""


def named(evidence: Sequence[Evidence]) -> list[str]:
    """The mistakes that explain a call, or that nothing known does; of a part and the
    whole, nothing where none is found.

    Args:
        evidence: of the call, or of a part of it and of the whole.
    """
    (found,) = explain(evidence, FORMULAS)
    if len(evidence) > 1 and not found.causes:
        return []  # a part does not show what depends on where its queries stand
    return mistakes(diagnosis_record(found))

"""Failures that are alike."""

import math
from collections.abc import Iterable

from attncheck.case import ALL_RESULTS
from attncheck.verdict import Verdict


def simplest_first(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """By the first wrong step, then by size: what one wants to debug comes first."""

    def order(verdict: Verdict) -> tuple:
        finding = verdict.first_failure
        place = ALL_RESULTS.index(finding.name) if finding else -1
        scores = math.prod(verdict.case.sizes[axis] for axis in "bnij")
        return place, bool(verdict.case.law), len(verdict.step or ""), scores

    return sorted(verdicts, key=order)


def kinds(verdicts: Iterable[Verdict]) -> list[list[Verdict]]:
    """Failures that fail first at the same place, or for the same reason.

    The simplest comes first, in every kind and of the kinds.
    """
    groups: dict[tuple, list[Verdict]] = {}
    for verdict in simplest_first(verdicts):
        groups.setdefault(_kind(verdict), []).append(verdict)
    return list(groups.values())


def _kind(verdict: Verdict) -> tuple[str, str]:
    first = verdict.first_failure
    place = first.name if first else verdict.message
    return verdict.outcome, verdict.waived.reason if verdict.waived else place

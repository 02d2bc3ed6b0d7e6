"""The smallest set of cases that finds what all cases find."""

from collections.abc import Collection, Mapping, Set
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

EXTRA = 1e-3
"""What a case costs beside 1 if it is not preferred: it settles ties."""


class Cover(NamedTuple):
    """A set of cases."""

    cases: list[str]
    optimal: bool
    """Whether it is proven that no smaller set finds as much."""


def smallest(finds: Mapping[str, Set[Any]], preferred: Collection[str] = ()) -> Cover:
    """The fewest cases that together find what all of them find.

    Minimal set cover, as an integer program: a case is in (1) or out (0), and of the
    cases that find a thing, one at least is in.

    Args:
        finds: case → what it finds.
        preferred: cases to take where the number does not change by it.
    """
    names = sorted(case for case, found in finds.items() if found)
    things = sorted(set().union(*finds.values()))
    table = np.array([[thing in finds[case] for case in names] for thing in things])
    cost = [1.0 if case in preferred else 1.0 + EXTRA for case in names]
    found = milp(
        cost,
        integrality=np.ones(len(names)),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(table.astype(float), lb=1),
        options={"mip_rel_gap": 0.0},
    )
    chosen = [case for case, x in zip(names, found.x, strict=True) if x > 0.5]
    return Cover(chosen, found.status == 0)

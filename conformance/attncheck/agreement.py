"""How far subjects agree with each other, on the cases and in the real model."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from attncheck import minilm
from attncheck.budget import half_ulp, output_dtype
from attncheck.case import Case
from attncheck.judging import Folder, Judge
from attncheck.verdict import share

EXACT = "float64 attention"
"""What the real model is compared with."""


@dataclass(frozen=True)
class Agreement:
    """How far two subjects agree on the cases of one dtype."""

    a: str
    b: str
    dtype: str
    cases: int
    """Cases that both have done."""
    bitwise: float
    """The share of their arrays that are equal bit for bit, but for the sign of 0 and
    the payload of NaN."""
    worst: float
    """The largest |a − b|, as a share of what the two budgets allow together."""
    where: str
    """The case and the result that show it."""


def agreements(judge: Judge, folders: Sequence[Folder]) -> list[Agreement]:
    """Every pair of subjects, by dtype."""
    found = []
    for a, b in combinations(folders, 2):
        theirs = {case.id: case.sha256 for case in b.cases}
        shared = [case for case in a.cases if theirs.get(case.id) == case.sha256]
        for dtype in dict.fromkeys(case.dtype for case in shared):
            cases = [
                case
                for case in shared
                if case.dtype == dtype and all(f.has_done(case) for f in (a, b))
            ]
            found.append(_agreement(judge, a, b, dtype, cases))
    return found


def _agreement(
    judge: Judge, a: Folder, b: Folder, dtype: str, cases: Sequence[Case]
) -> Agreement:
    equal, shares = [], [(0.0, "")]
    for case in cases:
        ours, theirs = a.results[case.id].arrays, b.results[case.id].arrays
        for name in sorted(set(ours) & set(theirs) & set(case.wants)):
            x, y = ours[name].astype(np.float64), theirs[name].astype(np.float64)
            visible = judge.expected(case).visible
            if name in ("scores", "logits") and x.shape == y.shape == visible.shape:
                # A blocked key has none.
                x, y = np.where(visible, x, 0), np.where(visible, y, 0)
            equal.append(np.array_equal(x, y, equal_nan=True))
            bounds = [judge.budget(case, one.profile).bounds[name] for one in (a, b)]
            apart = _apart(x, y, bounds, output_dtype(case, name))
            shares.append((apart, f"{case.id} {name}"))
    worst, where = max(shares)
    bitwise = float(np.mean(equal)) if equal else 0.0
    return Agreement(a.name, b.name, dtype, len(cases), bitwise, worst, where)


@dataclass(frozen=True)
class ModelCheck:
    """How far apart two passes of the real model end."""

    a: str
    b: str
    difference: float
    """The largest |Δ| among the entries of the sentence embeddings."""
    limit: float
    """What rounding explains (`attncheck.minilm.rounding`)."""

    @property
    def passes(self) -> bool:
        """Whether rounding explains the difference."""
        return self.difference <= self.limit


def check_model(folders: Sequence[Folder]) -> list[ModelCheck]:
    """Every subject's embeddings against float64 attention and against each other.

    None of them where the model is not installed.
    """
    ran = [(f.name, f.embedding) for f in folders if f.embedding is not None]
    if not ran or minilm.available() is not None:
        return []
    exact = (EXACT, minilm.exact().embedding)
    # What rounding explains, and never more than 1e-5 of the largest entry.
    limit = min(minilm.rounding(exact[1].size), 1e-5 * float(np.abs(exact[1]).max()))
    return [
        ModelCheck(
            a,
            b,
            float(np.abs(x - y).max()) if x.shape == y.shape else np.inf,
            limit,
        )
        for (a, x), (b, y) in combinations([*ran, exact], 2)
    ]


def _apart(
    x: np.ndarray, y: np.ndarray, bounds: Sequence[np.ndarray], dtype: np.dtype
) -> float:
    """The largest |x − y| as a share of both bounds and both final roundings."""
    if not x.shape == y.shape == bounds[0].shape:
        return np.inf
    with np.errstate(all="ignore"):
        rounding = half_ulp(np.maximum(abs(x), abs(y)), dtype)
        return float(share(x, y, sum(bounds) + 2 * rounding).max(initial=0.0))

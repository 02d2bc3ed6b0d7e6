"""From folders of cases and results to runs: verdicts, and how far subjects agree."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

import numpy as np

from attncheck import minilm
from attncheck.budget import PROFILES, budget, half_ulp, output_dtype
from attncheck.case import Case
from attncheck.definition import Expected, expected
from attncheck.exchange import (
    MODEL,
    ExchangeError,
    Result,
    read_arrays,
    read_cases,
    read_results,
)
from attncheck.subject import DEFAULT_PROFILE
from attncheck.verdict import Run, judge

EXACT = "float64 attention"
"""What the real model is compared with."""


@dataclass
class Judge:
    """What every case must give, computed once for all subjects."""

    _expected: dict[str, Expected] = field(default_factory=dict)
    _bounds: dict[tuple[str, str], dict[str, np.ndarray]] = field(default_factory=dict)

    def expected(self, case: Case) -> Expected:
        """The definition's results."""
        if case.sha256 not in self._expected:
            self._expected[case.sha256] = expected(case)
        return self._expected[case.sha256]

    def bounds(self, case: Case, profile: str) -> dict[str, np.ndarray]:
        """How far each result may lie from the definition's."""
        key = case.sha256, profile
        if key not in self._bounds:
            self._bounds[key] = budget(case, self.expected(case), PROFILES[profile])
        return self._bounds[key]

    def run(self, folder: "Folder", profile: str | None = None) -> Run:
        """The verdicts about the subject of a folder, by the profile it declares."""
        name = profile or folder.profile
        verdicts = [
            judge(
                case,
                self.expected(case),
                self.bounds(case, name),
                folder.results.get(case.id),
            )
            for case in folder.cases
        ]
        return Run(dict(folder.subject) | {"profile": name}, verdicts)


@dataclass(frozen=True)
class Folder:
    """Cases, results, and who made them."""

    cases: Sequence[Case]
    results: Mapping[str, Result]
    subject: Mapping[str, object]
    embedding: np.ndarray | None = None
    """`b c`: the real model's sentence embeddings; None where it was not run."""

    @classmethod
    def read(cls, path: Path) -> "Folder":
        """Reads a folder.

        Raises:
            ExchangeError: it holds no cases or no results, or damaged ones, or results
                of a subject that claims a profile that is not known.
        """
        cases, found = read_cases(path), read_results(path)
        results = {
            case.id: found[case.id]
            for case in cases
            if case.id in found and found[case.id].is_of(case)
        }
        said = [result.subject for result in results.values() if result.subject]
        # Of a case that a worker was lost at, only the name is known.
        subject = max(said, key=len, default={"name": path.name})
        profile = subject.get("profile", DEFAULT_PROFILE)
        if profile not in PROFILES:
            raise ExchangeError(
                f"{path}: profile is one of {', '.join(PROFILES)}, not {profile!r}"
            )
        arrays = read_arrays(path / MODEL) if (path / MODEL).exists() else {}
        return cls(cases, results, subject, arrays.get("embedding"))

    @property
    def profile(self) -> str:
        """The precision profile that the subject claims."""
        return str(self.subject.get("profile", DEFAULT_PROFILE))

    def has_done(self, case: Case) -> bool:
        """Whether the subject has computed the case."""
        result = self.results.get(case.id)
        return result is not None and result.status == "done"

    @property
    def name(self) -> str:
        """The subject's name."""
        return str(self.subject["name"])


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
            bounds = [judge.bounds(case, folder.profile)[name] for folder in (a, b)]
            share = _share(x, y, bounds, output_dtype(case, name))
            shares.append((share, f"{case.id} {name}"))
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
    exact = (EXACT, minilm.embed(minilm.exact_attention))
    return [
        ModelCheck(
            a,
            b,
            float(np.abs(x - y).max()) if x.shape == y.shape else np.inf,
            minilm.rounding(exact[1].size),
        )
        for (a, x), (b, y) in combinations([*ran, exact], 2)
    ]


def _share(
    x: np.ndarray, y: np.ndarray, bounds: Sequence[np.ndarray], dtype: np.dtype
) -> float:
    """The largest |x − y| as a share of both bounds and both final roundings."""
    if not x.shape == y.shape == bounds[0].shape:
        return np.inf
    with np.errstate(all="ignore"):
        rounding = half_ulp(np.maximum(abs(x), abs(y)), dtype)
        share = np.abs(x - y) / (sum(bounds) + 2 * rounding)
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    share = np.where(same, 0.0, np.where(np.isnan(share), np.inf, share))
    return float(share.max(initial=0.0))

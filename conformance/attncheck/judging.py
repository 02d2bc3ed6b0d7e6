"""From a folder of cases and results to a run: the verdicts about one subject."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from attncheck import laws
from attncheck.budget import (
    PROFILES,
    Budget,
    Pooled,
    Sample,
    derive,
    is_void,
    pool,
    sample,
    split,
)
from attncheck.cache import Cache
from attncheck.case import STEPS, Case
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
from attncheck.verdict import Run, Verdict, judge


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
        # Where a worker was lost, only the name that was asked for is known.
        names = {str(subject["name"]) for subject in said if len(subject) > 1}
        if len(names) > 1:
            raise ExchangeError(f"{path} mixes results of {', '.join(sorted(names))}")
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


@dataclass
class Judge:
    """What every case must give, computed once for all subjects."""

    cache: Cache = field(default_factory=lambda: Cache(None))
    _expected: dict[str, Expected] = field(default_factory=dict)
    _budgets: dict[tuple[str, str], Budget] = field(default_factory=dict)

    def expected(self, case: Case) -> Expected:
        """The definition's results."""
        key = case.sha256
        if key not in self._expected:
            found = self.cache.expected(key)
            if found is None:
                found = expected(case)
                self.cache.keep_expected(key, found)
            self._expected[key] = found
        return self._expected[key]

    def budget(self, case: Case, profile: str) -> Budget:
        """How far each result may lie from the definition's."""
        key = case.sha256, profile
        if key not in self._budgets:
            found = self.cache.budget(*key)
            if found is None:
                found = derive(case, self.expected(case), PROFILES[profile])
                self.cache.keep_budget(*key, found)
            self._budgets[key] = found
        return self._budgets[key]

    def run(self, folder: Folder, profile: str | None = None) -> Run:
        """The verdicts about the subject of a folder, by the profile it declares."""
        name = profile or folder.profile
        verdicts = [self.verdict(case, folder, name) for case in folder.cases]
        dtypes = dict.fromkeys(case.dtype for case in folder.cases)
        return Run(
            dict(folder.subject) | {"profile": name},
            verdicts,
            measured={dtype: self._measured(folder, dtype) for dtype in dtypes},
            pooled=self._pooled(folder, name),
            laws=laws.check(
                folder.cases,
                folder.results,
                self.expected,
                lambda case: self.budget(case, name).bounds,
            ),
        )

    def verdict(self, case: Case, folder: Folder, profile: str) -> Verdict:
        """The verdict about one case, a failure's budget split by source."""
        want, derived = self.expected(case), self.budget(case, profile)
        void = is_void(case, want, derived.bounds)
        if void:
            return Verdict(case, "not applicable", f"under {profile}, {void}")
        found = judge(case, want, derived.bounds, folder.results.get(case.id))
        first = found.first_failure
        if first is None or first.worst is None:
            return found
        place = tuple(first.worst.index.values())
        shares = split(case, want, PROFILES[profile], first.name, place)
        findings = tuple(
            replace(finding, split=shares) if finding is first else finding
            for finding in found.findings
        )
        return replace(found, findings=findings)

    def _measured(self, folder: Folder, dtype: str) -> str | None:
        """The first profile, strictest first, under which all that was done passes."""
        cases = [c for c in folder.cases if c.dtype == dtype and folder.has_done(c)]
        for name in PROFILES if cases else ():
            verdicts = (self._passes(case, folder, name) for case in cases)
            if all(verdicts):
                return name
        return None

    def _passes(self, case: Case, folder: Folder, profile: str) -> bool:
        bounds = self.budget(case, profile).bounds
        result = folder.results[case.id]
        return judge(case, self.expected(case), bounds, result).status != "fail"

    def _pooled(self, folder: Folder, profile: str) -> dict[tuple[str, str], Pooled]:
        """Statistics of the random cases, by dtype and result."""
        samples: dict[tuple[str, str], list[Sample]] = {}
        for case in filter(folder.has_done, folder.cases):
            if case.law:  # its errors are not independent of its twin's
                continue
            derived, want = self.budget(case, profile), self.expected(case)
            if not derived.random or is_void(case, want, derived.bounds):
                continue
            for name, got in folder.results[case.id].arrays.items():
                if name in STEPS or name not in derived.deviation:
                    continue
                if _is_countable(got, getattr(want, name)):
                    given = case, want, derived, PROFILES[profile], got
                    key = case.dtype, name
                    samples.setdefault(key, []).append(sample(*given, name=name))
        return {key: pool(ones) for key, ones in samples.items()}


def _is_countable(got: np.ndarray, want: np.ndarray) -> bool:
    """Whether errors can be pooled: there are some, and none is infinite."""
    same = got.shape == want.shape and got.size > 0
    return bool(same and np.isfinite(got[np.isfinite(want)]).all())

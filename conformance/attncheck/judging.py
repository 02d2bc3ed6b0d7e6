"""From a folder of cases and results to a run: the verdicts about one subject."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from attncheck import laws
from attncheck.budget import (
    PROFILES,
    Budget,
    Pooled,
    Sample,
    derive,
    is_void,
    output_dtype,
    pool,
    sample,
    split,
)
from attncheck.cache import Cache
from attncheck.case import Case
from attncheck.definition import Expected, expected
from attncheck.exchange import (
    MODEL,
    NOT_JUDGED,
    ExchangeError,
    Result,
    read_arrays,
    read_cases,
    read_results,
)
from attncheck.explain import Evidence, explain
from attncheck.heat import Heat, heat, telling
from attncheck.lines import written
from attncheck.subject import DEFAULT_PROFILE
from attncheck.suggest import no_such
from attncheck.verdict import JUDGED, Noisy, Run, Verdict, elements, judge
from attncheck.waivers import Waiver, waive


@dataclass(frozen=True)
class Folder:
    """Cases, results, and who made them."""

    cases: Sequence[Case]
    results: Mapping[str, Result]
    subject: Mapping[str, object]
    embedding: np.ndarray | None = None
    """`b c`: the real model's sentence embeddings; None where it was not run."""

    damage: Sequence[str] = ()
    """One sentence for each line of results that is of no case."""

    @classmethod
    def read(cls, path: Path, cases: Sequence[Case] | None = None) -> "Folder":
        """Reads a folder.

        A result that is damaged, or of another subject than most, is not judged.

        Args:
            cases: where they are known already, and not read.

        Raises:
            ExchangeError: it holds no cases or no results, or damaged cases, or results
                of a subject that claims a profile that is not known.
        """
        cases = read_cases(path) if cases is None else cases
        results = read_results(path, cases)
        embedding, why = _embedding(path)
        damage = (*results.damage, *why)
        return replace(cls.of(path, cases, results), embedding=embedding, damage=damage)

    @classmethod
    def of(
        cls, path: Path, cases: Sequence[Case], results: Mapping[str, Result]
    ) -> "Folder":
        """The folder at a path from which these cases and results were read.

        Raises:
            ExchangeError: they are of a subject that claims an unknown profile.
        """
        subject = _subject_of(results.values()) or {"name": path.name}
        profile = subject.get("profile", DEFAULT_PROFILE)
        if profile not in PROFILES:
            raise ExchangeError(f"{path}: {no_such('profile', profile, PROFILES)}")
        own = {id: _of_subject(result, subject) for id, result in results.items()}
        return cls(cases, own, subject)

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

    def without(self, ids: Iterable[str]) -> "Folder":
        """The folder without the results of some cases."""
        left_out = set(ids)
        kept = {id: x for id, x in self.results.items() if id not in left_out}
        return replace(self, results=kept)


@dataclass
class Judge:
    """What every case must give, computed once for all subjects."""

    cache: Cache = field(default_factory=lambda: Cache(None))
    in_order: Callable[[Sequence[Case], str], Iterable[Case]] = lambda cases, _: cases
    """Puts cases in the order in which they are judged by a profile; it may wait."""
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

    def run(
        self,
        folder: Folder,
        profile: str | None = None,
        waivers: Sequence[Waiver] = (),
        progress: Callable[[], None] = lambda: None,
    ) -> Run:
        """The verdicts about the subject of a folder, by the profile it declares.

        What cases show together is shown without those that are waived.

        Args:
            progress: called once a case.
        """
        name = profile or folder.profile
        found = {}
        for case in self.in_order(folder.cases, name):
            verdict = self.verdict(case, folder, name)
            found[case.id] = waive(verdict, [folder.name], waivers)
            progress()
        verdicts = [found[case.id] for case in folder.cases]
        run = Run(dict(folder.subject) | {"profile": name}, verdicts)
        folder = folder.without(run.waived)
        dtypes = dict.fromkeys(case.dtype for case in folder.cases)
        passed = {(v.case.id, name) for v in verdicts if v.status == "pass"}
        samples = list(self._samples(folder, name))
        return replace(
            run,
            measured={x: self._measured(folder, x, name, passed) for x in dtypes},
            pooled=_pooled(samples),
            warnings=[one for one in _noisy(samples) if (one.case, name) in passed],
            laws=self.laws(folder, name),
            diagnoses=explain(self.evidence(verdicts, folder, name)),
            heats=self._heats(verdicts, folder, name),
            damage=folder.damage,
        )

    def _heats(
        self, verdicts: Sequence[Verdict], folder: Folder, profile: str
    ) -> dict[str, Heat]:
        """Pictures of the failures that tell most, by case."""
        failing = [v for v in verdicts if v.status == "fail" and v.waived is None]
        return {v.case.id: self._heat(v, folder, profile) for v in telling(failing)}

    def _heat(self, verdict: Verdict, folder: Folder, profile: str) -> Heat:
        case, first = verdict.case, verdict.first_failure
        assert first is not None
        assert first.worst is not None
        name, want = first.name, self.expected(case)
        legal, shares = elements(
            folder.results[case.id].arrays[name],
            getattr(want, name),
            self.budget(case, profile).bounds[name],
            output_dtype(case, name),
            where=want.visible if name in ("scores", "logits") else True,
        )
        # The final rounding can take what is legal a little over its budget.
        return heat(
            name, first.worst.index, np.where(legal, np.minimum(shares, 1), shares)
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

    def evidence(
        self, verdicts: Sequence[Verdict], folder: Folder, profile: str
    ) -> Iterator[Evidence]:
        """What was judged, with what came and what must come."""
        for verdict in verdicts:
            case = verdict.case
            if verdict.status in JUDGED and case.id in folder.results:
                got = folder.results[case.id].arrays
                bounds = self.budget(case, profile).bounds
                yield Evidence(verdict, got, self.expected(case), bounds)

    def _measured(
        self, folder: Folder, dtype: str, declared: str, passed: Set[tuple[str, str]]
    ) -> str | None:
        """The first profile, strictest first, under which all that was done passes.

        Where the declared one is not met it is a looser one: what is before that in the
        order may allow what it does not, as `tf32` allows rounded operands.

        Args:
            passed: ids of cases and profiles of which that is known.
        """
        cases = [c for c in folder.cases if c.dtype == dtype and folder.has_done(c)]
        if not cases:
            return None

        def is_met(name: str) -> bool:
            return all(
                (case.id, name) in passed or self._passes(case, folder, name)
                for case in self.in_order(cases, name)
            )

        names = list(PROFILES)
        if not is_met(declared):
            names = names[names.index(declared) + 1 :]
        return next(filter(is_met, names), None)

    def _passes(self, case: Case, folder: Folder, profile: str) -> bool:
        bounds = self.budget(case, profile).bounds
        result = folder.results[case.id]
        return judge(case, self.expected(case), bounds, result).status != "fail"

    def laws(self, folder: Folder, profile: str) -> list[laws.Holding]:
        """How the laws hold whose cases the folder has."""
        return laws.check(
            folder.cases,
            folder.results,
            self.expected,
            lambda case: self.budget(case, profile).bounds,
        )

    def pooled(self, folder: Folder, profile: str) -> dict[tuple[str, str], Pooled]:
        """Statistics of the random cases, by dtype and result."""
        return _pooled(self._samples(folder, profile))

    def _samples(
        self, folder: Folder, profile: str
    ) -> Iterator[tuple[Case, str, Sample]]:
        """What every result of a random case adds to the statistics."""
        for case in filter(folder.has_done, folder.cases):
            if case.law:  # its errors are not independent of its twin's
                continue
            derived, want = self.budget(case, profile), self.expected(case)
            if not derived.random or is_void(case, want, derived.bounds):
                continue
            for name, got in folder.results[case.id].arrays.items():
                if name not in derived.deviation:
                    continue
                if _is_countable(case, name, got, getattr(want, name)):
                    given = case, want, derived, PROFILES[profile], got
                    yield case, name, sample(*given, name=name)


def _subject_of(results: Iterable[Result]) -> Mapping[str, Any]:
    """What most results say of who made them; nothing where none says."""
    said = [result.subject for result in results if result.subject]
    # Where a worker was lost, only the name that was asked for is known.
    said = [subject for subject in said if len(subject) > 1] or said
    said = [x for x in said if x.get("profile", DEFAULT_PROFILE) in PROFILES] or said
    counts = Counter(map(written, said))
    return max(said, key=lambda subject: counts[written(subject)], default={})


def _of_subject(result: Result, subject: Mapping[str, Any]) -> Result:
    """The result, not judged if another made it, or it claims another profile."""
    theirs = result.subject
    if len(theirs) < 2 <= len(subject) or not theirs:
        return result
    for key in ("name", "profile"):
        if theirs.get(key) != subject.get(key):
            why = f"its {key} is {theirs.get(key)}, that of most is {subject.get(key)}"
            return Result(result.id, NOT_JUDGED, why)
    return result


def _embedding(path: Path) -> tuple[np.ndarray | None, list[str]]:
    """The real model's embeddings, of no sentence where they are damaged, and why."""
    if not (path / MODEL).exists():
        return None, []
    try:
        arrays = read_arrays(path / MODEL)
    except ExchangeError as error:
        return np.zeros((0, 0)), [str(error)]
    return arrays.get("embedding"), []


def _pooled(
    samples: Iterable[tuple[Case, str, Sample]],
) -> dict[tuple[str, str], Pooled]:
    """Statistics by dtype and result."""
    groups: dict[tuple[str, str], list[Sample]] = {}
    for case, name, one in samples:
        groups.setdefault((case.dtype, name), []).append(one)
    return {key: pool(ones) for key, ones in groups.items()}


def _noisy(samples: Iterable[tuple[Case, str, Sample]]) -> list[Noisy]:
    """Results whose errors are larger than expected, the largest first."""
    alone = ((case, name, pool([one])) for case, name, one in samples)
    found = [Noisy(case.id, name, one.rms) for case, name, one in alone if one.is_noisy]
    return sorted(found, key=lambda noisy: -noisy.rms)


def _is_countable(case: Case, name: str, got: np.ndarray, want: np.ndarray) -> bool:
    """Whether errors can be pooled: there are some, and none is infinite."""
    same = got.shape == want.shape and got.dtype == output_dtype(case, name)
    return bool(same and got.size and np.isfinite(got[np.isfinite(want)]).all())

"""The cases as pytest items; `attncheck.pytest_plugin` imports this when it is asked.

A subject is a collector, and what is judged of it are its items: each case, each law
and the pooled statistics in each dtype, and that some case of every clause was judged.
Results come through the worker processes of the command line (`attncheck.shared`).
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.text import Text

from attncheck import laws
from attncheck.cache import Cache
from attncheck.case import Case
from attncheck.choose import NoCaseError, choose
from attncheck.config import TABLE, ConfigError, Settings, settings
from attncheck.judging import Folder, Judge
from attncheck.lines import ExchangeError
from attncheck.pytest_plugin import folder, given
from attncheck.report.summary import failure_record, pooled_record
from attncheck.report.text import failure_lines, why
from attncheck.report.words import excess
from attncheck.shared import SharedResults
from attncheck.subject import SubjectError
from attncheck.verdict import JUDGED, Run, Verdict
from attncheck.waivers import Waiver, WaiverError, read, unmatched, waive

PORTIONS = 4
"""For each worker of pytest-xdist, which is first given a quarter of its share."""


class VerdictError(Exception):
    """A verdict that is no pass; its text is the whole report."""


class Conformance(pytest.Collector):
    """All subjects that are asked for."""

    def collect(self) -> Iterator["SubjectCases"]:
        """One collector a subject; runs none of them."""
        options = given(self.config)
        pattern = options.pop("case") or "*"
        try:
            asked = settings(self.config.invocation_params.dir, **options)
            if not asked.subject:
                raise ConfigError(
                    "say what to judge: --attn-subject my.module:function, "
                    f"or `subject` in [tool.{TABLE}] of pyproject.toml"
                )
            chosen = choose(asked.set, asked.dtype, pattern)
            waivers = [] if asked.waivers is None else read(asked.waivers)
        except (ConfigError, NoCaseError, WaiverError, OSError) as error:
            raise self.CollectError(f"attncheck: {error}") from None
        for waiver in unmatched(waivers):
            what = f"{asked.waivers}: no case matches {waiver.case!r}"
            self.warn(pytest.PytestWarning(what))
        judge = Judge(Cache.of_user())
        for number, target in enumerate(dict.fromkeys(asked.subject)):
            yield SubjectCases.from_parent(
                self,
                name=target,
                asked=asked,
                chosen=chosen,
                waivers=waivers,
                judge=judge,
                place=str(number),
            )


class SubjectCases(pytest.Collector):
    """What is judged of one subject; its results are collected when one is needed."""

    def __init__(
        self,
        *,
        asked: Settings,
        chosen: Sequence[Case],
        waivers: Sequence[Waiver],
        judge: Judge,
        place: str,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.asked, self.chosen, self.waivers = asked, chosen, waivers
        self.judge = judge
        self._place = place
        self._shared: SharedResults | None = None
        self._why = ""
        """Why nothing of it can be judged; what is first to find out fails."""

    def collect(self) -> Iterator["Check"]:
        """The items, those that need the results of many cases last."""
        for case in self.chosen:
            item = CaseCheck.from_parent(self, name=case.id, cases=[case])
            item.extra_keyword_matches.update(case.clauses)
            yield item
        for (law, dtype), cases in _by_law(self.chosen).items():
            yield LawCheck.from_parent(self, name=f"law:{law}/{dtype}", cases=cases)
        for dtype in dict.fromkeys(case.dtype for case in self.chosen):
            cases = [
                case for case in self.chosen if case.dtype == dtype and not case.law
            ]
            if cases:
                yield PooledCheck.from_parent(self, name=f"pooled/{dtype}", cases=cases)
        yield ClausesCheck.from_parent(self, name="clauses", cases=self.chosen)

    def setup(self) -> None:
        """Makes ready to collect what the items that are left need."""
        needed = {
            case.id
            for item in self.session.items
            if isinstance(item, Check) and item.parent is self
            for case in item.cases
        }
        workers = getattr(self.config, "workerinput", {}).get("workercount")
        self._shared = SharedResults(
            self.name,
            [case for case in self.chosen if case.id in needed],
            folder(self.config) / self._place,
            options=self.asked.options,
            workers=self.asked.workers,
            portions=PORTIONS * workers if workers else 1,
        )

    def teardown(self) -> None:
        """Ends what is collected in the background."""
        if self._shared is not None:
            self._shared.stop()
        self.judge.cache.prune()

    def folder(self, cases: Sequence[Case]) -> Folder:
        """Some cases with their results; waits for them.

        Raises:
            SubjectError, ExchangeError: the subject cannot be judged, or claims what is
                not known.  It is skipped from then on.
        """
        assert self._shared is not None  # between setup and teardown
        if self._why:
            pytest.skip(f"not run: {self._why}")
        try:
            results = {case.id: self._shared.result(case) for case in cases}
            return Folder.of(Path(self.name), cases, results)
        except (SubjectError, ExchangeError) as error:
            self._why = str(error)
            raise

    def profile(self, folder: Folder) -> str:
        """The precision profile to judge by."""
        return self.asked.profile or folder.profile

    def verdicts(self, folder: Folder) -> list[Verdict]:
        """The verdict about each case of a folder, waivers applied."""
        names = (self.name, folder.name)
        profile = self.profile(folder)
        return [
            waive(self.judge.verdict(case, folder, profile), names, self.waivers)
            for case in folder.cases
        ]


class Check(pytest.Item):
    """One thing that is judged of a subject."""

    parent: SubjectCases

    def __init__(self, *, cases: Sequence[Case], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cases = cases

    def runtest(self) -> None:
        """Waits for the results that it needs, and judges."""
        found = self.parent.folder(self.cases)
        self.record(profile=self.parent.profile(found))
        self.check(found)

    def check(self, found: Folder) -> None:
        """Raises VerdictError, or skips, or returns."""
        raise NotImplementedError

    def record(self, **properties: float | str) -> None:
        """Adds properties that JUnit reports show."""
        self.user_properties += [
            (f"attncheck.{name}", value) for name, value in properties.items()
        ]

    def repr_failure(self, excinfo: pytest.ExceptionInfo, style: Any = None) -> Any:
        """The words of a verdict; a traceback of what should not happen only."""
        if isinstance(excinfo.value, VerdictError | SubjectError | ExchangeError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Where it is, and what the head of its failure says."""
        return self.path, None, f"{self.parent.name} {self.name}"


class CaseCheck(Check):
    """One case."""

    def check(self, found: Folder) -> None:
        """Passes, fails, or is skipped where it is refused or does not apply."""
        (verdict,) = self.parent.verdicts(found)
        used = {f.name: f.used for f in verdict.findings if f.status != "not judged"}
        self.record(seconds=verdict.seconds)
        self.record(**{f"used.{name}": _plain(share) for name, share in used.items()})
        if verdict.outcome in ("not applicable", "refused"):
            pytest.skip(f"{verdict.outcome}: {verdict.message}")
        if verdict.outcome == "waived" and verdict.waived is not None:
            pytest.xfail(verdict.waived.reason)  # goes on under --runxfail
        if verdict.outcome != "pass":
            raise VerdictError(_text(verdict))


class LawCheck(Check):
    """A law in one dtype."""

    def check(self, found: Folder) -> None:
        """Fails where results are not related as they must be."""
        waived = {v.case.id for v in self.parent.verdicts(found) if v.waived}
        found = found.without(waived)
        (holding,) = self.parent.judge.laws(found, self.parent.profile(found))
        if holding.broken:
            broken = "\n".join(f"  {place}" for place in holding.broken)
            raise VerdictError(f"the law is broken: {holding.sentence}\n{broken}")
        if not holding.bitwise + holding.within:
            pytest.skip("not judged: what it compares is not all there")
        self.record(bitwise=holding.bitwise, within=holding.within)


class PooledCheck(Check):
    """The errors of all random cases of a dtype together."""

    def check(self, found: Folder) -> None:
        """Fails where they are larger, or more alike, than a legal one's."""
        verdicts = self.parent.verdicts(found)
        if not {v.outcome for v in verdicts} <= {"pass", "waived", "not applicable"}:
            pytest.skip("not judged: single cases say more")
        found = found.without(v.case.id for v in verdicts if v.waived)
        pooled = self.parent.judge.pooled(found, self.parent.profile(found))
        records = [pooled_record(key, one) for key, one in pooled.items()]
        if excessive := [excess(one) for one in records if not one["passes"]]:
            raise VerdictError("all cases together: " + "\n".join(excessive))
        if not any(one.judged for one in pooled.values()):
            pytest.skip("not judged: too few random errors")
        for one in records:
            self.record(**{f"rms.{one['result']}": one["rms"]})


class ClausesCheck(Check):
    """That what was refused leaves no clause without a case that was judged."""

    def check(self, found: Folder) -> None:
        """Fails where all cases of a clause are refused, or none of any applies."""
        verdicts = [v for v in self.parent.verdicts(found) if not v.waived]
        asked = [v for v in verdicts if v.status in (*JUDGED, "refused")]
        if clauses := Run(found.subject, asked).unjudged:
            words = ", ".join(clauses)
            raise VerdictError(f"clauses of which every case is refused: {words}")
        if all(verdict.status == "not applicable" for verdict in verdicts):
            words = "every case is waived, or does not apply"
            raise VerdictError(f"nothing was judged: {words}")


def _by_law(cases: Sequence[Case]) -> dict[tuple[str, str], list[Case]]:
    """(law, dtype) → its cases and those that they come from, in the order of laws."""
    by_id = {case.id: case for case in cases}
    found: dict[tuple[str, str], dict[str, Case]] = {}
    for case in cases:
        if case.law:
            group = found.setdefault((case.law, case.dtype), {})
            twin = {case.twin: by_id[case.twin]} if case.twin in by_id else {}
            group |= twin | {case.id: case}
    order = [law.name for law in laws.LAWS]
    keys = sorted(found, key=lambda key: order.index(key[0]))
    return {key: list(found[key].values()) for key in keys}


def _text(verdict: Verdict) -> str:
    """A verdict that is no pass, in the words of the report."""
    record = failure_record(verdict)
    lines = [Text.from_markup(line).plain for line in failure_lines(record)]
    if verdict.outcome == "fail":
        return "\n".join([*lines, Text.from_markup(why(record)).plain])
    return f"{verdict.outcome}: " + "\n".join(lines)


def _plain(used: float) -> float | str:
    """A share of a budget as every format of reports can hold it."""
    return float(used) if used != float("inf") else "inf"

"""Runs one subject over cases in worker processes and survives whatever it does.

Cases of the same sizes and precision go to the same worker, so that a framework
compiles for them once.  A case at which a worker is lost gets a result that says so.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from attncheck.cache import compiled_code
from attncheck.case import Case
from attncheck.crew import Crew, Limits, Lost
from attncheck.exchange import CASES, Result, result_record, rewrite_cases, write_cases
from attncheck.interpreter import lent_to
from attncheck.journal import Journal
from attncheck.lines import ExchangeError
from attncheck.records import RESULT, Key, check
from attncheck.worker import MODEL_TASK

WORTH_A_WORKER = 50
"""Cases that are worth another import of the subject."""

MOST_WORKERS = 4
"""Every one holds the subject's framework in memory, and a share of its device."""

LOCK = "lock"
"""The file that a run holds while it is in the folder."""


def collect(
    target: str,
    cases: Sequence[Case],
    folder: Path,
    *,
    options: Mapping[str, str | None] | None = None,
    model: bool = False,
    resume: bool = False,
    timeout: float = 60.0,
    memory: float | None = None,
    python: str | None = None,
    jobs: int | None = None,
    loaded: Callable[[Mapping[str, Any]], None] = lambda subject: None,
    notice: Callable[[str], None] = lambda sentence: None,
    progress: Callable[[int], None] = lambda done: None,
) -> None:
    """Leaves the results of `target` on `cases` in `folder`, beside the cases.

    Args:
        target: what `attncheck.target.load` takes.
        options: its keyword arguments.
        model: run the subject inside the real model as well, if it has multi-head
            attention.
        resume: keep what the same subject had finished in this folder.
        timeout: seconds that one case may take, or the import of the subject.
        memory: GiB that a worker may hold; by default its share of the machine's, if
            the judge has one as well.
        python: the interpreter that runs the subject; by default the judge's own.
        jobs: how many workers run side by side, one of which runs the cases in order;
            by default one a processor, but at most `MOST_WORKERS`, and no more than
            the cases are worth.
        loaded: called once, with what the subject says of itself.
        notice: called with a sentence, where results are not kept that could be.
        progress: called with the number of finished cases, often; what it raises ends
            the run.

    Raises:
        SubjectError: the target cannot be judged, or the interpreter not be used.
        ExchangeError: the folder holds somebody else's files, or another run is in it.
    """
    folder = folder.resolve()  # a subject may change the directory
    folder.mkdir(parents=True, exist_ok=True)
    python, jobs = python or sys.executable, jobs or _worthwhile(len(cases))
    command = [python, "-m", "attncheck.worker", str(folder), target]
    command += [f"--{name}={value}" for name, value in (options or {}).items() if value]
    limits = Limits.of(timeout, memory, size=jobs)
    with _alone_in(folder), lent_to(python) as found_by:
        environment = {**compiled_code(), **found_by}
        files, journal = _CaseFiles(folder, cases), Journal(folder, cases)
        files.write()
        with Crew(command, jobs, limits, environment, files.mend) as crew:
            while not crew.hello:
                list(crew.attend())
                progress(0)
            subject, lacking = crew.hello["subject"], crew.hello["lacking"]
            loaded(subject)
            if changed := journal.begin(subject if resume else None):
                notice(changed)
            for place in journal.left():
                if why := lacking[place]:
                    journal.add(_record(subject, cases[place], "not applicable", why))
            groups = [[MODEL_TASK]] if model else []
            crew.lay_out(groups + _grouped(cases, journal.left(), jobs))
            while not crew.is_done:
                for task, answer in crew.attend():
                    if task != MODEL_TASK:
                        journal.add(_answered(subject, cases[int(task)], answer))
                progress(len(journal))
        journal.settle(in_order=jobs > 1)  # side by side, they came in another one


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Keeps other runs out of a folder.

    Raises:
        ExchangeError: one is there.
    """
    try:
        with FileLock(folder / LOCK, blocking=False):
            yield
    except Timeout as error:
        raise ExchangeError(
            f"another run is in {folder}: wait for its end, or choose another folder"
        ) from error


class _CaseFiles:
    """The files of the cases, which a subject may destroy."""

    def __init__(self, folder: Path, cases: Sequence[Case]) -> None:
        self._folder, self._cases = folder, cases
        self._state: frozenset[tuple] = frozenset()

    def write(self) -> None:
        """Writes them, where no others are."""
        write_cases(self._folder, self._cases)
        self._state = self._look()

    def mend(self) -> None:
        """Writes them anew where they are not as they were written."""
        if self._look() != self._state:
            rewrite_cases(self._folder, self._cases)
            self._state = self._look()

    def _look(self) -> frozenset[tuple]:
        """Name, size and time of the last change of every file."""
        paths = [self._folder / CASES, *(self._folder / "cases").glob("*")]
        stats = [(path.name, path.stat()) for path in paths if path.exists()]
        return frozenset((name, x.st_size, x.st_mtime_ns) for name, x in stats)


def _answered(
    subject: Mapping[str, Any], case: Case, answer: Mapping[str, Any] | Lost
) -> Mapping[str, Any]:
    """The record of what came of a case."""
    if isinstance(answer, Lost):
        return _record(subject, case, *answer)
    try:
        check(answer, {**RESULT, "id": Key(case.id.__eq__, case.id)})
    except ValueError as error:
        return _record(subject, case, "crash", f"no result was answered: {error}")
    return answer


def _record(
    subject: Mapping[str, Any], case: Case, status: str, message: str
) -> Mapping[str, Any]:
    """The record of a result that has no arrays."""
    sha256 = case.sha256
    return result_record(
        Result(case.id, status, message, subject=subject, sha256=sha256)
    )


def _worthwhile(cases: int) -> int:
    """How many workers so many cases are worth on this machine."""
    return min(os.cpu_count() or 1, MOST_WORKERS, 1 + cases // WORTH_A_WORKER)


def _grouped(
    cases: Sequence[Case], places: Sequence[int], jobs: int
) -> list[list[str]]:
    """Tasks that are best done by one worker, the largest group first."""
    groups: dict[tuple, list[str]] = {}
    for place in places:
        case = cases[place]
        sizes = (case.sizes[axis] for axis in "bnhgijde")
        alike = (case.accumulation, *sizes) if jobs > 1 else ()
        groups.setdefault(alike, []).append(str(place))
    return sorted(groups.values(), key=len, reverse=True)

"""Runs one subject over cases in worker processes and survives whatever it does.

Cases of the same sizes and precision go to the same worker, so that a framework
compiles for them once.  A case at which a worker is lost gets a result that says so.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attncheck.case import Case
from attncheck.crew import Crew, Lost
from attncheck.exchange import Result, result_record, write_cases
from attncheck.journal import Journal
from attncheck.worker import MODEL_TASK

WORTH_A_WORKER = 50
"""Cases that are worth another import of the subject."""

MOST_WORKERS = 4
"""Every one holds the subject's framework in memory, and a share of its device."""


def collect(
    target: str,
    cases: Sequence[Case],
    folder: Path,
    *,
    options: Mapping[str, str | None] | None = None,
    model: bool = False,
    resume: bool = False,
    timeout: float = 60.0,
    jobs: int | None = None,
    loaded: Callable[[Mapping[str, Any]], None] = lambda subject: None,
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
        jobs: how many workers run side by side, one of which runs the cases in order;
            by default one a processor, but at most `MOST_WORKERS`, and no more than
            the cases are worth.
        loaded: called once, with what the subject says of itself.
        progress: called with the number of finished cases, often; what it raises ends
            the run.

    Raises:
        SubjectError: the target cannot be judged.
        ExchangeError: the folder holds somebody else's files.
    """
    folder = folder.resolve()  # a subject may change the directory
    folder.mkdir(parents=True, exist_ok=True)
    write_cases(folder, cases)
    command = [sys.executable, "-m", "attncheck.worker", str(folder), target]
    command += [f"--{name}={value}" for name, value in (options or {}).items() if value]
    jobs = jobs or _worthwhile(len(cases))
    journal = Journal(folder, cases)
    with Crew(command, jobs, timeout) as crew:
        while not crew.hello:
            list(crew.attend())
            progress(0)
        subject, lacking = crew.hello["subject"], crew.hello["lacking"]
        loaded(subject)
        journal.begin(subject if resume else None)
        for place in journal.left():
            if why := lacking[place]:
                journal.add(_record(subject, cases[place], "not applicable", why))
        groups = [[MODEL_TASK]] if model else []
        crew.lay_out(groups + _grouped(cases, journal.left(), jobs))
        while not crew.is_done:
            for task, answer in crew.attend():
                if task == MODEL_TASK:
                    continue
                if isinstance(answer, Lost):
                    answer = _record(subject, cases[int(task)], *answer)
                journal.add(answer)
            progress(len(journal))
    if jobs > 1:  # they did not come in order
        journal.settle()


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
        alike = (case.accumulation, *case.sizes.items()) if jobs > 1 else ()
        groups.setdefault(alike, []).append(str(place))
    return sorted(groups.values(), key=len, reverse=True)

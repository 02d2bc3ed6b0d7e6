"""Runs every fault past every rule, and says which rule finds which.

    python conformance/faults/run.py --out docs/evidence/faults.json
    python conformance/faults/run.py --dtype F32 --operation linear_attention

The second is a part, and no evidence.
A fault is one of attncheck's variants.  Each is run on the cases of its operation: on
those of the smoke set, on those that only the full set has, each in its own shape, and
on the usual test: one square shape, as many key/value heads as query heads, normal
numbers, once causal.
"""

import argparse
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import usual
from correct import implementations
from evidence import (
    OTHER,
    SMOKE,
    USUAL,
    Found,
    as_text,
    document,
    explanations,
    missed,
    unexplained,
)
from measure import look_again, measure, operation
from rich.console import Console
from rich.progress import Progress, TaskID
from rules import OURS
from table import show

from attncheck.case import DTYPES, Case
from attncheck.operations import OPERATIONS
from attncheck.suite import OPERATION_RECIPES, RECIPES, build, cases, operation_cases

Task = tuple[Any, Callable, tuple]
"""A key, a function of `measure`, and its arguments."""


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 1 where a survivor is not explained, or a goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n")[0],
        epilog="Example: python conformance/faults/run.py --dtype F32",
    )
    parser.add_argument("--dtype", action="append", choices=list(DTYPES))
    parser.add_argument("--operation", choices=OPERATIONS, help="only its faults")
    parser.add_argument("--jobs", type=int, help="processes; one a processor if not")
    parser.add_argument("--out", type=Path, help="where the evidence goes, as JSON")
    options = parser.parse_args(argv)
    dtypes = [name for name in DTYPES if name in (options.dtype or DTYPES)]
    with Progress(console=Console(stderr=True), transient=True) as progress:
        found = collect(sets(dtypes, options.operation), options.jobs, progress)
    report = document(found)
    show(report)
    failures = [*unexplained(report, explanations()), *missed(report)]
    for failure in failures:
        print(failure, file=sys.stderr)
    if options.out:
        options.out.write_text(as_text(report), "utf-8")
    return 1 if failures else 0


def sets(dtypes: Sequence[str], only: str | None) -> dict[str, list[Case]]:
    """Where cases come from → the cases, of all operations or of one."""
    rest = [r for r in (*RECIPES, *OPERATION_RECIPES) if not r.smoke]
    every = {
        USUAL: usual.cases(dtypes),
        SMOKE: [*cases("smoke", dtypes), *operation_cases("smoke", dtypes)],
        OTHER: [case for recipe in rest for case in build(recipe, dtypes)],
    }
    return {
        where: [case for case in some if only in (None, operation(case))]
        for where, some in every.items()
    }


def collect(
    chosen: dict[str, list[Case]], jobs: int | None, progress: Progress
) -> Found:
    """All measurements, by so many processes, or as many as there are processors."""
    found = Found(chosen)
    started = multiprocessing.get_context("spawn")  # torch has threads
    workers = jobs or len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(workers, mp_context=started) as pool:
        for task, add in ((one_by_one, found.add), (together, found.add_together)):
            tasks = list(task(found))
            bar = progress.add_task(task.__doc__.rstrip("."), total=len(tasks))
            for key, result in _results(pool, tasks, progress, bar):
                add(key, result)
    return found


def one_by_one(found: Found) -> Iterable[Task]:
    """Faults on single cases."""
    tasks = [
        (where, measure, (case,)) for where, some in found.sets.items() for case in some
    ]
    return sorted(tasks, key=lambda task: -_size(task[2][0]))


def together(found: Found) -> Iterator[Task]:
    """Faults on all cases of an operation together."""
    for where, dtype, op in product((USUAL, SMOKE), found.dtypes, ("", *OPERATIONS)):
        some = [
            case
            for case in found.sets[where]
            if (case.dtype, operation(case)) == (dtype, op)
        ]
        for rule in OURS:
            unseen = found.unseen(rule, where, dtype, op)
            for name in (*unseen, *implementations(dtype, op)):
                key = rule.name, where, dtype, op, name
                yield key, look_again, (name, some, rule.looks_at)


def _results(
    pool: ProcessPoolExecutor, tasks: Sequence[Task], progress: Progress, bar: TaskID
) -> Iterator[tuple[Any, Any]]:
    """Key and result of every task, as they come."""
    running = {pool.submit(call, *given): key for key, call, given in tasks}
    for one in as_completed(running):
        progress.advance(bar)
        yield running[one], one.result()


def _size(case: Case) -> float:
    """About how long a case takes: the long ones come first."""
    return float(np.prod([case.sizes[axis] for axis in "bnijd"]))


if __name__ == "__main__":
    sys.exit(main())

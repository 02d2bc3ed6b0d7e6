"""Derives what cases must give while a subject runs them, in processes of its own.

Run as `python -m attncheck.ahead FOLDER PART PARTS PROFILE…`: derives one of equal
parts of the cases in the folder, by one profile after the other, and leaves it in the
cache, where the judge finds it.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

from attncheck.budget import PROFILES
from attncheck.cache import Cache
from attncheck.case import Case
from attncheck.exchange import read_cases
from attncheck.judging import Judge

MOST_PROCESSES = 4
"""Every one holds the cases."""

WORTH_A_PROCESS = 50
"""Cases that are worth another start of Python."""

POLL_SECONDS = 0.2


class Ahead:
    """The processes that derive; leaving the context ends them.

    What goes wrong in one goes wrong again in the judge, where it can be told.

    Args:
        cache: where they leave what they derive; one that keeps nothing starts none.
        jobs: how many there are at most; by default one a processor.
    """

    def __init__(self, cache: Cache, jobs: int | None = None) -> None:
        self._cache = cache
        self._jobs = jobs or min(os.cpu_count() or 1, MOST_PROCESSES)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._begun: set[str] = set()

    def __enter__(self) -> "Ahead":
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def begin(
        self, folder: Path, cases: Sequence[Case], profiles: Sequence[str]
    ) -> None:
        """Starts to derive what is not kept of the cases in a folder.

        Once for a profile: all subjects of a run have the same cases.
        """
        new = [x for x in profiles if x in PROFILES and x not in self._begun]
        if not self._cache.is_on:
            return
        self._begun |= set(new)
        left = sum(not self._cache.keeps(c.sha256, x) for c in cases for x in new)
        parts = min(self._jobs, left // WORTH_A_PROCESS)
        for part in range(parts):
            command = [sys.executable, "-m", "attncheck.ahead"]
            arguments = [str(folder), str(part), str(parts), *new]
            self._processes.append(
                subprocess.Popen(
                    [*command, *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            )

    def as_derived(self, cases: Sequence[Case], profile: str) -> Iterator[Case]:
        """The cases, each when it is derived, or when none is being derived."""
        left = list(cases)
        while left and any(process.poll() is None for process in self._processes):
            ready = {c.id for c in left if self._cache.keeps(c.sha256, profile)}
            yield from (case for case in left if case.id in ready)
            left = [case for case in left if case.id not in ready]
            if not ready:  # to look takes time that others work in
                time.sleep(POLL_SECONDS)
        yield from left


def main(argv: Sequence[str]) -> None:
    """Derives a part of the cases in a folder."""
    folder, part, parts, *profiles = argv
    # By hash, so that what takes long is in all parts alike.
    cases = sorted(read_cases(Path(folder)), key=lambda case: case.sha256)
    for profile, case in product(profiles, cases[int(part) :: int(parts)]):
        Judge(Cache.of_user()).budget(case, profile)  # one a case: it forgets nothing


if __name__ == "__main__":
    main(sys.argv[1:])

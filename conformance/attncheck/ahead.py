"""Derives what cases must give while a subject runs them, in processes of its own.

Run as `python -m attncheck.ahead FOLDER PROFILE PART PARTS`: derives one of equal parts
of the cases in the folder and leaves it in the cache, where the judge finds it.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
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

POLL_SECONDS = 0.05


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

    def __enter__(self) -> "Ahead":
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def begin(self, folder: Path, cases: Sequence[Case], profile: str) -> None:
        """Starts to derive what is not kept of the cases in a folder."""
        left = sum(not self._cache.keeps(case.sha256, profile) for case in cases)
        parts = min(self._jobs, left // WORTH_A_PROCESS)
        if not self._cache.is_on or profile not in PROFILES:
            return
        for part in range(parts):
            command = [sys.executable, "-m", "attncheck.ahead"]
            arguments = [str(folder), profile, str(part), str(parts)]
            self._processes.append(
                subprocess.Popen(
                    [*command, *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            )

    def wait(self, progress: Callable[[], None] = lambda: None) -> None:
        """Until all is derived.

        Args:
            progress: called often; what it raises ends the wait.
        """
        for process in self._processes:
            while process.poll() is None:
                progress()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(POLL_SECONDS)


def main(argv: Sequence[str]) -> None:
    """Derives a part of the cases in a folder."""
    folder, profile, part, parts = argv
    # By hash, so that what takes long is in all parts alike.
    cases = sorted(read_cases(Path(folder)), key=lambda case: case.sha256)
    for case in cases[int(part) :: int(parts)]:
        Judge(Cache.of_user()).budget(case, profile)  # one a case: it forgets nothing


if __name__ == "__main__":
    main(sys.argv[1:])

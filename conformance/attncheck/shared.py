"""Results of one subject, collected while they are asked for, shared by processes.

The cases are divided into portions, each of which one worker runs in order.  Whoever
first asks for a result of a portion has the portion collected in the background, and
waits for that result only.  Whoever asks meanwhile, in this process or in another one,
waits for the same worker.  Where a collector is gone, the next to ask takes over what
is left.  So every case is run once, as soon as it is needed, by `collect`.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple

from filelock import FileLock, Timeout

from attncheck.case import Case
from attncheck.collect import collect
from attncheck.crew import POLL_SECONDS
from attncheck.exchange import RESULTS, Result, read_result
from attncheck.lines import ExchangeError, Line


class StoppedError(Exception):
    """Nobody here wants results any more."""


class SharedResults:
    """The results of a subject on some cases.

    Args:
        target: what `attncheck.target.load` takes.
        folder: the same for all who share, and nobody else's.
        options: keyword arguments of `load`.
        workers: arguments of `collect` about its processes.
        portions: how many workers may run at once; the same for all who share.
    """

    def __init__(
        self,
        target: str,
        cases: Sequence[Case],
        folder: Path,
        *,
        options: Mapping[str, str | None],
        workers: Mapping[str, Any],
        portions: int = 1,
    ) -> None:
        run = partial(collect, target, options=options, jobs=1, **workers)
        size = -(-len(cases) // portions)
        self._portions = [
            _Portion(cases[first : first + size], folder / str(first), run)
            for first in range(0, len(cases), size or 1)
        ]
        self._of = {case.id: p for p in self._portions for case in p.cases}

    def result(self, case: Case) -> Result:
        """The result of a case; waits for it.

        Raises:
            SubjectError: the target cannot be judged.
            StoppedError: the result is not there, and `stop` was called.
        """
        portion = self._of[case.id]
        while (found := portion.find(case)) is None:
            for failed in (p.error for p in self._portions if p.error is not None):
                raise failed
            portion.start()
            time.sleep(POLL_SECONDS)
        return found

    def stop(self) -> None:
        """Ends what runs in the background here, for good."""
        for portion in self._portions:
            portion.stop()


class _Place(NamedTuple):
    """Where a result is to be read."""

    folder: Path
    line: Line


class _Portion:
    """Cases that one worker runs in order."""

    error: Exception | None = None
    """What ended the collection here, if it did not end well."""

    def __init__(
        self, cases: Sequence[Case], folder: Path, run: Callable[..., None]
    ) -> None:
        self.cases = cases
        self._folder, self._run = folder, run
        folder.mkdir(parents=True, exist_ok=True)
        # Taken by the one thread and given back by another.
        self._lock = FileLock(folder / "lock", thread_local=False)
        self._stopped = Event()
        self._thread: Thread | None = None
        self._read: dict[Path, int] = {}
        """File → bytes of it that were read."""
        self._places: dict[str, _Place] = {}

    def find(self, case: Case) -> Result | None:
        """The result of a case, if there is one by now."""
        if case.id not in self._places:
            self._look()
        if case.id not in self._places:
            return None
        return read_result(*self._places[case.id], case)

    def start(self) -> None:
        """Collects what is missing, in the background, unless somebody does."""
        self._go_on()
        if self._lock.is_locked:  # by this object, which may take it again
            return
        try:
            self._lock.acquire(blocking=False)
        except Timeout:
            return
        self._look()  # who held the lock may have finished meanwhile
        left = [case for case in self.cases if case.id not in self._places]
        if not left:
            self._lock.release()
            return
        place = self._folder / f"run-{len(list(self._runs()))}"
        self._thread = Thread(target=self._collect, args=(left, place), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the collection, if it runs here."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def _collect(self, left: Sequence[Case], place: Path) -> None:
        try:
            self._run(left, place, progress=self._go_on)
        except StoppedError:
            pass
        except Exception as error:  # raised where somebody waits
            self.error = error
        finally:
            self._lock.release()

    def _go_on(self, done: int = 0) -> None:
        if self._stopped.is_set():
            raise StoppedError

    def _runs(self) -> Iterator[Path]:
        """The folders of the collectors so far; each has its own."""
        return self._folder.glob("run-*")

    def _look(self) -> None:
        """Reads the lines of results that were added since."""
        for folder in self._runs():
            path = folder / RESULTS
            if not path.exists():
                continue
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                whole, newline, _ = file.read().rpartition(b"\n")
            self._read[path] = self._read.get(path, 0) + len(whole + newline)
            for text in whole.split(b"\n") if whole else ():
                line = Line(str(path), text)
                with suppress(ExchangeError, KeyError):
                    self._places[line.record()["id"]] = _Place(folder, line)

"""Processes side by side that do tasks, each of which may end its process.

A process that dies or goes silent loses only the task that it was at; a fresh one goes
on with the next.  What the processes are is said in `attncheck.serving`.
"""

import os
import signal
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from attncheck.lines import Line
from attncheck.serving import EXIT_SUBJECT
from attncheck.subject import SubjectError

PATIENCE = 5
"""So many processes lost in a row, and the remaining tasks are not done."""

POLL_SECONDS = 0.01

ENVIRONMENT = {
    # Threads that wait for work leave the processors to those that have some.
    "OMP_WAIT_POLICY": "PASSIVE",
    "OPENBLAS_THREAD_TIMEOUT": "4",
    # No process takes most of a device for itself.
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
}
"""What processes are told, where the caller's environment says nothing else."""

Answer = Mapping[str, Any]


class Lost(NamedTuple):
    """How a process ended at a task."""

    status: str
    """crash or timeout."""
    message: str


class Crew:
    """Processes that do tasks; leaving its context ends them all.

    Args:
        command: what starts one of them.
        size: how many there are at once.
        timeout: seconds that a task may take, or the start of a process.
    """

    def __init__(self, command: Sequence[str], size: int, timeout: float) -> None:
        self.hello: Answer = {}
        """What the first that had started said; nothing before."""
        self._command, self._timeout = command, timeout
        self._processes = [_Process(command) for _ in range(size)]
        self._groups: Iterator[Sequence[str]] = iter(())
        self._is_laid_out = False
        self._returned: list[Sequence[str]] = []
        self._lost = 0

    def __enter__(self) -> "Crew":
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._processes:
            process.end()

    def lay_out(self, groups: Iterable[Sequence[str]]) -> None:
        """Says what there is to do: each group is done by one process, in order."""
        self._groups, self._is_laid_out = iter(groups), True

    @property
    def is_done(self) -> bool:
        """Whether all that was laid out is answered or lost."""
        return not self._processes

    def attend(self) -> Iterator[tuple[str, Answer | Lost]]:
        """Waits for a moment; the tasks that were done or lost in it.

        Raises:
            SubjectError: no process can start, and why.
        """
        time.sleep(POLL_SECONDS)
        for process in list(self._processes):
            has_ended = process.has_ended  # before the answers: they are then complete
            for task, answer in process.answers():
                if task is None:
                    self.hello = self.hello or answer
                else:
                    self._lost = 0
                    yield task, answer
            if has_ended or process.seconds > self._timeout:
                yield from self._lose(process)
            elif process.is_idle and self._is_laid_out:
                self._give(process)

    def _give(self, process: "_Process") -> None:
        """Gives a process something to do, or ends it where there is nothing."""
        if group := self._next():
            process.give(group)
        else:
            self._end(process)

    def _next(self) -> Sequence[str]:
        """What is to be done next; nothing where nothing is left."""
        return self._returned.pop() if self._returned else next(self._groups, ())

    def _lose(self, process: "_Process") -> Iterator[tuple[str, Lost]]:
        self._end(process)
        lost = process.ending(self._timeout)
        if not process.has_started:
            raise SubjectError(process.why_not_started(lost))
        self._lost += 1
        if process.tasks:
            yield process.tasks.popleft(), lost
        if self._lost < PATIENCE:
            if left := process.tasks or self._next():
                self._returned.append(left)
                self._processes.append(_Process(self._command))
            return
        self._returned.append(process.tasks)
        for other in list(self._processes):
            self._end(other)
            self._returned.append(other.tasks)
        why = f"not run: {PATIENCE} processes in a row were lost"
        for group in (*self._returned, *self._groups):
            yield from ((task, Lost("crash", why)) for task in group)

    def _end(self, process: "_Process") -> None:
        process.end()
        self._processes.remove(process)


class _Process:
    """One of them, as it looks from outside."""

    def __init__(self, command: Sequence[str]) -> None:
        # Files without a name: what was said can be read whatever a task does to the
        # folder, and whatever process it leaves behind.
        self._answers = tempfile.TemporaryFile()  # noqa: SIM115
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        self._popen = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=self._answers,
            stderr=self._log,
            env=ENVIRONMENT | os.environ,
        )
        self._read = 0
        self._since = time.monotonic()
        self._in_time = True
        self._last_words = ""
        self.has_started = False
        self.tasks: deque[str] = deque()
        """What it was given and has not done; it is at the first."""

    @property
    def is_idle(self) -> bool:
        """Whether it waits for tasks."""
        return self.has_started and not self.tasks

    @property
    def seconds(self) -> float:
        """For how long it has not said what it should."""
        return 0.0 if self.is_idle else time.monotonic() - self._since

    @property
    def has_ended(self) -> bool:
        """Whether the process is no more."""
        return self._popen.poll() is not None

    def give(self, tasks: Sequence[str]) -> None:
        """Gives it something to do."""
        self.tasks.extend(tasks)
        self._since = time.monotonic()
        assert self._popen.stdin is not None
        with suppress(BrokenPipeError):  # it is lost, which will be seen
            self._popen.stdin.write("".join(f"{task}\n" for task in tasks).encode())
            self._popen.stdin.flush()

    def answers(self) -> Iterator[tuple[str | None, Answer]]:
        """What it has said since it was asked last, each with its task.

        The first thing that it says is of no task.
        """
        file = self._answers.fileno()
        said = os.pread(file, os.fstat(file).st_size - self._read, self._read)
        whole, end, _ = said.rpartition(b"\n")
        self._read += len(whole + end)
        for text in whole.split(b"\n") if end else ():
            task = self.tasks.popleft() if self.has_started else None
            self.has_started = True
            self._since = time.monotonic()
            yield task, Line("an answer", text).record()

    def end(self) -> None:
        """Ends the process, if it has not ended by itself."""
        self._in_time = self.has_ended
        self._popen.kill()
        self._popen.communicate()
        self._log.seek(0)
        log = self._log.read().decode(errors="replace")
        self._last_words = log.strip().rpartition("\n")[2]
        self._log.close()
        self._answers.close()

    def ending(self, timeout: float) -> Lost:
        """How it was lost."""
        code = self._popen.returncode
        if not self._in_time:
            return Lost("timeout", f"no result within {timeout:g} s")
        if code < 0:
            name = signal.Signals(-code).name
            return Lost("crash", f"the process was ended by {name}")
        return Lost("crash", f"the process ended itself with exit status {code}")

    def why_not_started(self, lost: Lost) -> str:
        """One sentence: its own last one, or how it was lost."""
        if self._popen.returncode == EXIT_SUBJECT:
            return self._last_words
        said = self._last_words
        return f"while importing it, {lost.message}; it last said: {said!r}"

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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import psutil

from attncheck.lines import ExchangeError, Line
from attncheck.serving import EXIT_SUBJECT
from attncheck.subject import SubjectError

PATIENCE = 5
"""So many processes lost in a row, and the remaining tasks are not done."""

POLL_SECONDS, WEIGH_SECONDS = 0.01, 0.1
"""How often processes are looked at, and their memory."""

GIB = 2**30

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


class Limits(NamedTuple):
    """What a process may take."""

    seconds: float
    """For a task, or for its start."""
    memory: int
    """Bytes that are resident at once, of the process and those that it started."""

    @classmethod
    def of(cls, seconds: float, gib: float | None = None, *, size: int = 1) -> "Limits":
        """Those of each of `size` processes; by default as much memory as is the
        judge's, of all that the machine has."""
        share = psutil.virtual_memory().total / (size + 1)
        return cls(seconds, int(share if gib is None else gib * GIB))


class Crew:
    """Processes that do tasks; leaving its context ends them all.

    Args:
        command: what starts one of them.
        size: how many there are at once.
        limits: of each of them.
        environment: variables beside those of this process.
        mend: called before a process is started in place of a lost one.
    """

    def __init__(
        self,
        command: Sequence[str],
        size: int,
        limits: Limits,
        environment: Mapping[str, str] | None = None,
        mend: Callable[[], None] = lambda: None,
    ) -> None:
        self.hello: Answer = {}
        """What the first that had started said; nothing before."""
        self._environment = {**ENVIRONMENT, **os.environ, **(environment or {})}
        self._command, self._limits, self._mend = command, limits, mend
        self._processes = [self._process() for _ in range(size)]
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
            for task, answer in process.answers():
                if task is None:
                    self.hello = self.hello or answer
                else:
                    self._lost = 0
                    yield task, answer
            if lost := process.lost(self._limits):
                yield from self._lose(process, lost)
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

    def _lose(self, process: "_Process", lost: Lost) -> Iterator[tuple[str, Lost]]:
        self._end(process)
        if not process.has_started:
            raise SubjectError(process.why_not_started(lost))
        self._lost += 1
        if process.tasks:
            yield process.tasks.popleft(), lost
        if self._lost < PATIENCE:
            if left := process.tasks or self._next():
                self._returned.append(left)
                self._mend()
                self._processes.append(self._process())
            return
        self._returned.append(process.tasks)
        for other in list(self._processes):
            self._end(other)
            self._returned.append(other.tasks)
        why = f"not run: {PATIENCE} processes in a row were lost"
        for group in (*self._returned, *self._groups):
            yield from ((task, Lost("crash", why)) for task in group)

    def _process(self) -> "_Process":
        return _Process(self._command, self._environment)

    def _end(self, process: "_Process") -> None:
        process.end()
        self._processes.remove(process)


class _Process:
    """One of them, as it looks from outside."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        # Files without a name: what was said can be read whatever a task does to the
        # folder, and whatever process it leaves behind.
        self._answers = tempfile.TemporaryFile()  # noqa: SIM115
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        self._popen = psutil.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=self._answers,
            stderr=self._log,
            env=environment,
            start_new_session=True,  # so that what it starts can be ended with it
        )
        self._read = 0
        self._since = self._weighed = time.monotonic()
        self._code: int | None = None
        self._is_forged = False
        self._last_words = ""
        self.has_started = False
        self.tasks: deque[str] = deque()
        """What it was given and has not done; it is at the first."""

    @property
    def is_idle(self) -> bool:
        """Whether it waits for tasks."""
        return self.has_started and not self.tasks

    def give(self, tasks: Sequence[str]) -> None:
        """Gives it something to do."""
        self.tasks.extend(tasks)
        self._since = time.monotonic()
        with suppress(BrokenPipeError):  # it is lost, which will be seen
            self._popen.stdin.write("".join(f"{task}\n" for task in tasks).encode())
            self._popen.stdin.flush()

    def answers(self) -> Iterator[tuple[str | None, Answer]]:
        """What it has said since it was asked last, each with its task.

        The first thing that it says is of no task.
        """
        self._code = self._popen.poll()  # first: what was said is then all
        file = self._answers.fileno()
        said = os.pread(file, os.fstat(file).st_size - self._read, self._read)
        whole, end, _ = said.rpartition(b"\n")
        self._read += len(whole + end)
        for text in whole.split(b"\n") if end else ():
            at = next(iter(self.tasks), "") if self.has_started else None
            if (answer := _answer(text, at)) is None:
                self._is_forged = True
                return
            if self.has_started:
                self.tasks.popleft()
            self.has_started, self._since = True, time.monotonic()
            yield at, answer

    def lost(self, limits: Limits) -> Lost | None:
        """How it was lost by its last answer, or None where it was not."""
        if self._code is not None:
            return Lost("crash", _ending(self._code))
        if self._is_forged:
            return Lost("crash", "the subject answered in the worker's place")
        now = time.monotonic()
        if not self.is_idle and now - self._since > limits.seconds:
            return Lost("timeout", f"no result within {limits.seconds:g} s")
        if now - self._weighed < WEIGH_SECONDS:
            return None
        self._weighed, held = now, self._resident()
        if held <= limits.memory:
            return None
        sizes = f"{held / GIB:.2g} of {limits.memory / GIB:.2g} GiB of memory"
        return Lost("crash", f"the process held {sizes}")

    def _resident(self) -> int:
        """Bytes of the process, and of those that it started."""
        used = 0
        with suppress(psutil.Error):  # they come and go
            for process in (self._popen, *self._popen.children(recursive=True)):
                used += process.memory_info().rss
        return used

    def end(self) -> None:
        """Ends the process, and those that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.communicate()
        self._log.seek(0)
        log = self._log.read().decode(errors="replace")
        self._last_words = log.strip().rpartition("\n")[2]
        self._log.close()
        self._answers.close()

    def why_not_started(self, lost: Lost) -> str:
        """One sentence: its own last one, or how it was lost."""
        if self._popen.returncode == EXIT_SUBJECT:
            return self._last_words
        said = f"; it last said: {self._last_words!r}" if self._last_words else ""
        return f"while importing it, {lost.message}{said}"


def _answer(text: bytes, task: str | None) -> Answer | None:
    """The answer to a task that a line holds; None where it is none."""
    try:
        said = Line("an answer", text).record()
    except ExchangeError:
        return None
    answer = said.get("answer")
    return answer if said.get("task") == task and isinstance(answer, dict) else None


def _ending(code: int) -> str:
    """How a process ended by itself."""
    if code < 0:
        return f"the process was ended by {signal.Signals(-code).name}"
    return f"the process ended itself with exit status {code}"

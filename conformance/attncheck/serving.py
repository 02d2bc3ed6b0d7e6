"""A process that does tasks: what it says to the one that started it, and how.

The first line on stdout says what the process is there for.  Every line on stdin is
then a task, and is answered by a line on stdout, which repeats it.  What a task does to
its process stays in this one: whoever started it (`attncheck.crew`) sees which task has
no answer.
"""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from threading import Thread
from typing import Any, TextIO

from attncheck.lines import written
from attncheck.subject import SubjectError

EXIT_SUBJECT = 78
"""Exit status when the target is no subject; the last line of stderr says why."""

PR_SET_PDEATHSIG = 1
"""Of Linux's prctl: the signal that comes when the parent ends."""

Answer = Mapping[str, Any]
Start = Callable[[], tuple[Answer, Callable[[str], Answer]]]
"""Makes what is said first, and what does a task."""


def serve(start: Start) -> int:
    """Starts, and does every task that is asked for; the exit status of the process."""
    _end_with_parent()
    tasks, answers = _own_streams()
    try:
        hello, do = start()
    except SubjectError as error:
        print(*str(error).split("\n"), file=sys.stderr)  # one line
        return EXIT_SUBJECT
    _say(answers, None, hello)
    for task in (line.rstrip("\n") for line in tasks):
        _say(answers, task, do(task))
    return 0


def _own_streams() -> tuple[TextIO, TextIO]:
    """What this process was given as stdin and stdout, out of a subject's reach.

    A subject reads nothing, and what it prints, from C too, goes to stderr.
    """
    tasks, answers = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return (
        os.fdopen(tasks, encoding="utf-8"),
        os.fdopen(answers, "w", encoding="utf-8", errors="replace"),
    )


def _say(answers: TextIO, task: str | None, answer: Answer) -> None:
    answers.write(written({"task": task, "answer": answer}) + "\n")
    answers.flush()


def _end_with_parent() -> None:
    """Has this process ended soon after the one that started it and waits for it."""
    parent = os.getppid()
    if sys.platform == "linux":  # also where a task never gives the GIL back
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)

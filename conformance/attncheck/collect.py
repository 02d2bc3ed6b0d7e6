"""Runs one subject over cases in worker processes and survives whatever it does.

A worker that dies or goes silent loses only the case that it was at: that case gets a
result that says so, and a fresh worker goes on with the next.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from attncheck.case import Case
from attncheck.exchange import (
    LOADED,
    RESULTS,
    Result,
    append_result,
    pending,
    repair,
    write_cases,
)
from attncheck.subject import SubjectError
from attncheck.worker import EXIT_SUBJECT

PATIENCE = 5
"""So many workers lost in a row, and the remaining cases are not run."""

POLL_SECONDS = 0.05


def collect(
    target: str,
    cases: Sequence[Case],
    folder: Path,
    *,
    options: Mapping[str, str | None] | None = None,
    model: bool = False,
    resume: bool = False,
    timeout: float = 60.0,
    progress: Callable[[int], None] = lambda done: None,
) -> None:
    """Leaves the results of `target` on `cases` in `folder`, beside the cases.

    Args:
        target: what `attncheck.target.load` takes.
        options: its keyword arguments.
        model: run the subject inside the real model as well, if it has multi-head
            attention.
        resume: keep what the same subject had finished in this folder.
        timeout: seconds that one case may take, the import of the subject included.
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
    command += ["--model"] if model else []
    lost, subject, before = 0, {"name": target}, len(cases)
    begin = ["--begin", "resumed" if resume else "new"]
    while True:
        status, why = run_worker([*command, *begin], folder, timeout, progress)
        left, begin = pending(folder, cases), []
        if not left:
            return
        lost = lost + 1 if len(left) == before else 1
        before = len(left) - 1
        for case in left if lost == PATIENCE else left[:1]:
            result = Result(case.id, status, why, subject=subject, sha256=case.sha256)
            append_result(folder, result)
            why = f"not run: {PATIENCE} workers in a row were lost"
        if lost == PATIENCE:
            return


def run_worker(
    command: Sequence[str],
    folder: Path,
    timeout: float,
    progress: Callable[[int], None],
) -> tuple[str, str]:
    """Runs one worker until it ends; status and message of the case it was lost at.

    Raises:
        SubjectError: the target cannot be judged, or importing it ends the process.
    """
    (folder / LOADED).unlink(missing_ok=True)
    with tempfile.TemporaryFile() as log:
        # Threads that wait for work leave the processors to those that have some.
        env = {"OMP_WAIT_POLICY": "PASSIVE", **os.environ}
        process = subprocess.Popen(command, stdout=log, stderr=log, env=env)
        try:
            in_time = _watch(process, folder, timeout, progress)
        finally:
            process.kill()
            process.wait()
        log.seek(0)
        said = log.read().decode(errors="replace").strip().rpartition("\n")[2]
    status, message = _ending(process.returncode, in_time, timeout)
    if process.returncode == EXIT_SUBJECT:
        raise SubjectError(said)
    if not (folder / LOADED).exists():
        raise SubjectError(f"while importing it, {message}; it last said: {said!r}")
    repair(folder)
    return status, message


def _watch(
    process: subprocess.Popen,
    folder: Path,
    timeout: float,
    progress: Callable[[int], None],
) -> bool:
    """Waits for the worker's end; False where it made no progress for too long."""
    size, since, done = -1, time.monotonic(), 0
    while process.poll() is None:
        path = folder / RESULTS
        now = path.stat().st_size if path.exists() else 0
        if now != size:
            size, since = now, time.monotonic()
            done = path.read_bytes().count(b"\n") if size else 0
        progress(done)
        if time.monotonic() - since > timeout:
            return False
        time.sleep(POLL_SECONDS)
    return True


def _ending(code: int, in_time: bool, timeout: float) -> tuple[str, str]:
    """How a worker was lost, as a status and a message."""
    if not in_time:
        return "timeout", f"no result within {timeout:g} s"
    if code < 0:
        return "crash", f"the process was ended by {signal.Signals(-code).name}"
    return "crash", f"the process ended itself with exit status {code}"

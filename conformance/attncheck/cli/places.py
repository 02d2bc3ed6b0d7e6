"""Where a run works and leaves things: its folder, its files and the cache."""

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from attncheck.cache import Cache
from attncheck.cli.app import UsageError, note, progress_bar

PATIENCE = 2.0
"""Seconds of silence after a verdict."""


def check_places(*files: Path | None) -> None:
    """Raises UsageError before a long run, not after it."""
    for file in files:
        if file is None:
            continue
        if file.is_dir():
            raise UsageError(f"{str(file)!r} is a folder, and no file to write")
        if not file.resolve().parent.is_dir():
            raise UsageError(f"there is no folder for {str(file)!r}")


@contextmanager
def place_of(out: Path | None, resume: bool) -> Iterator[Path]:
    """The folder to work in: the one given, or one that goes away afterwards.

    Raises:
        UsageError: there is nothing to resume in the latter.
    """
    if resume and out is None:
        raise UsageError("--resume goes on in a folder: say which, with --out")
    if out is not None:
        yield out
        return
    with tempfile.TemporaryDirectory(prefix="attncheck-") as folder:
        yield Path(folder)


def tidy(cache: Cache) -> None:
    """Removes what is too much in the cache: last, because a slow disk takes minutes.

    It says so where it takes long, and may be interrupted.
    """
    sys.stdout.flush()
    begun, shown = time.monotonic(), False
    with progress_bar() as bar, suppress(KeyboardInterrupt):
        task = bar.add_task("tidying the cache", total=None, visible=False)

        def show(files: int) -> None:
            nonlocal shown
            if not shown and time.monotonic() - begun > PATIENCE:
                shown = True
                note("done, but for tidying the cache, which may be interrupted")
                bar.update(task, visible=True)
            bar.update(task, description=f"tidying the cache: {files} files")

        cache.prune(show)

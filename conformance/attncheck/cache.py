"""What is derived from a case, kept on disk from one run to the next.

Files are named by the hash of the case and lie in a folder named by the hash of the
code that derives them, so that nothing is ever read that today's code would not write.
Beside them lies what JAX compiles, which checks for itself that it is of today's code.
The environment variable ATTNCHECK_CACHE names another place; empty, it switches the
cache off.
"""

import hashlib
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields
from functools import cache
from itertools import count
from pathlib import Path

import numpy as np
from platformdirs import user_cache_path
from safetensors import SafetensorError

import attncheck.budget
from attncheck import case, definition, floats, formulas, operations, pairs
from attncheck.budget import Budget
from attncheck.definition import Expected
from attncheck.exchange import ExchangeError, read_arrays, write_arrays

_OURS = re.compile(
    r"[0-9a-f]{16}/[0-9a-f]{64}(-[\w+-]+)?\.(safetensors|\d+)"
    r"|jax/[\w.-]+-[0-9a-f]{64}-cache"
)
"""Folder and name of a file that is written here."""

LIMIT = 2**32
"""Bytes; when a run leaves more, files go.  A full set has 2.4 GB, of which 1.5
are budgets, and those again under another profile."""

COMPILED = "jax"
"""The folder of what JAX compiles."""


class Cache:
    """Expected values and budgets by the hash of their case.

    Args:
        folder: None keeps nothing.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    @classmethod
    def of_user(cls) -> "Cache":
        """The cache in the user's cache folder, or where ATTNCHECK_CACHE says."""
        place = _place()
        return cls(place / _code_hash() if place else None)

    @property
    def is_on(self) -> bool:
        """Whether it keeps anything."""
        return self._folder is not None

    def keeps(self, sha256: str, profile: str) -> bool:
        """Whether a case's budget under a profile is there, and its expected values."""
        paths = self._path(sha256), self._path(f"{sha256}-{profile}")
        return all(path is not None and path.exists() for path in paths)

    def expected(self, sha256: str) -> Expected | None:
        """The expected values of a case, if they are kept."""
        arrays = self._read(sha256)
        return None if arrays is None else Expected(**arrays)

    def keep_expected(self, sha256: str, expected: Expected) -> None:
        """Keeps the expected values of a case."""
        values = {f.name: getattr(expected, f.name) for f in fields(expected)}
        self._write(sha256, {n: x for n, x in values.items() if x is not None})

    def budget(self, sha256: str, profile: str) -> Budget | None:
        """The budget of a case under a profile, if it is kept."""
        arrays = self._read(f"{sha256}-{profile}")
        if arrays is None:
            return None
        why = bytes(arrays.pop("dependent")).decode()
        parts: dict[str, dict[str, np.ndarray]] = {
            part: {} for part in ("bounds", "linear", "deviation")
        }
        for name, array in arrays.items():
            part, _, result = name.partition(".")
            parts[part][result] = array
        return Budget(dependent=why or None, **parts)

    def keep_budget(self, sha256: str, profile: str, budget: Budget) -> None:
        """Keeps the budget of a case under a profile."""
        arrays = {
            f"{part}.{name}": array
            for part in ("bounds", "linear", "deviation")
            for name, array in getattr(budget, part).items()
        }
        why = (budget.dependent or "").encode()
        arrays["dependent"] = np.frombuffer(why, np.uint8)
        self._write(f"{sha256}-{profile}", arrays)

    def prune(self, progress: Callable[[int], None] = lambda files: None) -> None:
        """Removes what was read longest ago, all code's files counted, over LIMIT.

        What is compiled goes last: to make it costs a hundred times as much a byte.

        Args:
            progress: called with the number of files looked at or removed, often.
        """
        if self._folder is None or not self._folder.exists():
            return
        stats, done = [], count(1)
        for file in filter(_is_ours, self._folder.parent.glob("*/*")):
            with suppress(FileNotFoundError):  # another run may prune as well
                found = file.stat()
                is_compiled = file.parent.name == COMPILED
                stats.append((is_compiled, found.st_atime, found.st_size, file))
            progress(next(done))
        stats.sort()
        excess = sum(size for *_, size, _ in stats) - LIMIT
        for *_, size, file in stats:
            if excess <= 0:
                return
            file.unlink(missing_ok=True)
            excess -= size
            progress(next(done))

    def _read(self, name: str) -> dict[str, np.ndarray] | None:
        path = self._path(name)
        if path is None or not path.exists():
            return None
        try:
            return read_arrays(path)
        except ExchangeError:  # damaged: derived anew
            return None

    def _write(self, name: str, arrays: Mapping[str, np.ndarray]) -> None:
        path = self._path(name)
        if path is None:
            return
        # Whole or not at all, whoever else is writing; and a disk that is full or may
        # not be written costs time, not the run.
        draft = path.with_suffix(f".{os.getpid()}")
        with suppress(OSError, SafetensorError):
            write_arrays(draft, arrays)
            draft.replace(path)

    def _path(self, name: str) -> Path | None:
        return None if self._folder is None else self._folder / f"{name}.safetensors"


def compiled_code() -> dict[str, str]:
    """The variables with which JAX keeps what it compiles from one process to the next.

    It compiles every operation for every shape, which takes most of a run's time.
    Whoever has told JAX where to keep code is not told otherwise.
    """
    place = _place()
    if place is None or "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return {}
    return {
        "JAX_COMPILATION_CACHE_DIR": str(place / COMPILED),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


def _place() -> Path | None:
    place = os.environ.get("ATTNCHECK_CACHE", str(user_cache_path("attncheck")))
    return Path(place) if place else None


def _is_ours(file: Path) -> bool:
    """Whether the file was written for this module, by the shape of its name."""
    return bool(_OURS.fullmatch(f"{file.parent.name}/{file.name}"))


@cache
def _code_hash() -> str:
    """Hash of NumPy's version and of the code that the kept values come from."""
    package = Path(attncheck.budget.__file__).parent
    modules = case, definition, floats, formulas, pairs
    files = [Path(str(module.__file__)) for module in modules]
    for folder in (package, Path(operations.__file__).parent):
        files += sorted(folder.glob("*.py"))
    digest = hashlib.sha256(np.__version__.encode())
    for path in [*files, Path(__file__)]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]

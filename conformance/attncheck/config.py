"""What to judge and how: `[tool.attncheck]` of pyproject.toml, and what is given.

Every door asks here, so that all understand the same keys and say the same of a wrong
one.  What is given, on a command line, wins over what the file says.
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from attncheck import frameworks
from attncheck.budget import PROFILES
from attncheck.case import DTYPES
from attncheck.suggest import no_such
from attncheck.suite import SETS

FILE, TABLE = "pyproject.toml", "attncheck"

TEXT, TEXTS, NUMBER = "a string", "a string or a list of strings", "a number"

KEYS: Mapping[str, str] = {
    "subject": TEXTS,
    "set": TEXT,
    "dtype": TEXTS,
    "profile": TEXT,
    "framework": TEXT,
    "accepts": TEXT,
    "waivers": TEXT,
    "timeout": NUMBER,
    "memory": NUMBER,
    "python": TEXT,
}
"""The keys of the table, named as the options of the doors, and what each is."""


class ConfigError(ValueError):
    """A setting that says nothing, or nothing that is known; one sentence."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a door needs to know.

    Raises:
        ConfigError: a set, dtype, profile or framework that there is not, or a time
            that is none.
    """

    subject: tuple[str, ...] = ()
    """Targets, as `attncheck.target.load` takes them."""
    set: str = SETS[0]
    dtype: tuple[str, ...] = ()
    """Empty: all."""
    profile: str | None = None
    """None: the one that a subject declares."""
    framework: str | None = None
    accepts: str | None = None
    waivers: Path | None = None
    timeout: float = 60.0
    """Seconds that one case may take."""
    memory: float | None = None
    """GiB that a worker may hold; None: its share of the machine's."""
    python: str | None = None
    """The interpreter that runs the subject; None: the judge's own."""

    def __post_init__(self) -> None:
        _check("set", SETS, self.set)
        _check("dtype", DTYPES, *self.dtype)
        _check("profile", PROFILES, self.profile)
        _check("framework", frameworks.NAMES, self.framework)
        if not 0 < self.timeout < float("inf"):
            raise ConfigError(f"timeout is a number of seconds, not {self.timeout:g}")
        if self.memory is not None and not 0 < self.memory < float("inf"):
            raise ConfigError(f"memory is a number of GiB, not {self.memory:g}")

    @property
    def options(self) -> dict[str, str | None]:
        """The keyword arguments of `attncheck.target.load`."""
        names = ("framework", "accepts", "profile")
        return {name: getattr(self, name) for name in names}

    @property
    def workers(self) -> dict[str, Any]:
        """The keyword arguments of `attncheck.collect.collect` about its processes."""
        names = ("timeout", "memory", "python")
        return {name: getattr(self, name) for name in names}


def settings(folder: Path, **given: Any) -> Settings:
    """What the nearest table says, and over it what is `given`; None is not given.

    Args:
        folder: where to look first; then in its parents.

    Raises:
        ConfigError: see `Settings`; or the table has an unknown key, or a value of
            another type.
    """
    found = _table(folder)
    said = Settings() if found is None else _read(*found, folder)
    for key, value in given.items():
        if KEYS[key] == TEXTS:
            given[key] = tuple(value or ()) or None
    return replace(said, **{k: x for k, x in given.items() if x is not None})


def _check(what: str, known: Mapping | tuple[str, ...], *names: str | None) -> None:
    for name in names:
        if name is not None and name not in known:
            raise ConfigError(no_such(what, name, known))


def _table(folder: Path) -> tuple[Path, Any] | None:
    """The nearest pyproject.toml that has the table, and the table."""
    for path in (place / FILE for place in (folder, *folder.parents)):
        if not path.is_file():
            continue
        try:
            tool = tomllib.loads(path.read_text("utf-8")).get("tool")
        except ValueError as error:  # of TOML, or of UTF-8
            raise ConfigError(f"{path}: {error}") from error
        if isinstance(tool, dict) and TABLE in tool:
            return path, tool[TABLE]
    return None


def _read(path: Path, table: Any, folder: Path) -> Settings:
    """What a table says; its paths are relative to its own folder."""
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: [tool.{TABLE}] is a table, not {table!r}")
    said = dict(table)
    try:
        for key, value in table.items():
            _check(f"a key of [tool.{TABLE}]", KEYS, key)
            if not _is(KEYS[key], value):
                raise ConfigError(f"{key} is {KEYS[key]}, not {value!r}")
            if KEYS[key] == TEXTS:
                said[key] = (value,) if isinstance(value, str) else tuple(value)
        if "subject" in said:
            said["subject"] = tuple(_from(folder, path, x) for x in said["subject"])
        if "waivers" in said:
            said["waivers"] = path.parent / said["waivers"]
        if os.sep in said.get("python", ""):  # else a name that PATH knows
            said["python"] = str(path.parent / said["python"])
        return Settings(**said)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def _is(kind: str, value: Any) -> bool:
    if kind == NUMBER:
        return isinstance(value, int | float) and not isinstance(value, bool)
    values = value if kind == TEXTS and isinstance(value, list) else [value]
    return all(isinstance(x, str) for x in values)


def _from(folder: Path, path: Path, target: str) -> str:
    """A `file.py:function` that the table names, as one in `folder` names it."""
    place, colon, name = target.rpartition(":")
    if not place.endswith(".py"):
        return target
    return os.path.relpath(path.parent / place, folder) + colon + name

"""The subjects that ship with the judge: one file a library.

Every file but `attnref.py` says which distributions it needs (`PACKAGES`), where the
library is documented (`DOCS`), and names its subjects (`SUBJECTS`): name → what makes
the `Subject`, or a `Library` that makes one.  Only making one imports the library.

A file whose subjects want lengths that are multiples of some number says so, too
(`MULTIPLE`), so does one that is too slow for the smoke set (`BOARD_SET`), and one
whose code is this project's own, and lies elsewhere (`HOME`).  Packages and set may be
given by the names of the subjects.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from attncheck.library import Library
from attncheck.subject import Subject


@dataclass(frozen=True)
class Entry:
    """A subject that can be made where its packages are installed."""

    name: str
    make: Callable[[], Library | Subject]
    packages: tuple[str, ...]
    docs: str
    home: str
    """The module whose code it is."""
    multiple: int = 1
    board_set: str = "smoke"
    """The set of the cases that the board has of it."""

    def __call__(self) -> Subject:
        """Makes the subject; imports the library."""
        made = self.make()
        return made.subject() if isinstance(made, Library) else made

    @property
    def missing(self) -> list[str]:
        """Those of its packages that are not installed."""
        return [name for name in self.packages if not _is_installed(name)]

    @property
    def is_ours(self) -> bool:
        """Whether it is code of this project."""
        return self.home.startswith("attnref.")

    @property
    def versions(self) -> dict[str, str]:
        """Package → its installed version."""
        return {name: version(name) for name in self.packages}


def _entries() -> Iterator[Entry]:
    for path in sorted(Path(__file__).parent.glob("*.py")):
        if path.stem not in ("__init__", "attnref"):
            module = import_module(f"attncheck.subjects.{path.stem}")
            for name, make in module.SUBJECTS.items():
                multiple = getattr(module, "MULTIPLE", 1)
                board_set = _of(getattr(module, "BOARD_SET", "smoke"), name)
                packages = _of(module.PACKAGES, name)
                home = getattr(module, "HOME", module.__name__)
                yield Entry(
                    name, make, packages, module.DOCS, home, multiple, board_set
                )


def _of(said: Any, name: str) -> Any:
    """What a file says of all of its subjects, or of this one by its name."""
    return said[name] if isinstance(said, Mapping) else said


def _is_installed(name: str) -> bool:
    try:
        return bool(version(name))
    except PackageNotFoundError:
        return False


LIBRARIES = {entry.name: entry for entry in _entries()}
"""Name → entry, of every library, installed or not."""

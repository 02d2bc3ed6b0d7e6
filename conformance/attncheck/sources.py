"""Whether a subject is still the code that it was."""

import hashlib
import os
import sys

from attncheck.subjects import LIBRARIES
from attncheck.target import BUILT_IN


def digest(target: str) -> str:
    """Hash of the files that a target was imported from; nothing where it has none.

    These are the files of all modules that are imported by now and lie in its package,
    or, if it is in none, beside its file.
    """
    place = target if target in BUILT_IN else target.rpartition(":")[0]
    if target in LIBRARIES:
        place = LIBRARIES[target].home
    module = None if place.endswith(".py") else sys.modules[place]
    file = place if module is None else getattr(module, "__file__", None) or ""
    if not file:  # built into Python, or a folder of packages
        return ""
    is_package = hasattr(module, "__path__")
    home = os.path.dirname(os.path.abspath(file))
    found = hashlib.sha256()
    for path in sorted(filter(os.path.isfile, _imported())):
        folder = os.path.dirname(path)
        if folder == home or (is_package and folder.startswith(home + os.sep)):
            with open(path, "rb") as content:
                found.update(hashlib.sha256(content.read()).digest())
    return found.hexdigest()


def _imported() -> set[str]:
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return {os.path.abspath(file) for file in files if isinstance(file, str)}

"""Another Python than the judge's own, in whose environment the subject is at home.

It needs NumPy, safetensors and ml-dtypes, the type of bfloat16 in NumPy.  The judge and
the spec are lent to it; of the judge's other packages it sees none.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import attncheck
import attnref
from attncheck.subject import SubjectError

NEEDS = {"numpy": "numpy", "safetensors": "safetensors", "ml_dtypes": "ml-dtypes"}
"""Module → how it is called where it is installed from."""

OLDEST = (3, 11)

PROBE = f"""
import sys
from importlib.util import find_spec
old = "" if sys.version_info >= {OLDEST} else "python"
print(old, *(name for name in {list(NEEDS)} if find_spec(name) is None))
"""
"""Prints what is missing."""


@contextmanager
def lent_to(python: str) -> Iterator[Mapping[str, str]]:
    """The variables with which `python` finds the judge.

    Raises:
        SubjectError: it cannot be run, or lacks what it needs.
    """
    if python == sys.executable:
        yield {}
        return
    _check(python)
    with tempfile.TemporaryDirectory(prefix="attncheck-lent-") as place:
        for package in (attncheck, attnref):
            folder = Path(str(package.__file__)).resolve().parent
            Path(place, folder.name).symlink_to(folder, target_is_directory=True)
        paths = [place, *filter(None, [os.environ.get("PYTHONPATH")])]
        yield {"PYTHONPATH": os.pathsep.join(paths)}


def _check(python: str) -> None:
    try:
        ended = subprocess.run([python, "-c", PROBE], capture_output=True, text=True)
    except OSError as error:
        raise SubjectError(f"{python!r} cannot be run: {error.strerror}") from error
    missing = ended.stdout.split()
    if ended.returncode:
        said = ended.stderr.strip().rpartition("\n")[2]
        raise SubjectError(f"{python!r} is no Python that can be used: {said}")
    if "python" in missing:
        oldest = ".".join(map(str, OLDEST))
        raise SubjectError(f"{python!r} is older than Python {oldest}")
    if missing:
        names = " ".join(NEEDS[name] for name in missing)
        raise SubjectError(
            f"{python!r} lacks {names.replace(' ', ', ')}: "
            f"{python} -m pip install {names}"
        )

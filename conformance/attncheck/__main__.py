"""`attncheck`, and `python -m attncheck`."""

import os
import sys
import traceback
from importlib.util import find_spec

NEEDS = (
    "typer",
    "rich",
    "jinja2",
    "safetensors",
    "ml_dtypes",
    "platformdirs",
    "filelock",
    "psutil",
)


EXIT_INTERRUPTED = 130
"""As a shell has it: 128 and the number of the signal."""


def missing() -> str | None:
    """What to install, where something is missing that the judge needs."""
    names = ", ".join(name for name in NEEDS if find_spec(name) is None)
    how = "pip install 'attnref[check]', or '.[check]' in a clone"
    return f"attncheck needs {names}: {how}" if names else None


def main() -> None:
    """The command line."""
    if sys.argv[1:2] == ["gpu"]:  # for machines that have PyTorch, and little else
        from attncheck import gpu

        sys.exit(gpu.main(sys.argv[2:]))
    if (sentence := missing()) is not None:
        print(sentence, file=sys.stderr)
        sys.exit(2)
    try:
        _import_numpy()
        from attncheck.cli import app

        app()
    except KeyboardInterrupt:  # while it is imported: later the application sees to it
        sys.exit(EXIT_INTERRUPTED)
    except Exception:  # status 1 is a verdict, and this is none
        traceback.print_exc()
        sys.exit(2)


def _import_numpy() -> None:
    """Imports NumPy without threads: on small arrays they wait for each other."""
    name = "OPENBLAS_NUM_THREADS"
    if name in os.environ:
        return
    os.environ[name] = "1"
    import numpy  # noqa: F401

    del os.environ[name]  # it is the judge's, not the subject's


if __name__ == "__main__":
    main()

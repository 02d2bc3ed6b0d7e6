"""`attncheck`, and `python -m attncheck`."""

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
)


def missing() -> str | None:
    """What to install, where something is missing that the judge needs."""
    names = ", ".join(name for name in NEEDS if find_spec(name) is None)
    how = "pip install 'attnref[check]', or '.[check]' in a clone"
    return f"attncheck needs {names}: {how}" if names else None


def main() -> None:
    """The command line."""
    if (sentence := missing()) is not None:
        print(sentence, file=sys.stderr)
        sys.exit(2)
    from attncheck.cli import app

    try:
        app()
    except Exception:  # status 1 is a verdict, and this is none
        traceback.print_exc()
        sys.exit(2)


if __name__ == "__main__":
    main()

"""`attncheck`, and `python -m attncheck`."""

import sys
from importlib.util import find_spec

NEEDS = ("typer", "rich", "jinja2", "safetensors", "ml_dtypes")


def main() -> None:
    """The command line; says what to install where something is missing."""
    missing = [name for name in NEEDS if find_spec(name) is None]
    if missing:
        sys.exit(f"attncheck needs {', '.join(missing)}: pip install 'attnref[check]'")
    from attncheck.cli import app

    app()


if __name__ == "__main__":
    main()

"""`attncheck`, and `python -m attncheck`."""

import sys
from importlib.util import find_spec

NEEDS = ("typer", "rich", "jinja2", "safetensors", "ml_dtypes", "platformdirs")


def main() -> None:
    """The command line; says what to install where something is missing."""
    missing = [name for name in NEEDS if find_spec(name) is None]
    if missing:
        names = ", ".join(missing)
        print(f"attncheck needs {names}: pip install 'attnref[check]'", file=sys.stderr)
        sys.exit(2)
    from attncheck.cli import app

    app()


if __name__ == "__main__":
    main()

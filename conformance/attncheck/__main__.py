"""`attncheck`, and `python -m attncheck`."""

import sys
import traceback
from importlib.util import find_spec

NEEDS = ("typer", "rich", "jinja2", "safetensors", "ml_dtypes", "platformdirs")


def main() -> None:
    """The command line; says what to install where something is missing."""
    missing = [name for name in NEEDS if find_spec(name) is None]
    if missing:
        names = ", ".join(missing)
        how = "pip install 'attnref[check]', or '.[check]' in a clone"
        print(f"attncheck needs {names}: {how}", file=sys.stderr)
        sys.exit(2)
    from attncheck.cli import app

    try:
        app()
    except Exception:  # status 1 is a verdict, and this is none
        traceback.print_exc()
        sys.exit(2)


if __name__ == "__main__":
    main()

"""Common mistakes, each a module with what is wrong, what is right, and what it costs.

A page shows the functions `wrong` and `right` as they are, and quotes what `measure`
returns.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

NAMES = sorted(p.stem for p in Path(__file__).parent.glob("*.py") if p.stem[0] != "_")


def measure() -> dict[str, dict[str, Any]]:
    """What each costs, by its name."""
    return {name: import_module(f"mistakes.{name}").measure() for name in NAMES}

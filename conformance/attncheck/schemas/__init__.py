"""The JSON schemas of a case, a result, a report and a board (draft 2020-12)."""

from importlib.resources import files

NAMES = ("case", "result", "report", "board")


def text(name: str) -> str:
    """The schema of that name, as it is published."""
    return files(__name__).joinpath(f"{name}.json").read_text("utf-8")

"""Writes the tables of docs/board.md and of the README, from the evidence.

python conformance/board/tables.py
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Console

from attncheck.board import changes, read
from attncheck.case import DTYPES
from attncheck.report.board import COLUMNS, convention, differs, print_changes

ROOT = Path(__file__).parents[2]
EVIDENCE = ROOT / "docs" / "evidence" / "board.json"
EARLIER = ROOT / "docs" / "evidence" / "earlier"
"""Boards of earlier versions of a library."""

PAGES = ROOT / "docs" / "board.md", ROOT / "README.md"

AT_ONCE = 5
"""Columns of conventions in a table that fits a page."""

Row = Mapping[str, Any]


def main() -> None:
    """Replaces what stands between the marks of each table."""
    tables = made()
    for page in PAGES:
        page.write_text(filled(page.read_text("utf-8"), tables), "utf-8")


def made() -> dict[str, list[str]]:
    """Name → lines of each table, from the evidence."""
    rows = read(EVIDENCE)["rows"]
    tables = conventions, cases, deviations, refusals, versions
    return {table.__name__: list(table(rows)) for table in tables}


def filled(text: str, tables: Mapping[str, Sequence[str]]) -> str:
    """A page with the tables that it has marks for."""
    for name, lines in tables.items():
        mark = f"<!-- board: {name} -->"
        pattern = re.compile(f"{mark}\n.*?{mark}", re.DOTALL)
        whole = "\n".join([mark, *lines, mark])
        text = pattern.sub(lambda _, whole=whole: whole, text)
    return text


def conventions(rows: Sequence[Row]) -> Iterator[str]:
    """Tables of a few conventions each."""
    names = list(COLUMNS)
    for at in range(0, len(names), AT_ONCE):
        few = names[at : at + AT_ONCE]
        yield from head("implementation", *(COLUMNS[name] for name in few))
        for row in rows:
            yield cells(code(row["name"]), *(marked(row, name) for name in few))
        yield ""


def marked(row: Row, name: str) -> str:
    """A convention in words, with ≠ where the spec has it otherwise."""
    return "≠ " * differs(row, name) + convention(row, name)


def cases(rows: Sequence[Row]) -> Iterator[str]:
    """How many cases pass, of those that apply."""
    yield from head("implementation", "version", "set", *DTYPES, "refused", "lost")
    for row in rows:
        totals = [row["totals"].get(dtype) for dtype in DTYPES]
        passed = [f"{one[0]} of {one[1]}" if one else "–" for one in totals]
        lost = sum(row["counts"].get(word, 0) for word in ("crash", "timeout"))
        refused = sum(row["counts"].get(word, 0) for word in ("refused", "error"))
        version = next(iter(row["packages"].values()))
        yield cells(
            code(row["name"]), version, row["set"], *passed, str(refused), str(lost)
        )


def deviations(rows: Sequence[Row]) -> Iterator[str]:
    """What each does otherwise, with the smallest case that shows it."""
    for row in rows:
        if not row["deviations"]:
            continue
        yield from (f"### {row['name']}", "")
        yield from head("the spec", "here", "cases", "shown by", "reported")
        for one in row["deviations"]:
            does, case = code(one["does"].partition(" (")[0]), code(one["case"])
            links = " ".join(f"[{short(url)}]({url})" for url in one["issues"])
            spec = one["spec"]
            if one["name"].startswith("precision-"):
                spec = f"{one['name'].removeprefix('precision-')}: {spec}"
            yield cells(spec, does, str(one["cases"]), case, links)
        yield ""


def refusals(rows: Sequence[Row]) -> Iterator[str]:
    """What each refuses of what the spec asks, in its own words."""
    yield from head("refused by", "cases", "such as", "its words")
    for row in rows:
        for one in [*row["refusals"], *row["lost"]]:
            words = one["words"].replace("|", "\\|").replace("<", "\\<")
            example = code(one["example"])
            yield cells(code(row["name"]), str(one["cases"]), example, words)


def versions(rows: Sequence[Row]) -> Iterator[str]:
    """What `--against` prints of every version and the one before it."""
    earlier = [row for path in EARLIER.glob("*.json") for row in read(path)["rows"]]
    names = {row["name"] for row in earlier}
    printed = StringIO()
    for name in sorted(names):
        line = [row for row in (*earlier, *rows) if row["name"] == name]
        for old, new in pairwise(sorted(line, key=release)):
            changed = changes({"rows": [old]}, {"rows": [new]})
            print_changes(changed, Console(file=printed, color_system=None))
    yield from ("```", *printed.getvalue().strip().splitlines(), "```")


def release(row: Row) -> list[int]:
    """The version of a row's library, in numbers that can be sorted."""
    version = next(iter(row["packages"].values()))
    return [int(number) for number in re.findall(r"\d+", version)]


def head(*words: str) -> Iterator[str]:
    """The first two lines of a table."""
    yield cells(*words)
    yield "|" + "---|" * len(words)


def cells(*words: str) -> str:
    """One line of a table."""
    return f"| {' | '.join(words)} |"


def code(text: str) -> str:
    """`text`."""
    return f"`{text}`"


def short(url: str) -> str:
    """`pytorch#101967` of the address of an issue or a pull request."""
    *_, repository, _, number = url.split("/")
    return f"{repository}#{number}"


if __name__ == "__main__":
    main()

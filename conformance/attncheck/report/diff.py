"""Differences as documents: JSON for machines, a table and code for terminals."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.syntax import Syntax

from attncheck.diff import Diff
from attncheck.fingerprint.words import phrase, title
from attncheck.lines import plain
from attncheck.report.fingerprint import fingerprint_summary
from attncheck.report.text import titled

SCHEMA = "attncheck-diff/1"


def diff_summary(found: Diff) -> dict[str, Any]:
    """Differences in types of JSON."""
    adapter = found.adapter and {
        "name": found.adapter.name,
        "source": found.adapter.source,
        "left_out": [found.b.calling.keywords[part] for part in found.left_out],
        "fingerprint": found.judged and fingerprint_summary(found.judged),
    }
    return plain(
        {
            "schema": SCHEMA,
            "a": fingerprint_summary(found.a),
            "b": fingerprint_summary(found.b),
            "differences": [asdict(one) for one in found.differences],
            "profiles": [asdict(one) for one in found.profiles],
            "adapter": adapter,
            "no_adapter": found.no_adapter or None,
        }
    )


def print_diff(document: Mapping[str, Any], console: Console) -> None:
    """Prints what `diff_summary` made."""
    for letter in "ab":
        one = document[letter]
        line = f"[bold]{letter.upper()}[/]  {escape(one['name'])}  {one['version']}"
        console.print(line, soft_wrap=True)
    adapter = document["adapter"]
    rows = [*document["differences"], *document["profiles"]]
    if not rows:
        console.print("\nno difference in what was measured of both")
        return
    table = titled("wherein they differ")
    for column in ("what", "A", "B", *(["adapter"] if adapter else [])):
        table.add_column(column)
    for row in rows:
        cells = [_cell(row["field"], row[letter]) for letter in "ab"]
        done = "yes" if row["adapted"] else f"[dim]{escape(row['why_not'] or '')}[/]"
        table.add_row(title(row["field"]), *cells, *([done] if adapter else []))
    console.print(table)
    if not adapter:
        console.print(f"no adapter: {escape(document['no_adapter'])}", soft_wrap=True)
        return
    console.print(
        "\n[bold]a call of A that means what B means[/] (run, and measured as B is)\n"
    )
    console.print(Syntax(adapter["source"], "python", background_color="default"))
    if adapter["left_out"]:
        words = ", ".join(f"`{word}`" for word in adapter["left_out"])
        console.print(f"left out: {escape(words)}", soft_wrap=True)


def _cell(field: str, reading: Mapping[str, Any]) -> str:
    if not reading["measured"]:
        return f"[dim]{escape(reading['shown'])}[/]"
    return escape(phrase(field, reading["value"]))

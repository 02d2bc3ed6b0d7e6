"""The board as documents: tables for terminals, a page for readers."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from rich.console import Console
from rich.markup import escape

from attncheck.board.groups import GROUPS
from attncheck.case import DTYPES
from attncheck.fingerprint.words import WORDS, phrase, title
from attncheck.report.html import STYLE
from attncheck.report.text import titled
from attnref.spec import SPEC

COLUMNS: Mapping[str, str] = {
    "layout": "axes",
    "mask_true": "True in a mask",
    "mask_float": "a float mask",
    "causal": "causal flag",
    "mask_and_causal": "mask + causal",
    "empty_row": "row without keys",
    "empty_row_bias": "row of −∞ bias",
    "scale": "default scale",
    "scale_negative": "scale < 0",
    "heads": "grouped heads",
    "value_width": "widths",
    "nan_blocked_k": "NaN in blocked k",
    "nan_blocked_v": "NaN in blocked v",
    "nan_visible": "visible NaN",
    "float64": "float64",
}
"""The conventions that fit side by side → what their columns are called."""

SHORT: Mapping[tuple[str, Any], str] = {
    ("mask_true", "attend"): "attend",
    ("mask_true", "block"): "block",
    ("mask_true", None): "–",
    ("mask_float", "truth"): "truth values",
    ("heads", "hg"): "h g",
    ("heads", "gh"): "g h",
    ("heads", None): "–",
    ("empty_row", "mean"): "mean of V",
    ("empty_row_bias", "mean"): "mean of V",
    ("scale", "required"): "required",
    ("scale_negative", "nan"): "NaN",
    ("scale_negative", "refuse"): "refused",
    ("value_width", "same"): "same",
}
"""Values that are said in fewer words than in a fingerprint."""

UNKNOWN = "?"

CONVENTION_WIDTH = 13
"""Columns of a terminal that one convention takes."""


def conventions_table(board: Mapping[str, Any]) -> list[list[str]]:
    """Header and rows of the conventions as measured; `?` was not measured."""
    rows = [["", *COLUMNS.values()]]
    return rows + [
        [row["name"], *(convention(row, name) for name in COLUMNS)]
        for row in board["rows"]
    ]


def convention(row: Mapping[str, Any], name: str) -> str:
    """One convention of one row in a few words."""
    one = row["conventions"][name]
    if not one["measured"]:
        return UNKNOWN
    value = one["value"]
    if name in ("fill", "lse_empty"):
        value = float(value)
    return SHORT.get((name, value)) or phrase(name, value)


def differs(row: Mapping[str, Any], name: str) -> bool:
    """Whether a convention was measured and is not the spec's."""
    one = row["conventions"][name]
    return one["measured"] and one["value"] != one["spec"]


def verdicts_table(board: Mapping[str, Any], dtype: str) -> list[list[str]]:
    """Header and rows of the verdicts by group of clauses, in one storage type."""
    groups = [g for g in GROUPS if any(_judged(r, g, dtype) for r in board["rows"])]
    rows = [["", *groups]]
    return rows + [
        [row["name"], *(cell(row, group, dtype) for group in groups)]
        for row in board["rows"]
    ]


def _judged(row: Mapping[str, Any], group: str, dtype: str) -> bool:
    counts = row["groups"].get(group, {}).get(dtype, {"counts": {}})["counts"]
    return bool(set(counts) - {"not applicable"})


def cell(row: Mapping[str, Any], group: str, dtype: str) -> str:
    """`12 of 14, 61 %`: passed of those that apply, and the budget that they use."""
    found = row["groups"].get(group, {}).get(dtype)
    if found is None:
        return "–"
    counts = found["counts"]
    applicable = sum(n for status, n in counts.items() if status != "not applicable")
    if not applicable:
        return "–"
    passed = counts.get("pass", 0)
    used = "" if found["used"] is None else f", {100 * found['used']:.0f} %"
    return f"{passed} of {applicable}{used}"


def print_board(
    board: Mapping[str, Any],
    console: Console,
    changed: Sequence[Mapping[str, Any]] | None = None,
) -> None:
    """Prints the board, and what changed if it was compared with another."""
    _print_conventions(board["rows"], console)
    table = titled("cases passed of those that apply, and what is not a pass")
    for column in ("", "version", *DTYPES, "refused", "lost", "not applicable"):
        table.add_column(column, no_wrap=not column)
    for row in board["rows"]:
        table.add_row(*map(escape, _totals(row)))
    console.print(table)
    for row in board["rows"]:
        _print_row(row, console)
    for row in board["not_measured"]:
        words = escape(f"{row['name']}: not measured: {row['why_not']}")
        console.print(f"[yellow]{words}[/]", soft_wrap=True)
    if board["not_installed"]:
        words = ", ".join(board["not_installed"])
        console.print(f"not installed here: {escape(words)}", soft_wrap=True)
    if changed is not None:
        print_changes(changed, console)


def _print_conventions(rows: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Tables of the conventions, each of as many columns as the terminal has room."""
    first = max([len(row["name"]) for row in rows], default=0) + 2
    number = max(3, (console.width - first) // CONVENTION_WIDTH)
    names = list(COLUMNS)
    for few in (names[at : at + number] for at in range(0, len(names), number)):
        table = titled("conventions as measured; ≠ where the spec has it otherwise")
        table.add_column("", no_wrap=True)
        for name in few:
            table.add_column(COLUMNS[name])
        for row in rows:
            cells = [_marked(row, name) for name in few]
            table.add_row(escape(row["name"]), *map(escape, cells))
        console.print(table)


def _marked(row: Mapping[str, Any], name: str) -> str:
    words = convention(row, name)
    return f"≠ {words}" if differs(row, name) else words


def _totals(row: Mapping[str, Any]) -> list[str]:
    cells = [_total(row, dtype) for dtype in DTYPES]
    counts = row["counts"]
    refused = counts.get("refused", 0) + counts.get("error", 0)
    lost = counts.get("crash", 0) + counts.get("timeout", 0)
    numbers = [refused, lost, counts.get("not applicable", 0)]
    return [row["name"], _own(row), *cells, *map(str, numbers)]


def _own(row: Mapping[str, Any]) -> str:
    """The version of the library itself."""
    return next(iter(row["packages"].values()))


def _total(row: Mapping[str, Any], dtype: str) -> str:
    passed, applicable = row["totals"].get(dtype, (0, 0))
    return f"{passed} of {applicable}" if applicable else "–"


def _print_row(row: Mapping[str, Any], console: Console) -> None:
    head = f"\n[bold]{escape(row['name'])}[/]  {escape(row['version'])}"
    console.print(f"{head}  profile {row['profile']}, set {row['set']}", soft_wrap=True)
    for one in row["deviations"]:
        words = f"{one['spec']} {one['does']} ({one['cases']} cases, {one['case']})"
        console.print(f"  [red]deviates[/]  {escape(words)}", soft_wrap=True)
        for issue in one["issues"]:
            console.print(f"            {escape(issue)}", soft_wrap=True)
    for kind, label in (("refusals", "refuses"), ("lost", "[red]lost[/]")):
        for one in row[kind]:
            words = f"{one['words']} ({one['cases']} cases, {one['example']})"
            console.print(f"  {label}  {escape(words)}", soft_wrap=True)


def print_changes(changed: Iterable[Mapping[str, Any]], console: Console) -> None:
    """Prints what is not as it was."""
    found = list(changed)
    if not found:
        console.print("\nnothing changed")
    for one in found:
        head = f"\n[bold]{escape(one['name'])}[/]  {one['old']} → {one['new']}"
        console.print(head, soft_wrap=True)
        if not one["conventions"] and not one["cases"]:
            console.print("  no convention and no case came out otherwise")
        for field in one["conventions"]:
            words = f"{title(field['field'])}: {field['old']} → {field['new']}"
            console.print(f"  {escape(words)}", soft_wrap=True)
        for moved in one["cases"]:
            cases = ", ".join(moved["cases"][:3])
            more = f" and {len(moved['cases']) - 3} more" if moved["cases"][3:] else ""
            words = f"{moved['old']} → {moved['new']}: {cases}{more}"
            console.print(f"  {escape(words)}", soft_wrap=True)


def board_as_html(
    board: Mapping[str, Any], changed: Sequence[Mapping[str, Any]] | None = None
) -> str:
    """The board as one page that needs nothing else, and runs no script."""
    environment = Environment(
        loader=PackageLoader("attncheck.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    fields = {name: title(name) for name in WORDS if hasattr(SPEC, name)}
    return environment.get_template("board.html.j2").render(
        board,
        style=Markup(STYLE),
        changed=changed,
        fields=fields,
        convention=convention,
        differs=differs,
        dtypes=list(DTYPES),
        verdicts={dtype: verdicts_table(board, dtype) for dtype in DTYPES},
        totals=_totals,
    )

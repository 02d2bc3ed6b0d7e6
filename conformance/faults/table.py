"""The kill table in the terminal."""

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Column, Table
from rules import OURS

DTYPES = {"F64": "float64", "F32": "float32", "BF16": "bfloat16", "F16": "float16"}
ELEMENTS, *_ = (rule.name for rule in OURS)

WIDTH = 140
"""Columns, where no terminal says how many there are."""


def show(report: Mapping[str, Any]) -> None:
    """Every fault, how the rules compare, the survivors, and the smallest set."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH
    console.print(_faults(report))
    console.print(_rules(report["summary"], report["rules"], "all faults"))
    for kind, summaries in report["kinds"].items():
        console.print(_rules(summaries, report["rules"], kind))
    for one in report["survivors"]:
        console.print(
            f"{one['fault']} survives in {DTYPES[one['dtype']]}: {one['why']}"
        )
    small = report["smallest"]
    proven = "no smaller set does" if small["optimal"] else "perhaps not the fewest"
    console.print(
        f"{len(small['cases'])} of {small['of']} smoke cases find all, {proven}: "
        f"{', '.join(small['cases'])}"
    )


def _faults(report: Mapping[str, Any]) -> Table:
    """A row a fault, grouped by module."""
    dtypes = list(report["profiles"])
    others = [name for name in report["rules"] if name not in {r.name for r in OURS}]
    table = Table(
        Column("fault", no_wrap=True),
        *(Column(DTYPES[dtype], no_wrap=True) for dtype in dtypes),
        *others,
        title="by our rule, and in how many cases; by others, and in how many types",
        box=None,
    )
    module = None
    for name, fault in report["faults"].items():
        if fault["module"] != module:
            module = fault["module"]
            table.add_row(f"[bold]{module}[/]")
        cells = [_cell(fault["dtypes"][dtype]) for dtype in dtypes]
        table.add_row(f"  {name}", *cells, *(_types(fault, rule) for rule in others))
    return table


def _cell(fault: Mapping[str, Any]) -> str:
    """A word and a number: of cases, or the largest share of a budget."""
    if fault["changes"] == "nothing":
        return "[dim]no effect[/]"
    if fault["by"] == "elements":
        return f"[green]found {fault['kills'][ELEMENTS]['smoke']}[/]"
    word = f"[green]{fault['by']}[/]" if fault["by"] else "[red]survives[/]"
    return f"{word} {fault['used']:.2f}"


def _types(fault: Mapping[str, Any], rule: str) -> str:
    """In how many storage types a rule finds it, of those in which it changes any."""
    changing = [
        one["kills"][rule]
        for one in fault["dtypes"].values()
        if one["changes"] != "nothing" and rule in one["kills"]
    ]
    return f"{sum(bool(one['smoke']) for one in changing)} of {len(changing)}"


def _rules(summaries: Mapping[str, Any], rules: Iterable[str], kind: str) -> Table:
    """A row a rule: what it finds on the usual test and on our cases."""
    table = Table("rule", *(DTYPES[dtype] for dtype in summaries), box=None)
    table.title = f"{kind}: found on the usual test, on our cases; false alarms there"
    for rule in rules:
        cells = []
        for summary in summaries.values():
            one = summary["rules"].get(rule)
            cells.append("–" if one is None else _found(one, summary["changing"]))
        table.add_row(rule, *cells)
    return table


def _found(one: Mapping[str, Any], of: int) -> str:
    usual, smoke = one["usual"], one["smoke"]
    share = smoke["alarms"] / smoke["checks"]
    return f"{usual['found']}, {smoke['found']} of {of}; {share:.1%}"

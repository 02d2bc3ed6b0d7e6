"""`attncheck list` and `doctor`: what there is to judge, and to judge it with."""

import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from attncheck import frameworks, minilm
from attncheck.choose import every, is_asked
from attncheck.clauses import CLAUSES, OPERATION_CLAUSES
from attncheck.cli.app import UsageError, app, usage_errors
from attncheck.cli.options import WholeSetOption
from attncheck.config import Settings
from attncheck.subjects import LIBRARIES
from attncheck.suggest import near
from attncheck.suite import SETS, by_clause, cases, operation_cases
from attncheck.target import ROOMS
from attncheck.variants import FAULTS


@app.command(
    "list",
    epilog="""Examples:

* `attncheck list`
* `attncheck list --cases --clause head-order`
""",
)
def list_(
    show_cases: Annotated[
        bool, typer.Option("--cases", help="The cases, and what each is there for.")
    ] = False,
    clause_name: Annotated[
        str | None, typer.Option("--clause", help="Only the cases of this clause.")
    ] = None,
    set_name: WholeSetOption = None,
) -> None:
    """Show the built-in subjects, the clauses of the spec, the cases and the faults."""
    with usage_errors():
        chosen = Settings(set=set_name or SETS[0]).set
        if show_cases or clause_name is not None:
            _list_cases(chosen, clause_name)
            return
    console = Console(highlight=False)
    console.print("[bold]subjects[/]", *(f"  {name}" for name in ROOMS), sep="\n")
    for name, entry in LIBRARIES.items():
        missing = f" (not installed: {', '.join(entry.missing)})" * bool(entry.missing)
        console.print(f"  {name}[dim]{escape(missing)}[/]", soft_wrap=True)
    _print_clauses(console, SETS if set_name is None else [chosen])
    console.print(f"\n[bold]faults[/]: {len(FAULTS)} that a report can name")
    table = Table(Column("fault", no_wrap=True), "what it does", box=None)
    for variant in FAULTS:
        seen = f" ({variant.reference})" if variant.reference else ""
        table.add_row(variant.name, variant.sentence + seen)
    console.print(table)


@app.command(epilog="Example: `attncheck doctor`")
def doctor() -> None:
    """Show versions and devices, and what is missing for what."""
    console = Console(highlight=False)
    table = Table("what", "found", box=None)
    table.add_row("python", f"{platform.python_version()} on {platform.machine()}")
    for name in ("attnref", "einops", "safetensors", "ml-dtypes"):
        table.add_row(name, _version(name))
    for name in frameworks.NAMES:
        found = name in frameworks.installed()
        described = frameworks.adapter(name).describe() if found else "not installed"
        table.add_row(f"room {name}", described)
    table.add_row("real model", minilm.available() or "installed")
    console.print(table)


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "not installed"


def _print_clauses(console: Console, names: Sequence[str]) -> None:
    """Prints how many cases sets have, and how many of them each clause has."""
    console.print()
    counts = []
    for name in names:
        found = [*cases(name), *operation_cases(name)]
        counts.append(by_clause(found))
        asked = len(list(filter(is_asked, found)))
        some = f" ({asked} in a run of all types)" if name == SETS[0] else ""
        console.print(f"[bold]set {name}[/]: {len(found)} cases{some}")
    table = Table("clause", *names, "what it says", box=None)
    for clause in (*CLAUSES, *OPERATION_CLAUSES):
        numbers = (str(len(by_name[clause.name])) for by_name in counts)
        table.add_row(clause.name, *numbers, clause.sentence)
    console.print(table)


def _list_cases(set_name: str, clause: str | None) -> None:
    """Prints the cases that differ in more than their dtype, and why they are there."""
    known = [clause.name for clause in (*CLAUSES, *OPERATION_CLAUSES)]
    if clause is not None and clause not in known:
        hint = near(clause, known) or "; `attncheck list` shows them"
        raise UsageError(f"there is no clause {clause!r}{hint}")
    dtypes: dict[tuple[str, str], list[str]] = {}
    for case in every(set_name):
        if clause is None or clause in case.clauses:
            name = case.id.removesuffix(f"/{case.dtype}")
            dtypes.setdefault((name, case.why), []).append(case.dtype)
    table = Table("case", "dtypes", "what it is there for", box=None)
    for (name, why), found in dtypes.items():
        table.add_row(escape(name), " ".join(found), escape(why))
    Console(highlight=False).print(table)

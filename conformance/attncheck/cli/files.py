"""`attncheck export` and `schema`: what other machines and languages need."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from attncheck import minilm, schemas
from attncheck.choose import choose
from attncheck.cli.app import app, errors, usage_errors
from attncheck.cli.options import CaseOption, DtypeOption, SetOption
from attncheck.config import settings
from attncheck.exchange import RESULTS, write_cases

SchemaName = StrEnum("SchemaName", {x: x for x in schemas.NAMES})  # type: ignore[misc]


@app.command(epilog="Example: `attncheck export cases --dtype F32`")
def export(
    folder: Annotated[Path, typer.Argument(help="Where the cases go.")],
    set_name: SetOption = None,
    dtype: DtypeOption = None,
    case: CaseOption = "*",
) -> None:
    """Write the cases as files, for other machines and languages."""
    with usage_errors():
        asked = settings(Path.cwd(), set=set_name, dtype=dtype)
        chosen = choose(asked.set, asked.dtype, case)
        write_cases(folder, chosen)
    if missing := minilm.available():
        errors.print(f"[yellow]real cases: not exported: {missing}[/]")
    places = f"{len(chosen)} cases in {folder}; results go to {folder / RESULTS}"
    errors.print(escape(places), soft_wrap=True)


@app.command(epilog="Example: `attncheck schema result > result.schema.json`")
def schema(
    name: Annotated[SchemaName, typer.Argument(help="Of a line, or of the report.")],
) -> None:
    """Print the JSON schema of a case, of a result or of the JSON report."""
    sys.stdout.write(schemas.text(name))

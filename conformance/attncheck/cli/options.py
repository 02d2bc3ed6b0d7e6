"""Options that several commands have."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from attncheck import frameworks
from attncheck.budget import PROFILES
from attncheck.calling import PARTS
from attncheck.case import DTYPES
from attncheck.suite import SETS

Format = StrEnum("Format", {"text": "text", "json": "json"})

SetOption = Annotated[
    str | None,
    typer.Option(
        "--set",
        help="Which cases; smoke by default, in which F64 and F16 are asked about "
        "numbers alone, unless --dtype or --case asks for them.",
        metavar="|".join(SETS),
    ),
]
WholeSetOption = Annotated[
    str | None,
    typer.Option(
        "--set", help="Which cases; smoke by default.", metavar="|".join(SETS)
    ),
]
DtypeOption = Annotated[
    list[str] | None,
    typer.Option(help="Only this dtype; again for more.", metavar="|".join(DTYPES)),
]
CaseOption = Annotated[
    str,
    typer.Option(
        "--case", help="Only cases that match: `decode`, `decode/F32` or `causal*`."
    ),
]
ProfileOption = Annotated[
    str | None,
    typer.Option(
        help="Precision profile to judge by, not the declared one.",
        metavar="|".join(PROFILES),
    ),
]
WaiversOption = Annotated[
    Path | None,
    typer.Option(help="TOML file of failures that are expected, each with its reason."),
]
FrameworkOption = Annotated[
    str | None,
    typer.Option(
        help="Whose arrays the function takes, where its module does not say.",
        metavar="|".join(frameworks.NAMES),
    ),
]
MapOption = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        help="`mask=allowed`: its keyword for a part of a call, where the name does "
        f"not say it; again for more. Parts: {', '.join(PARTS)}.",
    ),
]
ProbeTimeoutOption = Annotated[
    float, typer.Option(help="Seconds that one probe may take.", min=0.1)
]
OutOption = Annotated[
    Path | None, typer.Option(help="Keep cases and results in this folder.")
]
ResumeOption = Annotated[
    bool, typer.Option("--resume", help="Keep the results that --out holds.")
]
FormatOption = Annotated[Format, typer.Option("--format", help="What goes to stdout.")]
JsonOption = Annotated[
    Path | None, typer.Option("--json", help="Also write the JSON report here.")
]
HtmlOption = Annotated[
    Path | None, typer.Option("--html", help="Also write an HTML report here.")
]

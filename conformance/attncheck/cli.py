"""The command line: judge an implementation here, or by files anywhere else."""

import json
import platform
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from fnmatch import fnmatch
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from attncheck import frameworks, minilm
from attncheck.agreement import agreements, check_model
from attncheck.budget import PROFILES
from attncheck.cache import Cache
from attncheck.case import DTYPES, Case
from attncheck.clauses import CLAUSES
from attncheck.collect import collect
from attncheck.exchange import (
    RESULTS,
    ExchangeError,
    write_cases,
)
from attncheck.judging import Folder, Judge
from attncheck.report import as_html, print_text, summary
from attncheck.subject import SubjectError
from attncheck.suite import SETS, by_clause, cases
from attncheck.target import BUILT_IN

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Is this attention right, and if not, what exactly is wrong?",
    epilog="Exit status: 0 conforms, 1 does not, 2 usage or environment.",
)
errors = Console(stderr=True, highlight=False)


# Choices that typer lists in --help; made of the data, which mypy cannot follow.
SetName = StrEnum("SetName", {x: x for x in SETS})  # type: ignore[misc]
Dtype = StrEnum("Dtype", {x: x for x in DTYPES})  # type: ignore[misc]
ProfileName = StrEnum("ProfileName", {x: x for x in PROFILES})  # type: ignore[misc]
Framework = StrEnum("Framework", {x: x for x in frameworks.NAMES})  # type: ignore[misc]
Format = StrEnum("Format", {"text": "text", "json": "json"})

SMOKE = SetName("smoke")

SetOption = Annotated[SetName, typer.Option("--set", help="Which cases.")]
DtypeOption = Annotated[
    list[Dtype] | None, typer.Option(help="Only this dtype; again for more.")
]
CaseOption = Annotated[
    str, typer.Option("--case", help="Only case ids that match, as in 'causal*'.")
]
ProfileOption = Annotated[
    ProfileName | None,
    typer.Option(help="Precision profile to judge by, not the declared one."),
]
FormatOption = Annotated[Format, typer.Option("--format", help="What goes to stdout.")]
JsonOption = Annotated[
    Path | None, typer.Option("--json", help="Also write the JSON report here.")
]
HtmlOption = Annotated[
    Path | None, typer.Option("--html", help="Also write an HTML report here.")
]


class UsageError(Exception):
    """What the caller can mend; one sentence."""


@contextmanager
def _usage_errors() -> Iterator[None]:
    """Errors of the caller or of its files end with status 2 and one sentence."""
    try:
        yield
    except (UsageError, SubjectError, ExchangeError, OSError) as error:
        errors.print(f"[red]attncheck:[/] {escape(str(error))}", soft_wrap=True)
        raise typer.Exit(2) from error


@app.command(
    epilog="""Examples:

* `attncheck run attnref.numpy`
* `attncheck run my.py:attention --dtype F32`
* `attncheck run torch.nn.functional:scaled_dot_product_attention --accepts scale`
"""
)
def run(
    targets: Annotated[
        list[str],
        typer.Argument(
            help="A built-in name, `package.module:function` or `file.py:function`, "
            "callable as `f(q, k, v, *, mask=…, scale=…, …)`."
        ),
    ],
    set_name: SetOption = SMOKE,
    dtype: DtypeOption = None,
    case: CaseOption = "*",
    framework: Annotated[
        Framework | None,
        typer.Option(
            help="Whose arrays the function takes, where its module does not say.",
        ),
    ] = None,
    accepts: Annotated[
        str | None, typer.Option(help="Keywords it takes, where no signature says.")
    ] = None,
    profile: ProfileOption = None,
    timeout: Annotated[
        float, typer.Option(help="Seconds that one case may take.", min=0.1)
    ] = 60.0,
    out: Annotated[
        Path | None, typer.Option(help="Keep cases and results in this folder.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep the results that --out holds.")
    ] = False,
    output: FormatOption = Format.text,
    json_file: JsonOption = None,
    html_file: HtmlOption = None,
) -> None:
    """Judge implementations in a worker process each."""
    options = {"framework": framework, "accepts": accepts, "profile": profile}
    with _usage_errors(), _place(out) as place:
        if resume and out is None:
            raise UsageError("--resume goes on in a folder: say which, with --out")
        _check_places(json_file, html_file)
        chosen, missing = _chosen(set_name, dtype, case)
        folders = []
        for target in targets:
            name = target.replace("/", "-").replace(":", "-")
            folder = place / name if len(targets) > 1 else place
            _collect(target, chosen, folder, options, resume, timeout, missing)
            folders.append(Folder.read(folder))
        report = _report(folders, profile, missing)
    _finish(report, output, json_file, html_file)


@app.command(
    epilog="Example: `attncheck judge results/numpy results/jax --html r.html`"
)
def judge(
    folders: Annotated[
        list[Path], typer.Argument(help=f"Folders with cases and {RESULTS}.")
    ],
    profile: ProfileOption = None,
    output: FormatOption = Format.text,
    json_file: JsonOption = None,
    html_file: HtmlOption = None,
) -> None:
    """Judge results that are files, of one subject or of several, and compare them."""
    with _usage_errors():
        _check_places(json_file, html_file)
        read = [Folder.read(folder) for folder in folders]
        report = _report(read, profile, minilm.available())
    _finish(report, output, json_file, html_file)


@app.command(epilog="Example: `attncheck export cases --dtype F32`")
def export(
    folder: Annotated[Path, typer.Argument(help="Where the cases go.")],
    set_name: SetOption = SMOKE,
    dtype: DtypeOption = None,
    case: CaseOption = "*",
) -> None:
    """Write the cases as files, for other machines and languages."""
    with _usage_errors():
        chosen, missing = _chosen(set_name, dtype, case)
        write_cases(folder, chosen)
    if missing:
        errors.print(f"[yellow]real cases: not exported: {missing}[/]")
    errors.print(f"{len(chosen)} cases in {folder}; results go to {folder / RESULTS}")


@app.command("list")
def list_() -> None:
    """Show the built-in subjects, the clauses of the spec and the sets of cases."""
    console = Console(highlight=False)
    console.print("[bold]subjects[/]", *(f"  {name}" for name in BUILT_IN), sep="\n")
    for name in SETS:
        by_name = by_clause(cases(name))
        number = sum(1 for _ in cases(name))
        console.print(f"\n[bold]set {name}[/]: {number} cases, by clause")
        table = Table("clause", "cases", "what it says", box=None)
        for clause in CLAUSES:
            count = str(len(by_name[clause.name]))
            table.add_row(clause.name, count, clause.sentence)
        console.print(table)


@app.command()
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


def _chosen(
    set_name: str, dtypes: Sequence[str] | None, pattern: str
) -> tuple[list[Case], str | None]:
    """The cases that were asked for, and why there are no real ones, if so."""
    missing = minilm.available()
    every = [*cases(set_name), *([] if missing else minilm.cases())]
    chosen = [
        case
        for case in every
        if (not dtypes or case.dtype in dtypes) and fnmatch(case.id, pattern)
    ]
    if not chosen:
        raise UsageError(
            f"no case of the set {set_name} matches {pattern!r}"
            + (f" in {', '.join(dtypes)}" if dtypes else "")
        )
    return chosen, missing


def _progress() -> Progress:
    """A bar on stderr, with an estimate, where somebody looks at it."""
    return Progress(console=errors, transient=True, disable=not errors.is_terminal)


def _check_places(*files: Path | None) -> None:
    """Raises UsageError before a long run, not after it."""
    for file in files:
        if file is not None and not file.resolve().parent.is_dir():
            raise UsageError(f"there is no folder for {str(file)!r}")


@contextmanager
def _place(out: Path | None) -> Iterator[Path]:
    """The folder to work in: the one given, or one that goes away afterwards."""
    if out is not None:
        yield out
        return
    with tempfile.TemporaryDirectory(prefix="attncheck-") as folder:
        yield Path(folder)


def _collect(
    target: str,
    chosen: list[Case],
    folder: Path,
    options: dict[str, str | None],
    resume: bool,
    timeout: float,
    missing: str | None,
) -> None:
    with _progress() as progress:
        task = progress.add_task(target, total=len(chosen))
        collect(
            target,
            chosen,
            folder,
            options=options,
            model=missing is None
            and any(case.id.startswith("real/") for case in chosen),
            resume=resume,
            timeout=timeout,
            progress=lambda done: progress.update(task, completed=done),
        )


def _report(
    folders: Sequence[Folder], profile: str | None, missing: str | None
) -> dict[str, Any]:
    judging = Judge(Cache.of_user())
    runs = []
    with _progress() as progress:
        for folder in progress.track(folders, description="judging"):
            runs.append(judging.run(folder, profile))
    pairs = agreements(judging, folders)
    judging.cache.prune()
    return summary(runs, pairs, check_model(folders), model_missing=missing)


def _finish(
    report: dict[str, Any],
    output: Format,
    json_file: Path | None,
    html_file: Path | None,
) -> None:
    """Writes the reports and ends with the status that they come to."""
    text = json.dumps(report, indent=2, ensure_ascii=False, allow_nan=False)
    with _usage_errors():
        if json_file is not None:
            json_file.write_text(text + "\n", encoding="utf-8")
        if html_file is not None:
            html_file.write_text(as_html(report), encoding="utf-8")
    if output == Format.json:
        sys.stdout.write(text + "\n")
    else:
        print_text(report, Console(highlight=False))
    raise typer.Exit(0 if report["conforms"] else 1)

"""The command line: judge an implementation here, or by files anywhere else."""

import json
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Column, Table

import attncheck.gpu
import attnref
from attncheck import board as boards
from attncheck import frameworks, minilm, schemas
from attncheck.agreement import agreements, check_model
from attncheck.ahead import Ahead
from attncheck.budget import PROFILES
from attncheck.cache import Cache
from attncheck.calling import PARTS
from attncheck.case import DTYPES, Case
from attncheck.choose import NoCaseError, choose, every, is_asked
from attncheck.clauses import CLAUSES, OPERATION_CLAUSES
from attncheck.collect import MOST_WORKERS, collect
from attncheck.config import TABLE, ConfigError, Settings, settings
from attncheck.diff import Adapter
from attncheck.diff import diff as compare
from attncheck.exchange import (
    RESULTS,
    ExchangeError,
    write_cases,
)
from attncheck.explain import Evidence
from attncheck.fingerprint import NAMES, Fingerprint
from attncheck.fingerprint import fingerprint as measure
from attncheck.hints import axes_moved, looks_misread, no_operations
from attncheck.judging import Folder, Judge
from attncheck.report import (
    as_html,
    board_as_html,
    diff_summary,
    fingerprint_summary,
    print_board,
    print_diff,
    print_fingerprint,
    print_text,
    summary,
)
from attncheck.shrink import shrink
from attncheck.subject import SubjectError
from attncheck.subjects import LIBRARIES
from attncheck.suggest import near
from attncheck.suite import SETS, by_clause, cases, operation_cases
from attncheck.target import ROOMS
from attncheck.variants import FAULTS
from attncheck.verdict import Run
from attncheck.waivers import Waiver, WaiverError, read, unmatched

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Is this attention right, and if not, what exactly is wrong?",
    epilog="Example: `attncheck run my.py:attention`. "
    "Exit status: 0 conforms, 1 does not, 2 usage or environment.",
)
errors = Console(stderr=True, highlight=False)

SchemaName = StrEnum("SchemaName", {x: x for x in schemas.NAMES})  # type: ignore[misc]
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
FormatOption = Annotated[Format, typer.Option("--format", help="What goes to stdout.")]
JsonOption = Annotated[
    Path | None, typer.Option("--json", help="Also write the JSON report here.")
]
HtmlOption = Annotated[
    Path | None, typer.Option("--html", help="Also write an HTML report here.")
]


PATIENCE = 2.0
"""Seconds of silence after a verdict."""


class UsageError(Exception):
    """What the caller can mend; one sentence."""


MENDABLE = (
    UsageError,
    ConfigError,
    NoCaseError,
    WaiverError,
    SubjectError,
    ExchangeError,
    OSError,
)
"""Errors of the caller, or of the caller's files; each is one sentence."""


@contextmanager
def _usage_errors() -> Iterator[None]:
    """What the caller can mend ends with status 2 and one sentence."""
    try:
        yield
    except MENDABLE as error:
        errors.print(f"[red]attncheck:[/] {escape(_sentence(error))}", soft_wrap=True)
        raise typer.Exit(2) from error


def _sentence(error: Exception) -> str:
    """What went wrong; of an error of the system the file first, and no number."""
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{str(error.filename)!r}: {error.strerror}"
    return str(error)


def _note(sentence: str) -> None:
    """Says something on stderr that is worth knowing, and no error."""
    errors.print(f"[yellow]attncheck:[/] {escape(sentence)}", soft_wrap=True)


def _show_version(asked: bool) -> None:
    if asked:
        print(f"attncheck {attnref.__version__}")
        raise typer.Exit


@app.callback()
def options_of_all(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version.", callback=_show_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Takes the options that come before a command."""


@app.command(
    epilog="""Examples:

* `attncheck run attnref.numpy`
* `attncheck run my.py:attention --dtype F32`
* `attncheck run torch.nn.functional:scaled_dot_product_attention --accepts scale`
* `attncheck run my.py:attention --waivers waivers.toml`
* `attncheck run my.py:attention --python other/bin/python --memory 4 --timeout 10`
"""
)
def run(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            help="A built-in name, `package.module:function` or `file.py:function`, "
            "callable as `f(q, k, v, *, mask=…, scale=…, …)`; by default the "
            f"`subject` in `[tool.{TABLE}]` of pyproject.toml, which may set what "
            "the options below set."
        ),
    ] = None,
    set_name: SetOption = None,
    dtype: DtypeOption = None,
    case: CaseOption = "*",
    framework: FrameworkOption = None,
    accepts: Annotated[
        str | None,
        typer.Option(
            help="Keywords it takes, where no signature says, or it calls them "
            "otherwise: `mask=attn_mask,scale`."
        ),
    ] = None,
    profile: ProfileOption = None,
    waivers: WaiversOption = None,
    timeout: Annotated[
        float | None,
        typer.Option(help="Seconds that one case may take; 60 by default."),
    ] = None,
    memory: Annotated[
        float | None,
        typer.Option(
            help="GiB that a worker may hold; its share of the machine's by default."
        ),
    ] = None,
    python: Annotated[
        str | None,
        typer.Option(
            help="Run the subject with this interpreter, whose environment has NumPy, "
            "safetensors, ml-dtypes and what the subject needs."
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            help="Worker processes side by side; by default one a processor, up to "
            f"{MOST_WORKERS}.",
            min=1,
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Keep cases and results in this folder.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep the results that --out holds.")
    ] = False,
    shrinks: Annotated[
        bool,
        typer.Option(
            "--shrink/--no-shrink", help="Look for a minimal case where one fails."
        ),
    ] = True,
    output: FormatOption = Format.text,
    json_file: JsonOption = None,
    html_file: HtmlOption = None,
) -> None:
    """Judge implementations, each in worker processes of its own."""
    with _usage_errors(), _place(out) as place:
        asked = settings(
            Path.cwd(),
            subject=targets,
            set=set_name,
            dtype=dtype,
            profile=profile,
            framework=framework,
            accepts=accepts,
            waivers=waivers,
            timeout=timeout,
            memory=memory,
            python=python,
        )
        if not asked.subject:
            raise UsageError(
                "Missing argument: what to judge, as in `attncheck run my.py:attention`"
                f", or `subject` in [tool.{TABLE}] of pyproject.toml"
            )
        if resume and out is None:
            raise UsageError("--resume goes on in a folder: say which, with --out")
        _check_places(json_file, html_file)
        waived = _waivers(asked)
        chosen = choose(asked.set, asked.dtype, case)
        cache, folders = Cache.of_user(), []
        with Ahead(cache, jobs) as ahead:
            for target in asked.subject:
                name = target.replace("/", "-").replace(":", "-")
                folder = place / name if len(asked.subject) > 1 else place
                _collect(target, chosen, folder, asked, resume, jobs, ahead)
                folders.append(Folder.read(folder, chosen))
            judging = Judge(cache, ahead.as_derived)
            targets_of = asked if shrinks else None
            report = _report(judging, folders, asked.profile, waived, targets_of)
        _hint(report, asked, chosen)
    _finish(report, judging.cache, output, json_file, html_file)


@app.command(
    epilog="Example: `attncheck judge results/numpy results/jax --html r.html`"
)
def judge(
    folders: Annotated[
        list[Path], typer.Argument(help=f"Folders with cases and {RESULTS}.")
    ],
    profile: ProfileOption = None,
    waivers: WaiversOption = None,
    output: FormatOption = Format.text,
    json_file: JsonOption = None,
    html_file: HtmlOption = None,
) -> None:
    """Judge results that are files, of one subject or of several, and compare them."""
    with _usage_errors():
        _check_places(json_file, html_file)
        asked = settings(Path.cwd(), profile=profile, waivers=waivers)
        waived = _waivers(asked)
        judging = Judge(Cache.of_user())
        found = [Folder.read(folder) for folder in folders]
        report = _report(judging, found, asked.profile, waived)
    _finish(report, judging.cache, output, json_file, html_file)


@app.command(epilog="Example: `attncheck export cases --dtype F32`")
def export(
    folder: Annotated[Path, typer.Argument(help="Where the cases go.")],
    set_name: SetOption = None,
    dtype: DtypeOption = None,
    case: CaseOption = "*",
) -> None:
    """Write the cases as files, for other machines and languages."""
    with _usage_errors():
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


@app.command(
    epilog="""Examples:

* `attncheck fingerprint torch.nn.functional:scaled_dot_product_attention`
* `attncheck fingerprint my.py:attention --map mask=allowed --format json`
"""
)
def fingerprint(
    target: Annotated[str, typer.Argument(help="As for `run`.")],
    keywords: MapOption = None,
    framework: FrameworkOption = None,
    timeout: ProbeTimeoutOption = 60.0,
    output: FormatOption = Format.text,
) -> None:
    """Measure the conventions of a function, each with the probe that shows it."""
    with _usage_errors():
        found = _fingerprint(target, framework, _declared(keywords), timeout)
    _print(fingerprint_summary(found), print_fingerprint, output)
    raise typer.Exit(0 if found.readings["layout"].measured else 1)


@app.command(
    epilog="""Examples:

* `attncheck diff torch.nn.functional:scaled_dot_product_attention
  jax.nn:dot_product_attention`
* `attncheck diff my.py:attention attnref.numpy --map-a mask=allowed`

Exit status: 0 no difference, 1 some, 2 usage or environment."""
)
def diff(
    a: Annotated[str, typer.Argument(metavar="A", help="As for `run`.")],
    b: Annotated[str, typer.Argument(metavar="B", help="As for `run`.")],
    keywords_a: Annotated[
        list[str] | None, typer.Option("--map-a", help="--map of A; see `fingerprint`.")
    ] = None,
    keywords_b: Annotated[
        list[str] | None, typer.Option("--map-b", help="--map of B.")
    ] = None,
    framework_a: Annotated[
        str | None, typer.Option(help="Of A's arrays; see `run`.")
    ] = None,
    framework_b: Annotated[str | None, typer.Option(help="Of B's arrays.")] = None,
    timeout: ProbeTimeoutOption = 60.0,
    output: FormatOption = Format.text,
) -> None:
    """Show wherein two functions differ, and code that makes a call of A mean B's."""

    def measured(target: str, adapter: Adapter) -> Fingerprint:
        return _fingerprint(target, one.framework, adapter.keywords, timeout)

    with _usage_errors():
        one = _fingerprint(a, framework_a, _declared(keywords_a), timeout)
        other = _fingerprint(b, framework_b, _declared(keywords_b), timeout)
        found = compare(one, other, measured)
    _print(diff_summary(found), print_diff, output)
    raise typer.Exit(1 if found.differences or found.profiles else 0)


@app.command(
    epilog="""Examples:

* `attncheck board --only 'torch:*' --html board.html`
* `attncheck board a.json b.json --json all.json`
* `attncheck board --against old.json`

Exit status: 0 the board was made, 2 usage or environment."""
)
def board(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Boards of other environments, to show as one; nothing is run then."
        ),
    ] = None,
    only: Annotated[
        str, typer.Option(help="Only implementations that match, as in 'jax:*'.")
    ] = "*",
    set_name: SetOption = None,
    timeout: Annotated[
        float, typer.Option(help="Seconds that one case or probe may take.", min=0.1)
    ] = 60.0,
    out: Annotated[
        Path | None, typer.Option(help="Keep cases and results in this folder.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep the results that --out holds.")
    ] = False,
    against: Annotated[
        Path | None, typer.Option(help="A board to say what changed since.")
    ] = None,
    output: FormatOption = Format.text,
    json_file: JsonOption = None,
    html_file: HtmlOption = None,
) -> None:
    """Measure and judge every library that is installed here, one after the other."""
    with _usage_errors(), _place(out) as place:
        if resume and out is None:
            raise UsageError("--resume goes on in a folder: say which, with --out")
        _check_places(json_file, html_file)
        cache = Cache.of_user()
        old = None if against is None else boards.read(against)
        if files:
            found = boards.merged([boards.read(file) for file in files])
        else:
            found = _measured(only, set_name, timeout, place, resume, cache)
        changed = None if old is None else boards.changes(old, found)
    text = json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False)
    if json_file is not None:
        json_file.write_text(text + "\n", encoding="utf-8")
    if html_file is not None:
        html_file.write_text(board_as_html(found, changed), encoding="utf-8")
    if output == Format.json:
        sys.stdout.write(text + "\n")
    else:
        print_board(found, Console(highlight=False), changed)
    if not files:
        _tidy(cache)


def _measured(
    only: str,
    set_name: str | None,
    timeout: float,
    place: Path,
    resume: bool,
    cache: Cache,
) -> dict[str, Any]:
    """The board of the implementations that match, of those installed here."""
    names = [name for name in boards.installed() if fnmatchcase(name, only)]
    if not names:
        hint = "; `attncheck list` shows what there is" if only != "*" else ""
        raise UsageError(f"no implementation that matches {only!r} is installed{hint}")
    judging, rows = Judge(cache), []
    with _progress() as progress:
        whole = progress.add_task("implementations", total=len(names))
        for name in names:
            one = progress.add_task(name, total=None)

            def show(what: str, done: int, of: int, name=name, one=one) -> None:
                said = f"{name}: {what}"
                progress.update(one, description=said, completed=done, total=of)

            rows.append(
                boards.measure(
                    name,
                    place,
                    set_name=set_name,
                    timeout=timeout,
                    judge=judging,
                    resume=resume,
                    progress=show,
                )
            )
            progress.remove_task(one)
            progress.advance(whole)
            if not errors.is_terminal:
                _say_row(rows[-1])
    return boards.board(rows, set(boards.BOARD) - set(boards.installed()))


def _say_row(row: Mapping[str, Any]) -> None:
    """One line on stderr, where no bar is shown."""
    counts = row.get("counts", {})
    words = ", ".join(f"{number} {outcome}" for outcome, number in counts.items())
    errors.print(escape(f"{row['name']}: {words or row['why_not']}"), soft_wrap=True)


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    add_help_option=False,
    epilog="Example: `attncheck gpu --out build/gpu`",
)
def gpu(context: typer.Context) -> None:
    """Judge PyTorch's fused backends on this machine's GPU, and time them."""
    raise typer.Exit(attncheck.gpu.main(context.args))


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
    set_name: SetOption = None,
) -> None:
    """Show the built-in subjects, the clauses of the spec, the cases and the faults."""
    if show_cases or clause_name is not None:
        with _usage_errors():
            _list_cases(Settings(set=set_name or SETS[0]).set, clause_name)
        return
    console = Console(highlight=False)
    console.print("[bold]subjects[/]", *(f"  {name}" for name in ROOMS), sep="\n")
    for name, entry in LIBRARIES.items():
        missing = f" (not installed: {', '.join(entry.missing)})" * bool(entry.missing)
        console.print(f"  {name}[dim]{escape(missing)}[/]", soft_wrap=True)
    for name in SETS:
        chosen = [*cases(name), *operation_cases(name)]
        by_name = by_clause(chosen)
        asked = len(list(filter(is_asked, chosen)))
        some = f" ({asked} in a run of all types)" if name == SETS[0] else ""
        console.print(f"\n[bold]set {name}[/]: {len(chosen)} cases{some}, by clause")
        table = Table("clause", "cases", "what it says", box=None)
        for clause in (*CLAUSES, *OPERATION_CLAUSES):
            count = str(len(by_name[clause.name]))
            table.add_row(clause.name, count, clause.sentence)
        console.print(table)
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


def _waivers(asked: Settings) -> list[Waiver]:
    """The waivers of a run; those that are about no case are named on stderr."""
    waivers = [] if asked.waivers is None else read(asked.waivers)
    for waiver in unmatched(waivers):
        said = f"{asked.waivers}: no case matches {waiver.case!r}"
        _note(said)
    return waivers


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
    asked: Settings,
    resume: bool,
    jobs: int | None,
    ahead: Ahead,
) -> None:
    def loaded(subject: Mapping[str, Any]) -> None:
        # By the strictest as well, to see which profile is met.
        profiles = dict.fromkeys([asked.profile or subject["profile"], *PROFILES][:2])
        ahead.begin(folder, chosen, list(profiles))

    with _progress() as progress:
        task = progress.add_task(target, total=len(chosen))
        collect(
            target,
            chosen,
            folder,
            options=asked.options,
            model=any(case.id.startswith("real/") for case in chosen),
            resume=resume,
            jobs=jobs,
            loaded=loaded,
            notice=_note,
            **asked.workers,
            progress=lambda done: progress.update(task, completed=done),
        )


def _declared(pairs: Sequence[str] | None) -> dict[str, str]:
    """Part of a call → keyword, of the values of --map."""
    declared = {}
    for pair in pairs or ():
        part, equals, keyword = pair.partition("=")
        if not (part and equals and keyword):
            raise UsageError(f"--map is like mask=allowed, not {pair!r}")
        declared[part] = keyword
    return declared


def _fingerprint(
    target: str, framework: str | None, keywords: Mapping[str, str], timeout: float
) -> Fingerprint:
    with _progress() as progress:
        task = progress.add_task(f"probes of {target}", total=len(NAMES))
        return measure(
            target,
            framework=framework,
            keywords=keywords,
            timeout=timeout,
            progress=lambda done: progress.update(task, completed=done),
        )


def _hint(report: dict[str, Any], asked: Settings, chosen: Sequence[Case]) -> None:
    """Says on stderr what to judge instead, where it is not the function that is wrong:
    its axes are in another order, or it is no plain attention.
    """
    for target, subject in zip(asked.subject, report["subjects"], strict=True):
        if hint := no_operations(subject["counts"], chosen):
            _note(hint)
        if not looks_misread(subject["counts"]):
            continue
        with suppress(SubjectError):  # of a `Subject` without a function, say
            found = _fingerprint(target, asked.framework, {}, asked.timeout)
            if hint := axes_moved(found, target):
                _note(hint)


def _print(
    document: Mapping[str, Any],
    print_text: Callable[[Mapping[str, Any], Console], None],
    output: Format,
) -> None:
    """Prints a document that is no report."""
    if output == Format.json:
        sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    else:
        print_text(document, Console(highlight=False))


def _report(
    judging: Judge,
    folders: Sequence[Folder],
    profile: str | None,
    waivers: Sequence[Waiver],
    asked: Settings | None = None,
) -> dict[str, Any]:
    """Judges folders, of which `asked`, where given, says how to run their subjects."""
    runs, rest = [], []
    with _progress() as progress:
        count = sum(len(folder.cases) for folder in folders)
        task = progress.add_task("judging", total=count)
        for place, folder in enumerate(folders):
            run = judging.run(folder, profile, waivers, partial(progress.advance, task))
            if asked is not None and not run.conforms:
                run = _shrunk(run, asked.subject[place], judging, asked)
            runs.append(run)
            rest.append(folder.without(run.waived))
    pairs = agreements(judging, rest)
    model = check_model(folders)
    return summary(runs, pairs, model, model_missing=minilm.available())


def _shrunk(run: Run, target: str, judging: Judge, asked: Settings) -> Run:
    """The run with a small case that fails, if one is found."""
    profile = str(run.subject["profile"])

    def judged(cases: Sequence[Case]) -> dict[str, Evidence]:
        with tempfile.TemporaryDirectory(prefix="attncheck-") as place:
            options, path = asked.options, Path(place)
            collect(target, cases, path, options=options, **asked.workers)
            folder = Folder.read(path, cases)
            verdicts = [judging.verdict(case, folder, profile) for case in cases]
            known = judging.evidence(verdicts, folder, profile)
            return {one.case.id: one for one in known}

    return replace(run, minimal=shrink(run, judged, target))


def _finish(
    report: dict[str, Any],
    cache: Cache,
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
    _tidy(cache)
    raise typer.Exit(0 if report["conforms"] else 1)


def _tidy(cache: Cache) -> None:
    """Removes what is too much in the cache: last, because a slow disk takes minutes.

    It says so where it takes long, and may be interrupted.
    """
    sys.stdout.flush()
    begun, shown = time.monotonic(), False
    with _progress() as bar, suppress(KeyboardInterrupt):
        task = bar.add_task("tidying the cache", total=None, visible=False)

        def show(files: int) -> None:
            nonlocal shown
            if not shown and time.monotonic() - begun > PATIENCE:
                shown = True
                _note("done, but for tidying the cache, which may be interrupted")
                bar.update(task, visible=True)
            bar.update(task, description=f"tidying the cache: {files} files")

        cache.prune(show)

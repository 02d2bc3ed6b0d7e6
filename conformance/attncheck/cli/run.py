"""`attncheck run` and `judge`: verdicts on implementations, or on their results."""

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from attncheck import minilm
from attncheck.agreement import agreements, check_model
from attncheck.ahead import Ahead
from attncheck.budget import PROFILES
from attncheck.cache import Cache
from attncheck.case import Case
from attncheck.choose import choose
from attncheck.cli.app import UsageError, app, note, progress_bar, usage_errors
from attncheck.cli.options import (
    CaseOption,
    DtypeOption,
    Format,
    FormatOption,
    FrameworkOption,
    HtmlOption,
    JsonOption,
    OutOption,
    ProfileOption,
    ResumeOption,
    SetOption,
    WaiversOption,
)
from attncheck.cli.places import check_places, place_of, tidy
from attncheck.cli.probes import probed
from attncheck.collect import MOST_WORKERS, collect
from attncheck.config import TABLE, Settings, settings
from attncheck.exchange import RESULTS
from attncheck.explain import Evidence
from attncheck.hints import axes_moved, looks_misread, no_operations
from attncheck.judging import Folder, Judge
from attncheck.report import as_html, print_text, summary
from attncheck.shrink import shrink
from attncheck.subject import SubjectError
from attncheck.verdict import Run
from attncheck.waivers import Waiver, read, unmatched


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
    out: OutOption = None,
    resume: ResumeOption = False,
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
    with usage_errors(), place_of(out, resume) as place:
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
        check_places(json_file, html_file)
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
    with usage_errors():
        check_places(json_file, html_file)
        asked = settings(Path.cwd(), profile=profile, waivers=waivers)
        waived = _waivers(asked)
        judging = Judge(Cache.of_user())
        found = [Folder.read(folder) for folder in folders]
        report = _report(judging, found, asked.profile, waived)
    _finish(report, judging.cache, output, json_file, html_file)


def _waivers(asked: Settings) -> list[Waiver]:
    """The waivers of a run; those that are about no case are named on stderr."""
    waivers = [] if asked.waivers is None else read(asked.waivers)
    for waiver in unmatched(waivers):
        said = f"{asked.waivers}: no case matches {waiver.case!r}"
        note(said)
    return waivers


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

    with progress_bar() as bar:
        task = bar.add_task(target, total=len(chosen))
        collect(
            target,
            chosen,
            folder,
            options=asked.options,
            model=any(case.id.startswith("real/") for case in chosen),
            resume=resume,
            jobs=jobs,
            loaded=loaded,
            notice=note,
            **asked.workers,
            progress=lambda done: bar.update(task, completed=done),
        )


def _hint(report: dict[str, Any], asked: Settings, chosen: Sequence[Case]) -> None:
    """Says on stderr what to judge instead, where it is not the function that is wrong:
    its axes are in another order, or it is no plain attention.
    """
    for target, subject in zip(asked.subject, report["subjects"], strict=True):
        if hint := no_operations(subject["counts"], chosen):
            note(hint)
        if not looks_misread(subject["counts"]):
            continue
        with suppress(SubjectError):  # of a `Subject` without a function, say
            found = probed(target, asked.framework, {}, asked.timeout)
            if hint := axes_moved(found, target):
                note(hint)


def _report(
    judging: Judge,
    folders: Sequence[Folder],
    profile: str | None,
    waivers: Sequence[Waiver],
    asked: Settings | None = None,
) -> dict[str, Any]:
    """Judges folders, of which `asked`, where given, says how to run their subjects."""
    runs, rest = [], []
    with progress_bar() as bar:
        count = sum(len(folder.cases) for folder in folders)
        task = bar.add_task("judging", total=count)
        for place, folder in enumerate(folders):
            run = judging.run(folder, profile, waivers, partial(bar.advance, task))
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
    with usage_errors():
        if json_file is not None:
            json_file.write_text(text + "\n", encoding="utf-8")
        if html_file is not None:
            html_file.write_text(as_html(report), encoding="utf-8")
    if output == Format.json:
        sys.stdout.write(text + "\n")
    else:
        print_text(report, Console(highlight=False))
    tidy(cache)
    raise typer.Exit(0 if report["conforms"] else 1)

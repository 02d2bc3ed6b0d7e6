"""`attncheck board`: the libraries that are installed here, measured and judged."""

import json
import sys
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from attncheck import board as boards
from attncheck.cache import Cache
from attncheck.cli.app import UsageError, app, errors, progress_bar, usage_errors
from attncheck.cli.options import (
    Format,
    FormatOption,
    HtmlOption,
    JsonOption,
    OutOption,
    ResumeOption,
    WholeSetOption,
)
from attncheck.cli.places import check_places, place_of, tidy
from attncheck.judging import Judge
from attncheck.report import board_as_html, print_board


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
    set_name: WholeSetOption = None,
    timeout: Annotated[
        float, typer.Option(help="Seconds that one case or probe may take.", min=0.1)
    ] = 60.0,
    out: OutOption = None,
    resume: ResumeOption = False,
    against: Annotated[
        Path | None, typer.Option(help="A board to say what changed since.")
    ] = None,
    output: FormatOption = Format.text,
    json_file: JsonOption = None,
    html_file: HtmlOption = None,
) -> None:
    """Measure and judge every library that is installed here, one after the other."""
    with usage_errors(), place_of(out, resume) as place:
        check_places(json_file, html_file)
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
        tidy(cache)


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
    with progress_bar() as bar:
        whole = bar.add_task("implementations", total=len(names))
        for name in names:
            one = bar.add_task(name, total=None)

            def show(what: str, done: int, of: int, name=name, one=one) -> None:
                said = f"{name}: {what}"
                bar.update(one, description=said, completed=done, total=of)

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
            bar.remove_task(one)
            bar.advance(whole)
            if not errors.is_terminal:
                _say_row(rows[-1])
    return boards.board(rows, set(boards.BOARD) - set(boards.installed()))


def _say_row(row: Mapping[str, Any]) -> None:
    """One line on stderr, where no bar is shown."""
    counts = row.get("counts", {})
    words = ", ".join(f"{number} {outcome}" for outcome, number in counts.items())
    errors.print(escape(f"{row['name']}: {words or row['why_not']}"), soft_wrap=True)

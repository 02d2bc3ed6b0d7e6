"""The application, and what the caller is told: errors, notes and progress."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress

import attnref
from attncheck.choose import NoCaseError
from attncheck.config import ConfigError
from attncheck.exchange import ExchangeError
from attncheck.subject import SubjectError
from attncheck.waivers import WaiverError

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
def usage_errors() -> Iterator[None]:
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


def note(sentence: str) -> None:
    """Says something on stderr that is worth knowing, and no error."""
    errors.print(f"[yellow]attncheck:[/] {escape(sentence)}", soft_wrap=True)


def progress_bar() -> Progress:
    """A bar on stderr, with an estimate, where somebody looks at it."""
    return Progress(console=errors, transient=True, disable=not errors.is_terminal)


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

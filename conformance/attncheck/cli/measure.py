"""`attncheck fingerprint` and `diff`: what a function means, and what another does."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console

from attncheck.cli.app import UsageError, app, usage_errors
from attncheck.cli.options import (
    Format,
    FormatOption,
    FrameworkOption,
    MapOption,
    ProbeTimeoutOption,
)
from attncheck.cli.probes import probed
from attncheck.diff import Adapter
from attncheck.diff import diff as compare
from attncheck.fingerprint import Fingerprint
from attncheck.report import (
    diff_summary,
    fingerprint_summary,
    print_diff,
    print_fingerprint,
)


@app.command(
    epilog="""Examples:

* `attncheck fingerprint torch.nn.functional:scaled_dot_product_attention`
* `attncheck fingerprint my.py:attention --map mask=allowed --format json`

Exit status: 0 measured, 1 not found out how to call it, 2 usage or environment."""
)
def fingerprint(
    target: Annotated[str, typer.Argument(help="As for `run`.")],
    keywords: MapOption = None,
    framework: FrameworkOption = None,
    timeout: ProbeTimeoutOption = 60.0,
    output: FormatOption = Format.text,
) -> None:
    """Measure the conventions of a function, each with the probe that shows it."""
    with usage_errors():
        found = probed(target, framework, _declared(keywords), timeout)
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
        return probed(target, one.framework, adapter.keywords, timeout)

    with usage_errors():
        one = probed(a, framework_a, _declared(keywords_a), timeout)
        other = probed(b, framework_b, _declared(keywords_b), timeout)
        found = compare(one, other, measured)
    _print(diff_summary(found), print_diff, output)
    raise typer.Exit(1 if found.differences or found.profiles else 0)


def _declared(pairs: Sequence[str] | None) -> dict[str, str]:
    """Part of a call → keyword, of the values of --map."""
    declared: dict[str, str] = {}
    for pair in pairs or ():
        part, equals, keyword = pair.partition("=")
        if not (part and equals and keyword):
            raise UsageError(f"--map is like mask=allowed, not {pair!r}")
        if part in declared:
            both = f"{declared[part]!r} and as {keyword!r}"
            raise UsageError(f"--map gives {part!r} twice, as {both}")
        declared[part] = keyword
    return declared


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

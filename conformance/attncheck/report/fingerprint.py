"""A fingerprint as documents: JSON for machines, a table for terminals."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.markup import escape

from attncheck.fingerprint import Fingerprint
from attncheck.fingerprint.words import phrase, title
from attncheck.lines import plain
from attncheck.report.text import titled
from attnref.spec import SPEC

SCHEMA = "attncheck-fingerprint/1"


def fingerprint_summary(found: Fingerprint) -> dict[str, Any]:
    """A fingerprint in types of JSON; infinity is the string "inf", NaN is "nan"."""
    conventions = {
        name: asdict(reading) | {"spec": getattr(SPEC, name)}
        for name, reading in found.readings.items()
    }
    return plain(
        {
            "schema": SCHEMA,
            "name": found.name,
            "framework": found.framework,
            "version": found.version,
            "calling": asdict(found.calling),
            "conventions": conventions,
            "profiles": {d: asdict(reading) for d, reading in found.profiles.items()},
            "seconds": found.seconds,
        }
    )


def print_fingerprint(document: Mapping[str, Any], console: Console) -> None:
    """Prints what `fingerprint_summary` made."""
    heading = f"[bold]{escape(document['name'])}[/]  {escape(document['version'])}"
    console.print(heading, soft_wrap=True)
    readings = document["conventions"] | document["profiles"]
    table = titled("conventions; ≠ where the spec has it otherwise")
    for column in ("", "what", "here", "shown by"):
        table.add_column(column)
    for name, one in readings.items():
        if one["measured"]:
            differs = "≠" * ("spec" in one and one["value"] != one["spec"])
            here = escape(phrase(name, one["value"]))
            table.add_row(differs, title(name), here, escape(one["shown"]))
    console.print(table)
    unknown = {name: one for name, one in readings.items() if not one["measured"]}
    if unknown:
        table = titled("not measured")
        for column in ("what", "why"):
            table.add_column(column)
        for name, one in unknown.items():
            table.add_row(title(name), escape(one["shown"]))
        console.print(table)
    if ignored := document["calling"]["ignored"]:
        words = ", ".join(f"`{name}`" for name in ignored)
        console.print(f"left at their defaults: {escape(words)}", soft_wrap=True)
    console.print(f"{len(readings)} probes took {document['seconds']:.1f} s")

"""What was measured and judged of one implementation, in types of JSON."""

import datetime
import json
import os
import platform
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from attncheck.board.deviations import deviations
from attncheck.board.groups import GROUP_OF
from attncheck.case import DTYPES
from attncheck.fingerprint import Fingerprint
from attncheck.lines import ExchangeError, plain
from attncheck.subjects import Entry
from attncheck.verdict import Run, Verdict
from attnref.spec import SPEC

SCHEMA = "attncheck-board/1"

REFUSED = ("refused", "error")
"""Statuses of a call that ended in an exception."""

LOST = ("crash", "timeout")

EXCERPT = 200
"""Characters of what an implementation says."""


def row(entry: Entry, seen: Fingerprint, run: Run, set_name: str) -> dict[str, Any]:
    """One implementation: what it is, what it does, and what is wrong with it."""
    verdicts = [verdict for verdict in run.verdicts if not verdict.case.law]
    return {
        "name": entry.name,
        "docs": entry.docs,
        "packages": entry.versions,
        "version": seen.version,
        "profile": run.subject["profile"],
        "set": set_name,
        "cases": len(run.verdicts),
        "counts": dict(Counter(verdict.outcome for verdict in run.verdicts)),
        "seconds": round(seen.seconds + sum(v.seconds for v in run.verdicts), 1),
        "conventions": {
            name: _reading(reading) | {"spec": getattr(SPEC, name)}
            for name, reading in seen.readings.items()
        },
        "profiles": {dtype: _reading(one) for dtype, one in seen.profiles.items()},
        "totals": _totals(run.verdicts),
        "groups": _groups(verdicts),
        "refusals": _said(v for v in verdicts if v.status in REFUSED),
        "lost": _said(v for v in verdicts if v.status in LOST),
        "not_applicable": _said(v for v in verdicts if v.status == "not applicable"),
        "laws": [asdict(holding) for holding in run.laws if holding.broken],
        "deviations": deviations(run),
        "outcomes": _outcomes(run.verdicts),
    }


def board(rows: Sequence[Mapping[str, Any]], missing: Iterable[str]) -> dict[str, Any]:
    """Rows, and where and when they were measured."""
    return plain(
        {
            "schema": SCHEMA,
            "date": datetime.date.today().isoformat(),
            "machine": f"{platform.machine()}, {os.cpu_count()} processors, "
            f"{platform.system()}, Python {platform.python_version()}",
            "rows": [one for one in rows if "why_not" not in one],
            "not_measured": [one for one in rows if "why_not" in one],
            "not_installed": sorted(missing),
        }
    )


def read(path: Path) -> dict[str, Any]:
    """The board that a file holds.

    Raises:
        ExchangeError: it holds none.
        OSError: there is no such file.
    """
    try:
        found = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise ExchangeError(f"{path} is no JSON: {error}") from error
    schema = found.get("schema") if isinstance(found, dict) else None
    if schema != SCHEMA:
        raise ExchangeError(f"{path}: its schema is {schema}, must be {SCHEMA}")
    return found


def merged(boards: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Boards of several environments as one; of a row that is twice, the last."""
    rows = {row["name"]: row for one in boards for row in one["rows"]}
    failed = {row["name"]: row for one in boards for row in one["not_measured"]}
    names = {name for one in boards for name in one["not_installed"]}
    return {
        **boards[-1],
        "rows": [rows[name] for name in sorted(rows)],
        "not_measured": [failed[n] for n in sorted(set(failed) - set(rows))],
        "not_installed": sorted(names - set(rows) - set(failed)),
    }


def _reading(reading: Any) -> dict[str, Any]:
    shown = reading.shown[:EXCERPT]
    return {"measured": reading.measured, "value": reading.value, "shown": shown}


def _groups(verdicts: Iterable[Verdict]) -> dict[str, dict[str, Any]]:
    """Group of clauses → dtype → how many cases came to what, and the budget used."""
    cells: dict[str, dict[str, list[Verdict]]] = {}
    for verdict in verdicts:
        groups = {GROUP_OF[clause] for clause in verdict.case.clauses}
        for group in groups:
            by_dtype = cells.setdefault(group, {})
            by_dtype.setdefault(verdict.case.dtype, []).append(verdict)
    return {
        group: {dtype: _cell(row[dtype]) for dtype in DTYPES if dtype in row}
        for group, row in cells.items()
    }


def _totals(verdicts: Iterable[Verdict]) -> dict[str, tuple[int, int]]:
    """Storage type → how many cases pass, of how many that apply."""
    applicable = [v for v in verdicts if v.status != "not applicable"]
    of = Counter(verdict.case.dtype for verdict in applicable)
    passed = Counter(v.case.dtype for v in applicable if v.status == "pass")
    return {dtype: (passed[dtype], of[dtype]) for dtype in DTYPES if of[dtype]}


def _cell(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    used = max((v.used for v in verdicts if v.status == "pass"), default=None)
    counts = dict(Counter(verdict.status for verdict in verdicts))
    return {"counts": counts, "used": used if used is None else round(used, 3)}


def _said(verdicts: Iterable[Verdict]) -> list[dict[str, Any]]:
    """What is said, the most frequent first, with how often and of which cases."""
    words: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        words.setdefault(_without_sizes(verdict.message), []).append(verdict)
    return [
        {
            "words": said,
            "cases": len(found),
            "example": found[0].case.id,
            "dtypes": list(dict.fromkeys(v.case.dtype for v in found)),
        }
        for said, found in sorted(words.items(), key=lambda one: -len(one[1]))
    ]


def _without_sizes(message: str) -> str:
    """A message whose numbers are left out, so that those of a kind are one."""
    text = message.partition("\n")[0]
    digits = "".join("#" if char.isdigit() else char for char in text)
    while "##" in digits:
        digits = digits.replace("##", "#")
    if len(digits) <= EXCERPT:
        return digits
    return f"{digits[: EXCERPT // 4]} … {digits[-EXCERPT:]}"


def _outcomes(verdicts: Iterable[Verdict]) -> dict[str, list[str]]:
    """Outcome → the cases that came to it, but for those that pass."""
    found: dict[str, list[str]] = {}
    for verdict in verdicts:
        if verdict.outcome != "pass":
            found.setdefault(verdict.outcome, []).append(verdict.case.id)
    return found

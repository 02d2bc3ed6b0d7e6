"""The report for a terminal."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from attncheck.report.words import (
    amount,
    by_kind,
    counted,
    counts,
    diagnosis,
    element,
    excess,
    law,
    left_out,
    noisy,
    percent,
    real_model,
    reasons,
    share,
    shares,
    used,
    was_judged,
)
from attncheck.verdict import JUDGED

ALIKE = 3
"""Of a larger group of failures, what its simplest case is there for says little."""

SHOWN_WARNINGS = 3
"""The largest; the JSON report has all."""

SHOWN_FAILURES = 5
"""Groups of alike failures that are shown; the JSON report has every case."""

SHOWN_DAMAGE = 3
"""Lines that could not be read, and are shown."""


def print_text(report: Mapping[str, Any], console: Console) -> None:
    """Prints the report: per subject, then agreement, then what it comes to."""
    for subject in report["subjects"]:
        console.print(*_lines(subject), sep="\n", soft_wrap=True)
    if len(report["subjects"]) > 1:
        console.print(_table(report))
    else:
        console.print(_dtypes(report["subjects"][0]))
    if report["agreement"]:
        console.print(_agreement(report["agreement"]))
    if report["model"]:
        console.print(_model(report["model"]))
    if report["model_missing"]:
        console.print(
            f"[yellow]real model: not run: {escape(report['model_missing'])}[/]",
            soft_wrap=True,
        )
    for subject in report["subjects"]:
        console.print(_last_line(subject), soft_wrap=True)


def _lines(subject: Mapping[str, Any]) -> Iterator[str]:
    version, profile = subject.get("version", ""), f"profile {subject['profile']}"
    rest = "  ".join(filter(None, [escape(version), profile]))
    yield f"[bold]{escape(subject['name'])}[/]  {rest}"
    for name, value in subject.get("conventions", {}).items():
        yield f"  differs from the spec: {name} = {escape(str(value))}"
    yield from _damage(subject["damage"])
    yield from _measured(subject)
    for number, line in enumerate(left_out(subject)):
        yield f"  [yellow]{escape(line)}[/]" if number == 0 else f"    {escape(line)}"
    laws = [law(holding) for holding in subject["laws"] if was_judged(holding)]
    if laws:
        yield f"  laws: {'; '.join(laws)}"
    for holding in (one for one in subject["laws"] if one["why"]):
        yield f"  law {escape(law(holding))}"
    for broken in (place for holding in subject["laws"] for place in holding["broken"]):
        yield f"  [red]law broken[/]  {escape(broken)}"
    if subject["not_applicable"]:
        yield f"  not applicable: {escape(reasons(subject['not_applicable']))}"
    if subject["results_not_judged"]:
        yield f"  not judged: {', '.join(subject['results_not_judged'])}"
    if subject["clauses_failing"]:
        words = escape(", ".join(subject["clauses_failing"]))
        yield f"  [red]clauses of which every case fails: {words}[/]"
    if subject["clauses_not_judged"] and subject["counts"].keys() & set(JUDGED):
        clauses = subject["clauses_not_judged"]
        more = f" and {len(clauses) - 8} more" if clauses[8:] else ""
        words = escape(", ".join(clauses[:8]))
        yield f"  [red]clauses without a judged case: {words}{more}[/]"
    for found in subject["diagnoses"]:
        for number, line in enumerate(diagnosis(found)):
            head = "[bold]diagnosis[/]" if number == 0 else " " * 9
            yield f"  {head}  {escape(line)}"
    yield from _waived(subject["failures"])
    failures = [f for f in subject["failures"] if f["status"] != "waived"]
    groups = by_kind(failures)
    for alike in groups[:SHOWN_FAILURES]:
        yield from _failure_lines(alike)
    if len(groups) > SHOWN_FAILURES:
        yield f"  … and {counted(len(groups) - SHOWN_FAILURES, 'more kind')} of failure"
    if len(failures) > len(groups):
        yield "  [dim]every failing case: --html FILE, or --format json[/]"
    if subject["minimal"]:
        yield from _minimal(subject["minimal"])


def _minimal(minimal: Mapping[str, Any]) -> Iterator[str]:
    """The small case, as lines that can be copied."""
    size = counted(minimal["scores"], "score")
    yield f"  [bold]minimal[/]  {escape(minimal['origin'])} cut down to {size}:"
    yield ""
    for line in minimal["snippet"].splitlines():
        yield escape(f"    {line}".rstrip())
    yield ""


def _damage(sentences: Sequence[str]) -> Iterator[str]:
    """What was lost of the files."""
    for sentence in sentences[:SHOWN_DAMAGE]:
        yield f"  [yellow]lost[/]  {escape(sentence)}"
    if len(sentences) > SHOWN_DAMAGE:
        more = counted(len(sentences) - SHOWN_DAMAGE, "more line")
        yield f"  [yellow]lost[/]  {more}; all: --format json"


def _waived(failures: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Failures that are expected, by the reason."""
    by_reason: dict[str, list[str]] = {}
    for failure in failures:
        if failure["status"] == "waived":
            by_reason.setdefault(failure["waived"], []).append(failure["case"])
    for reason, cases in by_reason.items():
        more = f" (and {counted(len(cases) - 1, 'more case')})" if cases[1:] else ""
        yield f"  [yellow]waived[/]  {escape(cases[0])}{more}: {escape(reason)}"


def _measured(subject: Mapping[str, Any]) -> Iterator[str]:
    """The precision that the results show, where it is not the one that is claimed."""
    others = [
        f"{dtype} {measured}"
        for dtype, measured in subject["measured"].items()
        if measured not in (None, subject["profile"]) and _all_ran(subject, dtype)
    ]
    if others:
        yield f"  declared {subject['profile']}, measured: {', '.join(others)}"
    for one in subject["pooled"]:
        if not one["passes"] and not subject["failures"]:
            yield f"  [red]all cases together[/]: {excess(one)}"
    warnings = subject["warnings"]
    for warning in warnings[:SHOWN_WARNINGS]:
        yield f"  [yellow]warning[/]  {escape(noisy(warning))}"
    if warnings[SHOWN_WARNINGS:]:
        yield f"  … and {counted(len(warnings) - SHOWN_WARNINGS, 'more warning')}"


def _all_ran(subject: Mapping[str, Any], dtype: str) -> bool:
    """Whether every case of the type that applies was computed."""
    counted = subject["dtypes"].get(dtype, {"counts": {}})["counts"]
    return not counted.keys() - {*JUDGED, "not applicable", "waived"}


def _failure_lines(failures: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    simplest = failures[0]
    more = f" (and {counted(len(failures) - 1, 'more case')})" if failures[1:] else ""
    yield f"  [red]{simplest['status']}[/]  {escape(simplest['case'])}{more}"
    for line in failure_lines(simplest):
        yield f"    {line}"
    if simplest["status"] == "fail" and len(failures) <= ALIKE:
        yield f"    [dim]{why(simplest)}[/]"


def failure_lines(failure: Mapping[str, Any]) -> Iterator[str]:
    """What there is to say of one failure, line by line, in markup."""
    first = failure["first"]
    if failure["waived"]:
        yield f"delete the waiver: {escape(failure['waived'])}"
    if failure["step"]:
        yield f"first step that diverges: [bold]{failure['step']}[/]"
    if failure["message"]:
        yield escape(failure["message"])
    if first and first["message"]:
        yield f"`{first['name']}` {escape(first['message'])}"
    if first and first["worst"]:
        yield escape(element(first))
    if first and len(first["split"]) > 1:
        yield f"the budget there: {shares(first['split'])}"


def why(failure: Mapping[str, Any]) -> str:
    """`this case is there for: …`, in markup."""
    return f"this case is there for: {escape(failure['why'])}"


def _dtypes(subject: Mapping[str, Any]) -> Table:
    table = titled("cases passed, worst budget used")
    for heading in ("dtype", "cases", "budget used", "by"):
        table.add_column(heading)
    for dtype, cell in subject["dtypes"].items():
        by = escape(cell["used_by"] or "")
        table.add_row(dtype, counts(cell), used(cell), by)
    return table


def _table(report: Mapping[str, Any]) -> Table:
    """Subject × dtype: passed of judged cases, and the worst share of a budget."""
    dtypes = list(dict.fromkeys(d for s in report["subjects"] for d in s["dtypes"]))
    table = titled("cases passed, worst budget used; max |Δ| in the real model")
    for heading in ("subject", *dtypes, "real model"):
        table.add_column(heading)
    for subject in report["subjects"]:
        cells = [
            f"{counts(cell)}\n{used(cell)}" if cell else "—"
            for cell in map(subject["dtypes"].get, dtypes)
        ]
        real = real_model(report, subject["name"])
        table.add_row(escape(subject["name"]), *cells, real)
    return table


def _agreement(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Pair × dtype: the worst difference, and how much is equal bit for bit."""
    dtypes = list(dict.fromkeys(row["dtype"] for row in rows))
    table = titled("pairwise: worst difference of both budgets, bitwise equal results")
    for heading in ("pair", *dtypes):
        table.add_column(heading)
    pairs: dict[tuple, dict[str, str]] = {}
    for row in rows:
        cell = f"{share(row['worst'])}, {percent(row['bitwise'])}"
        pairs.setdefault((row["a"], row["b"]), {})[row["dtype"]] = cell
    for (a, b), cells in pairs.items():
        table.add_row(escape(f"{a}\n{b}"), *(cells.get(dtype, "—") for dtype in dtypes))
    return table


def _model(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = titled("real model: max |Δ| of sentence embeddings of all-MiniLM-L6-v2")
    for heading in ("attention by", "and by", "max |Δ|", "rounding explains", ""):
        table.add_column(heading)
    for row in rows:
        word = "[green]pass[/]" if row["passes"] else "[red]FAIL[/]"
        numbers = amount(row["difference"]), amount(row["limit"])
        table.add_row(escape(row["a"]), escape(row["b"]), *numbers, word)
    return table


def titled(title: str) -> Table:
    """A table as all of the judge's are."""
    return Table(
        title=f"\n[bold]{title}[/]",
        box=SIMPLE_HEAD,
        title_justify="left",
        pad_edge=False,
    )


def _last_line(subject: Mapping[str, Any]) -> str:
    numbers = ", ".join(f"{n} {status}" for status, n in subject["counts"].items())
    word = "[green]conforms[/]" if subject["conforms"] else "[red]does not conform[/]"
    return f"{escape(subject['name'])} {word}: {numbers}"

"""Cases and results as plain files, so that code in any language can be judged.

A folder holds `cases.jsonl`, one case a line, beside a safetensors file of arrays for
each case; whoever runs the cases appends to `results.jsonl`, one result a line, beside
a safetensors file of arrays for each result.  A result is on disk before its line is,
so an interrupted run goes on where it was.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from attncheck.arrays import read_arrays, write_arrays
from attncheck.case import ALL_RESULTS as RESULT_NAMES
from attncheck.case import Case, check_inputs
from attncheck.lines import (
    LIMIT,
    ExchangeError,
    Line,
    clean,
    naming,
    read,
    shown,
    written,
)
from attncheck.records import CASE, CASE_SCHEMA, RESULT, RESULT_SCHEMA, check

CASES, RESULTS = "cases.jsonl", "results.jsonl"
MODEL = "results/real-model.safetensors"
"""The real model's sentence embeddings, where the subject was run inside it."""

FINISHED = ("done", "refused", "not applicable", "error")
"""Statuses that a subject came to by itself; the others are worth another try."""

NOT_JUDGED = "not judged"
"""The status of a result that cannot be read, which no line may say of itself."""

LARGEST = 2**26
"""Elements of the largest array on the way to a result, of a case that is read."""

HEADER = 2**20
"""Bytes that a file of results may have beside its arrays."""

LISTED = 100
"""Damaged lines of no case that are told one by one."""

LONGEST_MESSAGE = 4000
"""Characters of a message; of a longer one, the first."""


@dataclass(frozen=True)
class Result:
    """What a subject made of one case."""

    id: str
    status: str
    """One of `attncheck.records.STATUSES`, or `NOT_JUDGED`."""
    message: str = ""
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    seconds: float = 0.0
    subject: Mapping[str, Any] = field(default_factory=dict)
    sha256: str = ""
    """Hash of the case that was run; not every implementer writes it."""


class Results(dict[str, Result]):
    """Results by the id of their case."""

    def __init__(
        self, results: Mapping[str, Result], damage: Iterable[str] = ()
    ) -> None:
        super().__init__(results)
        self.damage = tuple(damage)
        """One sentence for each line that is of no case, or of nobody knows which."""


def write_cases(folder: Path, cases: Iterable[Case]) -> None:
    """Writes `cases.jsonl` and the arrays of every case.

    Raises:
        ExchangeError: the folder holds files of these names that are somebody else's.
    """
    _check_ours(folder)
    rewrite_cases(folder, cases)


def rewrite_cases(folder: Path, cases: Iterable[Case]) -> None:
    """Writes `cases.jsonl` and the arrays of every case, whatever is there."""
    lines = []
    for case in cases:
        file = f"cases/{_file_name(case.id)}"
        write_arrays(folder / file, case.inputs)
        lines.append(written(_case_record(case, file)))
    (folder / CASES).write_text("\n".join(lines) + "\n", encoding="utf-8")


def read_cases(folder: Path) -> list[Case]:
    """The cases of a folder, their hashes checked.

    Raises:
        ExchangeError: no such file, a line that is no case, two of one id, or arrays
            that are not those that the line was written with.  A folder of which one
            case is damaged is refused: what is left says less than it seems to.
    """
    cases: dict[str, Case] = {}
    for line in read(folder / CASES):
        record = line.record()
        with naming(line.place):
            check(record, CASE)
            case = _case(record, read_arrays(_inside(folder, record["file"])))
            if case.id in cases:
                raise ValueError(f"case {case.id} is there twice")
            cases[case.id] = case
    return list(cases.values())


def append_result(folder: Path, result: Result) -> None:
    """Adds one result: its arrays first, then its line."""
    append_record(folder, write_result(folder, result))


def write_result(folder: Path, result: Result) -> dict[str, Any]:
    """Writes the arrays of a result; the record that its line is to hold."""
    said = result_record(result)
    if said["file"] is not None:
        write_arrays(folder / said["file"], result.arrays)
    return said


def result_record(result: Result) -> dict[str, Any]:
    """What the line of a result says."""
    file = f"results/{_file_name(result.id)}" if result.arrays else None
    return {
        "schema": RESULT_SCHEMA,
        "id": result.id,
        "status": result.status,
        "message": result.message,
        "file": file,
        "outputs": list(result.arrays),
        "seconds": round(result.seconds, 6),
        "subject": dict(result.subject),
        "sha256": result.sha256,
    }


def append_record(folder: Path, record: Mapping[str, Any]) -> int:
    """Adds the line of a result; how many bytes it has."""
    # What a subject says may hold halves of characters, which no file can.
    line = (written(record) + "\n").encode(errors="replace")
    with (folder / RESULTS).open("ab") as lines:
        return lines.write(line)


def read_results(folder: Path, cases: Iterable[Case] | None = None) -> Results:
    """The results of a folder by case id; of two for a case, the later one.

    A line that is damaged costs its own case only, which is then not judged, and says
    why; it displaces none that can be read.

    Args:
        cases: whose results are wanted.  Those of other cases, or of other versions of
            these, displace nothing and are not read.

    Raises:
        ExchangeError: no such file.
    """
    known = None if cases is None else {case.id: case for case in cases}
    latest, instead, damage = _told(_result_lines(folder), known)
    results = {id: Result(id, NOT_JUDGED, why) for id, why in instead.items()}
    for id, (place, record) in latest.items():
        results[id] = _result(folder, place, record, (known or {}).get(id))
    return Results(results, damage)


def _told(
    lines: Iterable[Line], known: Mapping[str, Case] | None
) -> tuple[dict[str, tuple[str, dict[str, Any]]], dict[str, str], list[str]]:
    """Id → place and record of its latest line; id → why it has none; what was lost."""
    latest: dict[str, tuple[str, dict[str, Any]]] = {}
    stale: dict[str, str] = {}
    broken: list[tuple[str, str]] = []
    strangers: list[str] = []
    for line in lines:
        id, record, why = _identified(line)
        if why:
            broken.append((id, why))
        elif known is not None and id not in known:
            strangers.append(id)
        elif known is not None and not _is_of(record, known[id]):
            stale[id] = f"{line.place}: is of another version of the case (sha256)"
        else:
            latest[id] = line.place, record
    wanted = broken if known is None else [one for one in broken if one[0] in known]
    instead = stale | {id: why for id, why in wanted if id and id not in latest}
    lost = [why for id, why in broken if id not in instead]
    return latest, instead, _listed(lost) + _counted(strangers)


def _identified(line: Line) -> tuple[str, dict[str, Any], str]:
    """Id and record of a line, as far as they can be read, and what is wrong."""
    id, record = "", {}
    try:
        record = line.record()
        with naming(line.place):
            check(record, {"id": RESULT["id"]})
            id = record["id"]
            check(record, RESULT)
    except ExchangeError as error:
        return id, record, str(error)
    return id, record, ""


def _is_of(record: Mapping[str, Any], case: Case) -> bool:
    """Whether the case is still the one that was run."""
    return record.get("sha256", "") in ("", case.sha256)


def _listed(sentences: Sequence[str]) -> list[str]:
    """The first of them, and how many more there are."""
    more = len(sentences) - LISTED
    return [*sentences[:LISTED], *([f"{more} more lines are damaged"] * (more > 0))]


def _counted(strangers: Sequence[str]) -> list[str]:
    """One sentence about results of no case, if there are some."""
    names = ", ".join(map(shown, strangers[:3])) + ", …" * (len(strangers) > 3)
    some = f"results that are of no case here: {names} ({len(strangers)} in all)"
    return [some] if strangers else []


def read_result(folder: Path, line: Line, case: Case) -> Result:
    """The result of a case that a line of the folder says.

    One that is damaged is not judged and says why.
    """
    _, record, why = _identified(line)
    if why:
        return Result(case.id, NOT_JUDGED, why)
    return _result(folder, line.place, record, case)


def finished_records(folder: Path) -> Iterator[dict[str, Any]]:
    """The records of what subjects had finished and what can be read."""
    for line in _result_lines(folder) if (folder / RESULTS).exists() else ():
        with suppress(ExchangeError):
            record = line.record()
            with naming(line.place):
                check(record, RESULT)
            is_finished = record["status"] in FINISHED
            if is_finished and _result(folder, "", record).status != NOT_JUDGED:
                yield record


def _case_record(case: Case, file: str) -> dict[str, Any]:
    return {
        "schema": CASE_SCHEMA,
        "id": case.id,
        "op": case.op,
        "clauses": list(case.clauses),
        "why": case.why,
        "dtype": case.dtype,
        "sizes": case.sizes,
        "file": file,
        "inputs": list(case.inputs),
        "strides": dict(case.strides),
        **case.options,
        "wants": list(case.wants),
        "compiled": case.compiled,
        "law": case.law,
        "twin": case.twin,
        "settings": dict(case.settings),
        "sha256": case.sha256,
    }


def _case(record: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Case:
    """The case of a record that says what it must.

    Raises:
        ValueError: it is no call, or not the one that the record was written for.
    """
    for name in record["inputs"]:
        if name not in arrays:
            raise ValueError(f"`{name}` is missing in its file")
    case = Case(
        id=record["id"],
        clauses=tuple(record["clauses"]),
        why=record["why"],
        dtype=record["dtype"],
        inputs={name: arrays[name] for name in record["inputs"]},
        scale=None if record["scale_is_default"] else record["scale"],
        softcap=record["softcap"],
        dropout_rate=record["dropout_rate"],
        predicate=record["predicate"],
        wants=tuple(record["wants"]),
        compiled=record["compiled"],
        law=record["law"],
        twin=record["twin"],
        op=record["op"],
        settings=record.get("settings", {}),
    )
    check_inputs(case)
    if case.largest > LARGEST:
        raise ValueError(f"an array on the way has {case.largest} elements: too many")
    case = replace(case, strides=record["strides"])
    if case.sha256 != record["sha256"]:
        raise ValueError(f"case {case.id} was changed: its hash differs")
    for key, value in _case_record(case, record["file"]).items():
        if record.get(key, value) != value:
            raise ValueError(f"'{key}' must be {value}, not {shown(record[key])}")
    return case


def _result_lines(folder: Path) -> Iterator[Line]:
    """The lines of results; a last one that was cut short is passed over."""
    for line in read(folder / RESULTS):
        if line.is_ended or _holds_record(line):
            yield line


def _holds_record(line: Line) -> bool:
    try:
        line.record()
    except ExchangeError:
        return False
    return True


def _result(
    folder: Path, place: str, record: Mapping[str, Any], case: Case | None = None
) -> Result:
    """The result of a record, not judged if its arrays cannot be read."""
    try:
        with naming(place):
            arrays = _result_arrays(folder, record, case)
    except ExchangeError as error:
        return Result(record["id"], NOT_JUDGED, str(error))
    return Result(
        record["id"],
        record["status"],
        clean(record.get("message", ""))[:LONGEST_MESSAGE],
        arrays,
        float(record.get("seconds", 0)),
        record.get("subject", {}),
        record.get("sha256", ""),
    )


def _result_arrays(
    folder: Path, record: Mapping[str, Any], case: Case | None
) -> dict[str, np.ndarray]:
    if not record.get("file"):
        return {}
    limit = LIMIT if case is None else HEADER + 8 * len(RESULT_NAMES) * case.largest
    arrays = read_arrays(_inside(folder, record["file"]), limit)
    if unknown := sorted(set(arrays) - set(RESULT_NAMES)):
        known = ", ".join(RESULT_NAMES)
        raise ValueError(f"arrays are named {known}, not {shown(', '.join(unknown))}")
    if case is None:
        return arrays
    return {name: arrays[name] for name in case.wants if name in arrays}


def _inside(folder: Path, file: str) -> Path:
    """The path of a file that a record names, which lies in the folder.

    Raises:
        ValueError: it does not, links followed.
    """
    try:
        path = (folder / file).resolve()
        is_inside = path.is_relative_to(folder.resolve())
    except (OSError, RuntimeError) as error:  # a name too long, a circle of links
        raise ValueError(f"file {shown(file)} cannot be followed: {error}") from error
    if not is_inside:
        raise ValueError(f"file {shown(file)} is outside of the folder")
    return path


def _check_ours(folder: Path) -> None:
    """Raises ExchangeError before files that somebody else wrote are lost."""
    cases, results = folder / CASES, folder / RESULTS
    if results.exists() and not cases.exists():
        raise ExchangeError(f"{folder} holds a {RESULTS} but no {CASES}: not ours")
    if cases.exists():
        first = next((line.record() for line in read(cases)), {})
        if first.get("schema", CASE_SCHEMA) != CASE_SCHEMA:
            raise ExchangeError(f"{cases} is not ours: its schema is another")


def _file_name(case_id: str) -> str:
    return quote(case_id, safe="") + ".safetensors"

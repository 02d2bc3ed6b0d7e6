"""Cases and results as plain files, so that code in any language can be judged.

A folder holds `cases.jsonl`, one case a line, beside a safetensors file of arrays for
each case; whoever runs the cases appends to `results.jsonl`, one result a line, beside
a safetensors file of arrays for each result.  A result is on disk before its line is,
so an interrupted run goes on where it was.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from attncheck.case import RESULTS as RESULT_NAMES
from attncheck.case import Case

CASE_SCHEMA = "attncheck-case/1"
STATUSES = ("done", "refused", "not applicable", "error", "crash", "timeout")
CASES, RESULTS = "cases.jsonl", "results.jsonl"
MODEL = "results/real-model.safetensors"
"""The real model's sentence embeddings, where the subject was run inside it."""

LOADED = "results/loaded"
"""An empty file that a worker leaves when it has imported its subject."""

FINISHED = ("done", "refused", "not applicable", "error")
"""Statuses that a subject came to by itself; the others are worth another try."""


class ExchangeError(ValueError):
    """A file that does not say what it should; the message names file and line."""


@dataclass(frozen=True)
class Result:
    """What a subject made of one case."""

    id: str
    status: str
    """One of `STATUSES`."""
    message: str = ""
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    seconds: float = 0.0
    subject: Mapping[str, Any] = field(default_factory=dict)
    sha256: str = ""
    """Hash of the case that was run; not every implementer writes it."""

    def is_of(self, case: Case) -> bool:
        """Whether the case is still the one that was run."""
        return self.sha256 in ("", case.sha256)


def write_cases(folder: Path, cases: Iterable[Case]) -> None:
    """Writes `cases.jsonl` and the arrays of every case.

    Raises:
        ExchangeError: the folder holds files of these names that are somebody else's.
    """
    _check_ours(folder)
    lines = []
    for case in cases:
        file = f"cases/{_file_name(case.id)}"
        write_arrays(folder / file, case.inputs)
        lines.append(json.dumps(_case_record(case, file), ensure_ascii=False))
    (folder / CASES).write_text("\n".join(lines) + "\n", encoding="utf-8")


def read_cases(folder: Path) -> list[Case]:
    """The cases of a folder, their hashes checked.

    Raises:
        ExchangeError: no such file, a line that is no case, or arrays that are not
            those that the line was written with.
    """
    cases = []
    for place, record in _lines(folder / CASES):
        with _naming(place):
            if record["schema"] != CASE_SCHEMA:
                raise ValueError(f"schema is {record['schema']!r}, not {CASE_SCHEMA!r}")
            case = _case(record, read_arrays(_inside(folder, record["file"])))
            if case.sha256 != record["sha256"]:
                raise ValueError(f"case {case.id} was changed: its hash differs")
            cases.append(case)
    return cases


def append_result(folder: Path, result: Result) -> None:
    """Adds one result: its arrays first, then its line."""
    file = f"results/{_file_name(result.id)}" if result.arrays else None
    record = {
        "id": result.id,
        "status": result.status,
        "message": result.message,
        "file": file,
        "outputs": list(result.arrays),
        "seconds": round(result.seconds, 6),
        "subject": dict(result.subject),
        "sha256": result.sha256,
    }
    if file is not None:
        write_arrays(folder / file, result.arrays)
    with (folder / RESULTS).open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(record, ensure_ascii=False) + "\n")


def read_results(folder: Path) -> dict[str, Result]:
    """The results of a folder by case id; of two for a case, the later one.

    Raises:
        ExchangeError: no such file, a line that is no result, or damaged arrays.
    """
    results = {}
    for place, record in _lines(folder / RESULTS):
        with _naming(place):
            if record["status"] not in STATUSES:
                known = ", ".join(STATUSES)
                raise ValueError(f"status is one of {known}, not {record['status']!r}")
            subject = record.get("subject", {})
            if not isinstance(subject, dict) or not (
                subject == {} or "name" in subject
            ):
                raise TypeError("subject is an object with a name")
            results[record["id"]] = Result(
                record["id"],
                record["status"],
                record.get("message", ""),
                _result_arrays(folder, record),
                float(record.get("seconds", 0)),
                subject,
                record.get("sha256", ""),
            )
    return results


def pending(folder: Path, cases: Iterable[Case]) -> list[Case]:
    """The cases that have no result of theirs."""
    path = folder / RESULTS
    records = [record for _, record in _lines(path)] if path.exists() else []
    done = {record["id"]: record.get("sha256", "") for record in records}
    return [case for case in cases if done.get(case.id) not in ("", case.sha256)]


def begin(folder: Path, subject: Mapping[str, Any] | None) -> None:
    """Makes a folder ready for a run.

    What an earlier run left goes, so that none of it is taken for new; but if `subject`
    is given, what the same subject had finished stays.
    """
    path = folder / RESULTS
    records = [record for _, record in _lines(path)] if path.exists() else []
    kept = [
        json.dumps(record, ensure_ascii=False) + "\n"
        for record in records
        if record["subject"] == subject and record["status"] in FINISHED
    ]
    path.write_text("".join(kept), encoding="utf-8")
    (folder / MODEL).unlink(missing_ok=True)


def repair(folder: Path) -> None:
    """Removes a line of results that was cut short."""
    path = folder / RESULTS
    if not path.exists():
        return
    whole, newline, tail = path.read_bytes().rpartition(b"\n")
    if tail:
        path.write_bytes(
            whole + newline + (b"" if _is_cut_short(tail) else tail + b"\n")
        )


def _is_cut_short(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return True
    return False


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays as one safetensors file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    packed = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    save_file(packed, path)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file.

    Raises:
        ExchangeError: the file is missing or damaged.
    """
    try:
        return load_file(path)
    # AttributeError: a type that safetensors knows and NumPy does not.
    except (OSError, SafetensorError, AttributeError) as error:
        raise ExchangeError(f"{path} cannot be read: {error}") from error


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
        "sha256": case.sha256,
    }


def _case(record: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Case:
    return Case(
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
        strides=record["strides"],
        compiled=record["compiled"],
        law=record["law"],
        twin=record["twin"],
    )


def _lines(path: Path) -> Iterator[tuple[str, Any]]:
    """The objects of a JSON-lines file, each with its place, `file:line`.

    A last result that an interruption cut short is passed over.
    """
    if not path.is_file():
        raise ExchangeError(f"{path.parent} holds no {path.name}")
    lines = path.read_bytes().split(b"\n")
    if not lines[-1] or (path.name == RESULTS and _is_cut_short(lines[-1])):
        lines.pop()
    for number, line in enumerate(lines, start=1):
        place = f"{path}:{number}"
        with _naming(place):
            record = json.loads(line)
            if not isinstance(record, dict):
                raise TypeError(f"is a {type(record).__name__}, not an object")
        yield place, record


@contextmanager
def _naming(place: str) -> Iterator[None]:
    """What is wrong with a line becomes one sentence that names the line."""
    try:
        yield
    except KeyError as error:
        raise ExchangeError(f"{place}: {error} is missing") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise ExchangeError(f"{place}: {error}") from error


def _result_arrays(folder: Path, record: Mapping[str, Any]) -> dict[str, np.ndarray]:
    if not record.get("file"):
        return {}
    arrays = read_arrays(_inside(folder, record["file"]))
    if unknown := sorted(set(arrays) - set(RESULT_NAMES)):
        known = ", ".join(RESULT_NAMES)
        raise ValueError(f"arrays are named {known}, not {', '.join(unknown)}")
    return arrays


def _inside(folder: Path, file: str) -> Path:
    """The path of a file that a record names, which lies in the folder.

    Raises:
        ValueError: it does not.
    """
    path = (folder / file).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise ValueError(f"file {file!r} is outside of the folder")
    return path


def _check_ours(folder: Path) -> None:
    """Raises ExchangeError before files that somebody else wrote are lost."""
    cases, results = folder / CASES, folder / RESULTS
    if results.exists() and not cases.exists():
        raise ExchangeError(f"{folder} holds a {RESULTS} but no {CASES}: not ours")
    if cases.exists():
        first: dict[str, Any] = next((record for _, record in _lines(cases)), {})
        if first.get("schema", CASE_SCHEMA) != CASE_SCHEMA:
            raise ExchangeError(f"{cases} is not ours: its schema is another")


def _file_name(case_id: str) -> str:
    return quote(case_id, safe="") + ".safetensors"

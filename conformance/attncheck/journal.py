"""The results of a run while they come in: one process writes them, line by line."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attncheck.case import Case
from attncheck.exchange import MODEL, RESULTS, append_record, finished_records
from attncheck.lines import written


class Journal:
    """`results.jsonl` of a folder, and what it says.

    Whenever the run is cut short, the file holds what had been finished.
    """

    def __init__(self, folder: Path, cases: Sequence[Case]) -> None:
        self._folder = folder
        self._cases = cases
        self._records: dict[str, Mapping[str, Any]] = {}

    def begin(self, subject: Mapping[str, Any] | None) -> None:
        """Makes the folder ready for a run.

        What an earlier run left goes, so that none of it is taken for new; but if
        `subject` is given, what the same subject had finished stays.
        """
        hashes = {case.id: case.sha256 for case in self._cases}
        kept = () if subject is None else finished_records(self._folder, subject)
        self._records = {
            record["id"]: record
            for record in kept
            if record.get("sha256") in ("", hashes.get(record["id"]))
        }
        (self._folder / MODEL).unlink(missing_ok=True)
        self.settle()

    def add(self, record: Mapping[str, Any]) -> None:
        """Adds the result of a case."""
        self._records[record["id"]] = record
        append_record(self._folder, record)

    def settle(self) -> None:
        """Writes all results anew, in the order of the cases."""
        found = (self._records.get(case.id) for case in self._cases)
        lines = [written(record) + "\n" for record in found if record is not None]
        path = self._folder / RESULTS
        draft = path.with_suffix(".draft")
        draft.write_text("".join(lines), encoding="utf-8", errors="replace")
        draft.replace(path)

    def left(self) -> list[int]:
        """The places of the cases that have no result."""
        return [n for n, case in enumerate(self._cases) if case.id not in self._records]

    def __len__(self) -> int:
        return len(self._records)

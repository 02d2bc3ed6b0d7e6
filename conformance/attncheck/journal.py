"""The results of a run while they come in: one process writes them, line by line."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from attncheck.case import Case
from attncheck.exchange import MODEL, RESULTS, append_record, finished_records
from attncheck.lines import plain, written


class Journal:
    """`results.jsonl` of a folder, and what it says.

    Whenever the run is cut short, the file holds what had been finished; and what a
    subject does to it is undone.
    """

    def __init__(self, folder: Path, cases: Sequence[Case]) -> None:
        self._path = folder / RESULTS
        self._cases = cases
        self._records: dict[str, Mapping[str, Any]] = {}
        self._size = 0
        """Bytes of the file, if nobody else has written there."""

    def begin(self, subject: Mapping[str, Any] | None) -> str:
        """Makes the folder ready for a run.

        What an earlier run left goes, so that none of it is taken for new; but if
        `subject` is given, what the same subject had finished stays.

        Returns:
            A sentence about what does not stay because the subject was changed, if so.
        """
        hashes = {case.id: case.sha256 for case in self._cases}
        kept = () if subject is None else finished_records(self._path.parent)
        differs: set[str] = set()
        dropped = 0
        self._records = {}
        for record in kept:
            if record.get("sha256") not in ("", hashes.get(record["id"])):
                continue
            if changed := _changed(record.get("subject", {}), plain(subject)):
                differs |= changed
                dropped += 1
            else:
                self._records[record["id"]] = record
        (self._path.parent / MODEL).unlink(missing_ok=True)
        self.settle()
        keys = ", ".join(sorted(differs))
        return f"{dropped} results are not kept: its {keys} changed" if dropped else ""

    def add(self, record: Mapping[str, Any]) -> None:
        """Adds the result of a case."""
        self._records[record["id"]] = record
        with suppress(OSError):  # the folder may be on its way out: once more, later
            if self._is_ours():
                self._size += append_record(self._path.parent, record)
            else:
                self.settle(in_order=False)

    def settle(self, *, in_order: bool = True) -> None:
        """Writes all results anew, in the order of the cases, or as they came."""
        places = {case.id: place for place, case in enumerate(self._cases)}
        records = list(self._records.values())
        if in_order:
            records.sort(key=lambda record: places[record["id"]])
        lines = [written(record) + "\n" for record in records]
        content = "".join(lines).encode(errors="replace")
        self._path.parent.mkdir(parents=True, exist_ok=True)
        draft = self._path.with_suffix(".draft")
        draft.write_bytes(content)
        draft.replace(self._path)
        self._size = len(content)

    def left(self) -> list[int]:
        """The places of the cases that have no result."""
        return [n for n, case in enumerate(self._cases) if case.id not in self._records]

    def __len__(self) -> int:
        return len(self._records)

    def _is_ours(self) -> bool:
        """Whether the file is as it was left."""
        with suppress(OSError):
            return self._path.stat().st_size == self._size
        return False


def _changed(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> set[str]:
    """The keys in which what two subjects say of themselves differs."""
    return {key for key in {*theirs, *ours} if theirs.get(key) != ours.get(key)}

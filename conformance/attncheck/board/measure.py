"""One implementation after the other: its fingerprint, then the cases it takes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attncheck.board.row import row
from attncheck.collect import collect
from attncheck.fingerprint import Fingerprint, fingerprint
from attncheck.judging import Folder, Judge
from attncheck.lines import plain
from attncheck.subject import SubjectError
from attncheck.subjects import LIBRARIES, Entry
from attncheck.suite.fit import Takes, cases_for
from attncheck.verdict import Run

ROW = "row.json"
"""The file of a folder that says that its implementation is done."""


BOARD = {name: one for name, one in LIBRARIES.items() if not one.is_ours}
"""Name → entry, of what is no code of this project's own."""


def installed() -> list[str]:
    """The libraries' implementations whose packages are installed here."""
    return [name for name, one in BOARD.items() if not one.missing]


def measure(
    name: str,
    place: Path,
    *,
    set_name: str | None = None,
    timeout: float = 60.0,
    judge: Judge,
    resume: bool = False,
    progress: Callable[[str, int, int], None] = lambda what, done, of: None,
) -> dict[str, Any]:
    """The row of one implementation; what it does in `place` can be resumed.

    The set of cases is the implementation's own, if none is asked for.  One that cannot
    be imported has a row that says why.
    """
    folder = place / name.replace(":", "-")
    entry = BOARD[name]
    set_name = set_name or entry.board_set
    if resume and (found := _done(folder, entry, set_name)):
        return found
    try:
        seen = fingerprint(
            name,
            timeout=timeout,
            progress=lambda done: progress("probes", done, 33),
        )
        cases = cases_for(takes(seen), set_name)
        collect(
            name,
            cases,
            folder,
            jobs=1,
            resume=resume,
            timeout=timeout,
            progress=lambda done: progress("cases", done, len(cases)),
        )
        run = _judged(Folder.read(folder, cases), judge)
    except SubjectError as error:
        return {"name": name, "docs": entry.docs, "why_not": str(error)}
    found = plain(row(entry, seen, run, set_name))
    (folder / ROW).write_text(json.dumps(found, ensure_ascii=False), "utf-8")
    return found


def takes(seen: Fingerprint) -> Takes:
    """The shapes that it takes, as measured."""
    known = seen.known
    return Takes(
        groups=known.get("heads") is not None,
        width=known.get("value_width") == "any",
        multiple=BOARD[seen.name].multiple,
    )


def _judged(folder: Folder, judge: Judge) -> Run:
    """The verdicts and the laws, and nothing of what a report says beside them."""
    profile = folder.profile
    verdicts = [judge.verdict(case, folder, profile) for case in folder.cases]
    said = dict(folder.subject) | {"profile": profile}
    return Run(said, verdicts, laws=judge.laws(folder, profile))


def _done(folder: Path, entry: Entry, set_name: str) -> dict[str, Any] | None:
    """The row that an earlier run left, of the same versions and cases."""
    path = folder / ROW
    if not path.exists():
        return None
    found = json.loads(path.read_text("utf-8"))
    same = found["packages"] == entry.versions and found["set"] == set_name
    return found if same else None

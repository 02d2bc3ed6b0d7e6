"""Failures that are expected: a file says which, and why.

    [[waiver]]
    case = "no-keys*"
    reason = "no keys at all is an error upstream"
    issue = "https://example.org/issues/1"

An entry may say more of what it is about: `dtype`, `result` (`output`, `dq`, …) and
`subject`, a glob.  What is waived and passes must be taken off the list, so that the
list never hides what it was not written for; but not where `may_pass = true` says that
it depends on the machine.
"""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from attncheck.case import ALL_RESULTS, DTYPES
from attncheck.choose import every, matches
from attncheck.suggest import no_such
from attncheck.verdict import Verdict, Waived

PLACES = (("smoke", ("F64",)), ("smoke", tuple(DTYPES)), ("full", tuple(DTYPES)))
"""Where the case of a waiver is looked for; what is quick to make comes first."""


class WaiverError(ValueError):
    """A file of waivers that says what none can; the message names file and entry."""


@dataclass(frozen=True, kw_only=True)
class Waiver:
    """One entry of the file: a case, of which subject, and why it may fail."""

    case: str
    """A glob of case ids, as for `attncheck.choose.matches`."""
    reason: str
    dtype: str | None = None
    result: str | None = None
    """Only this result may fail; None: the whole case, whatever happens to it."""
    subject: str | None = None
    """A glob of subjects' names; None: any."""
    issue: str | None = None
    may_pass: bool = False
    """Whether it depends on something else, as the processor, if it fails."""

    def covers(self, id: str, dtype: str) -> bool:
        """Whether it is about a case."""
        return matches(id, self.case) and self.dtype in (None, dtype)

    def is_of(self, names: Iterable[str]) -> bool:
        """Whether it is about a subject of one of these names."""
        return self.subject is None or any(fnmatchcase(n, self.subject) for n in names)

    def is_stale(self, verdict: Verdict) -> bool:
        """Whether what it expects to fail passes."""
        if self.may_pass:
            return False
        if self.result is None:
            return verdict.status == "pass"
        return self.result in {f.name for f in verdict.findings if f.status == "pass"}

    @property
    def words(self) -> str:
        """`the reason (the issue)`."""
        return self.reason + (f" ({self.issue})" if self.issue else "")


def read(path: Path) -> list[Waiver]:
    """The entries of a file.

    Raises:
        WaiverError: no file that can be read, or what is not TOML, or no list of
            waivers, or has an unknown key, or gives no reason.
    """
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise WaiverError(f"there is no file of waivers {str(path)!r}") from error
    except OSError as error:
        raise WaiverError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:  # of TOML, or of UTF-8
        raise WaiverError(f"{path}: {error}") from error
    if others := sorted(set(document) - {"waiver"}):
        raise WaiverError(f"{path}: {no_such('a table', others[0], ['waiver'])}")
    entries = document.get("waiver", [])
    if not isinstance(entries, list) or not all(isinstance(x, dict) for x in entries):
        raise WaiverError(f"{path}: write [[waiver]], in double brackets")
    return [_waiver(f"{path}: waiver {n}", x) for n, x in enumerate(entries, start=1)]


def waive(verdict: Verdict, names: Sequence[str], waivers: Sequence[Waiver]) -> Verdict:
    """The verdict, marked where it is one that the waivers speak of.

    Args:
        names: what the subject is called.
    """
    case = verdict.case
    ours = [w for w in waivers if w.covers(case.id, case.dtype) and w.is_of(names)]
    failing = {f.name for f in verdict.findings if f.status == "fail"}
    whole = [w for w in ours if w.result is None]
    if stale := [w for w in ours if w.is_stale(verdict)]:
        return replace(verdict, waived=Waived(stale[0].words, passes=True))
    if verdict.status in ("pass", "not applicable"):
        return verdict
    if not whole and not (failing and failing <= {w.result for w in ours}):
        return verdict
    return replace(verdict, waived=Waived("; ".join(w.words for w in whole or ours)))


def unmatched(waivers: Sequence[Waiver]) -> list[Waiver]:
    """Those that are about no case of any set: mistyped, or of a case that is gone."""
    left = list(waivers)
    for cases in (every(name, dtypes) for name, dtypes in PLACES if left):
        left = [w for w in left if not any(w.covers(c.id, c.dtype) for c in cases)]
    return left


def _waiver(place: str, entry: Mapping[str, Any]) -> Waiver:
    known = {field.name: field for field in fields(Waiver)}
    for key, value in entry.items():
        if key not in known:
            raise WaiverError(f"{place}: {no_such('a key', key, known)}")
        if key == "may_pass":
            if not isinstance(value, bool):
                raise WaiverError(f"{place}: {key} is true or false, not {value!r}")
        elif not isinstance(value, str) or not value.strip():
            raise WaiverError(f"{place}: {key} is a string, not {value!r}")
    needed = [name for name, field in known.items() if field.default is MISSING]
    if missing := [name for name in needed if name not in entry]:
        raise WaiverError(f"{place} has no {missing[0]}")
    for key, names in (("dtype", DTYPES), ("result", ALL_RESULTS)):
        if key in entry and entry[key] not in names:
            raise WaiverError(f"{place}: {no_such(key, entry[key], names)}")
    return Waiver(**entry)

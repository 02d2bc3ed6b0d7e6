"""Public reports of what the board finds, from the waiver files of `subjects/known`."""

from functools import cache
from pathlib import Path

from attncheck.waivers import Waiver, read

KNOWN = Path(__file__).parent.parent / "subjects" / "known"
"""One file of waivers a library, to be given to `attncheck run --waivers` as well."""


@cache
def known() -> tuple[Waiver, ...]:
    """All that is known of all libraries."""
    return tuple(x for path in sorted(KNOWN.glob("*.toml")) for x in read(path))


def issues(subject: str, case: str) -> list[str]:
    """The public reports of a deviation that this case shows."""
    ours = [w for w in known() if w.is_of([subject]) and w.covers(case, w.dtype or "")]
    return sorted({waiver.issue for waiver in ours if waiver.issue})

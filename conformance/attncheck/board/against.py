"""What changed from one board to another: with another version of a library, say."""

from collections.abc import Iterator, Mapping
from typing import Any


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Of every implementation that both have, what is not as it was."""
    before = {row["name"]: row for row in old["rows"]}
    found = [_changes(before[r["name"]], r) for r in new["rows"] if r["name"] in before]
    return [one for one in found if one]


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Conventions and cases that changed, or nothing where the versions are the same
    and so is everything else."""
    conventions = [
        {"field": name, "old": was, "new": now}
        for name in new["conventions"]
        if (was := _value(old, name)) != (now := _value(new, name))
    ]
    cases = list(_cases(old, new))
    if not conventions and not cases and old["version"] == new["version"]:
        return {}
    return {
        "name": new["name"],
        "old": old["version"],
        "new": new["version"],
        "conventions": conventions,
        "cases": cases,
    }


def _value(row: Mapping[str, Any], name: str) -> Any:
    one = row["conventions"].get(name, {"measured": False})
    return one["value"] if one["measured"] else "not measured"


def _cases(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Cases with another outcome, by what they came to before and now."""
    was, now = (_by_case(row) for row in (old, new))
    moved: dict[tuple[str, str], list[str]] = {}
    for case in sorted(was.keys() | now.keys()):
        pair = was.get(case, "pass"), now.get(case, "pass")
        if pair[0] != pair[1]:
            moved.setdefault(pair, []).append(case)
    for (first, then), cases in moved.items():
        yield {"old": first, "new": then, "cases": cases}


def _by_case(row: Mapping[str, Any]) -> dict[str, str]:
    return {case: outcome for outcome, ids in row["outcomes"].items() for case in ids}

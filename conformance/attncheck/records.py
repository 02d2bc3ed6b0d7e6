"""What the line of a case and of a result must say, key by key.

`attncheck/schemas` says the same to programs in other languages.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from attncheck.case import ALL_RESULTS, DTYPES, INPUTS, REQUIRED
from attncheck.lines import shown
from attncheck.operations import SETTINGS

CASE_SCHEMA = "attncheck-case/1"
RESULT_SCHEMA = "attncheck-result/1"
STATUSES = ("done", "refused", "not applicable", "error", "crash", "timeout")

_AXES = "bnhgijdecmrap"
"""The letters of all axes that an array can have."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_HASH = re.compile(r"[0-9a-f]{64}")
_LAYOUT = re.compile(r"(([a-z]|[1-9][0-9]?)( ([a-z]|[1-9][0-9]?))*)?")


class Key(NamedTuple):
    """What stands at a key."""

    is_right: Callable[[Any], bool]
    words: str
    """What it must be."""
    required: bool = True


def check(record: Mapping[str, Any], keys: Mapping[str, Key]) -> None:
    """Refuses a record that lacks a key or holds another thing there.

    Keys that are not listed may hold anything.

    Raises:
        ValueError: the first that is wrong, and what it must be.
    """
    for name, key in keys.items():
        if name not in record:
            if key.required:
                raise ValueError(f"'{name}' is missing")
        elif not key.is_right(record[name]):
            raise ValueError(f"'{name}' must be {key.words}, not {shown(record[name])}")


def _is_text(x: Any) -> bool:
    return isinstance(x, str)


def _is_label(x: Any) -> bool:
    return _is_text(x) and not _CONTROL.search(x)


def _is_name(x: Any) -> bool:
    return _is_label(x) and x != ""


def _is_number(x: Any) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool)


def _is_integer(x: Any) -> bool:
    """As JSON schemas have it: 2.0 is one."""
    return _is_number(x) and x == int(x)


def _matches(pattern: re.Pattern) -> Callable[[Any], bool]:
    return lambda x: _is_text(x) and bool(pattern.fullmatch(x))


def _is_list_of(is_right: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda x: isinstance(x, list) and all(map(is_right, x))


def _is_set_of(known: Any) -> Callable[[Any], bool]:
    return lambda x: (
        isinstance(x, list)
        and all(_is_text(one) and one in known for one in x)
        and len(set(x)) == len(x)
    )


def _is_strides(x: Any) -> bool:
    return isinstance(x, dict) and all(map(_matches(_LAYOUT), x.values()))


def _is_sizes(x: Any) -> bool:
    return (
        isinstance(x, dict)
        and set("bnhgijde") <= x.keys() <= set(_AXES)
        and all(_is_integer(n) and n >= 0 for n in x.values())
    )


def _is_predicate(x: Any) -> bool:
    """`{"causal_offset": 2, "window": [3, null]}`, or a part of it."""
    if not isinstance(x, dict) or not x.keys() <= {"causal_offset", "window"}:
        return False
    window = x.get("window", [0, 0])
    return (
        _is_integer(x.get("causal_offset", 0))
        and isinstance(window, list)
        and len(window) == 2
        and all(side is None or (_is_integer(side) and side >= 0) for side in window)
    )


def _is_settings(x: Any) -> bool:
    return isinstance(x, dict) and all(
        name in SETTINGS and SETTINGS[name].is_right(value) for name, value in x.items()
    )


def _is_subject(x: Any) -> bool:
    """Nothing, or an object of short texts with a name, and what is said of them."""
    texts = ("name", "framework", "version", "device", "profile")
    return isinstance(x, dict) and (
        x == {}
        or (
            _is_name(x.get("name"))
            and all(_is_label(x.get(name, "")) for name in texts)
            and _is_conventions(x.get("conventions", {}))
            and _is_words(x.get("accepts", {}))
            and _is_list_of(_is_label)(x.get("ignored", []))
        )
    )


def _is_conventions(x: Any) -> bool:
    return isinstance(x, dict) and all(
        value is None or isinstance(value, str | int | float) for value in x.values()
    )


def _is_words(x: Any) -> bool:
    return isinstance(x, dict) and all(map(_is_label, (*x, *x.values())))


_DTYPE = Key(lambda x: _is_text(x) and x in DTYPES, f"one of {', '.join(DTYPES)}")
_BOOLEAN = Key(lambda x: isinstance(x, bool), "true or false")
_LABEL = Key(_is_label, "text without control characters")

CASE: Mapping[str, Key] = {
    "schema": Key(lambda x: x == CASE_SCHEMA, CASE_SCHEMA),
    "id": Key(_is_name, "text without control characters, not empty"),
    "op": Key(lambda x: _is_text(x) and x in REQUIRED, f"one of {', '.join(REQUIRED)}"),
    "clauses": Key(_is_list_of(_is_label), "a list of texts"),
    "why": _LABEL,
    "dtype": _DTYPE,
    "sizes": Key(_is_sizes, "an object of sizes"),
    "file": Key(_is_name, "a path in the folder"),
    "inputs": Key(
        _is_set_of(INPUTS), f"a list, without repetition, of {', '.join(INPUTS)}"
    ),
    "strides": Key(_is_strides, "an object of axis letters and numbers up to 99"),
    "scale": Key(_is_number, "a number"),
    "scale_is_default": _BOOLEAN,
    "softcap": Key(
        lambda x: x is None or (_is_number(x) and x > 0), "null or a number above 0"
    ),
    "dropout_rate": Key(
        lambda x: _is_number(x) and 0 <= x < 1, "a number from 0 to below 1"
    ),
    "predicate": Key(_is_predicate, "an object of causal_offset and window, or empty"),
    "settings": Key(
        _is_settings, "an object of an operation's own options", required=False
    ),
    "wants": Key(
        lambda x: _is_set_of(ALL_RESULTS)(x) and x != [],
        f"a list, without repetition, of some of {', '.join(ALL_RESULTS)}",
    ),
    "compiled": _BOOLEAN,
    "law": _LABEL,
    "twin": _LABEL,
    "sha256": Key(_matches(_HASH), "64 hexadecimal digits"),
}
"""Key of a case's line → what stands there."""

RESULT: Mapping[str, Key] = {
    "schema": Key(lambda x: x == RESULT_SCHEMA, RESULT_SCHEMA, required=False),
    "id": Key(_is_name, "the id of a case"),
    "status": Key(
        lambda x: _is_text(x) and x in STATUSES, f"one of {', '.join(STATUSES)}"
    ),
    "message": Key(_is_text, "text", required=False),
    "file": Key(
        lambda x: x is None or _is_name(x),
        "null or a path in the folder",
        required=False,
    ),
    "outputs": Key(_is_list_of(_is_text), "a list of names", required=False),
    "seconds": Key(
        lambda x: _is_number(x) and x >= 0, "a number, 0 or more", required=False
    ),
    "subject": Key(
        _is_subject,
        "an object of texts with a name: name, framework, version, device, profile; "
        "conventions, an object of texts and numbers; accepts, an object of texts; "
        "and ignored, a list of texts",
        required=False,
    ),
    "sha256": Key(
        lambda x: x == "" or _matches(_HASH)(x), "the case's sha256", required=False
    ),
}
"""Key of a result's line → what stands there."""

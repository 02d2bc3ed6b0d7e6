"""Strict JSON lines: every line is one object, or one sentence that says why not."""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from reprlib import Repr
from typing import Any

LIMIT = 2**30
"""Bytes of the largest file that is read; no folder of cases comes near it."""

DIGITS = 18
"""Of the longest integer: every such fits 64 bits in any language."""

SENTENCE = 500
"""Characters of what is said about a file; of more, the first and the last."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_REPR = Repr()
_REPR.maxstring = _REPR.maxother = 60


class ExchangeError(ValueError):
    """A file that does not say what it should; the message names file and line."""


@dataclass(frozen=True)
class Line:
    """One line of a file."""

    place: str
    """`file:number`."""
    text: bytes
    is_ended: bool = True
    """Whether a line break follows; what is written last may lack it."""

    def record(self) -> dict[str, Any]:
        """The object that the line holds.

        Raises:
            ExchangeError: it holds none.
        """
        with naming(self.place):
            return _parsed(self.text)


def read(path: Path) -> Iterator[Line]:
    """The lines of a file.

    Raises:
        ExchangeError: no such file, or one that is too large.
    """
    if not path.is_file():
        raise ExchangeError(f"{path.parent} holds no {path.name}")
    check_size(path, LIMIT)
    *texts, tail = path.read_bytes().split(b"\n")
    for number, text in enumerate(texts, start=1):
        yield Line(f"{path}:{number}", text)
    if tail:
        yield Line(f"{path}:{len(texts) + 1}", tail, is_ended=False)


def written(record: Mapping[str, Any]) -> str:
    """The line that says `record`; a number that JSON lacks becomes a string."""
    return json.dumps(plain(record), ensure_ascii=False, allow_nan=False)


def plain(value: Any) -> Any:
    """`value` in types that JSON has; a number that JSON lacks becomes a string."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def shown(value: Any) -> str:
    """`value` as a message shows it: on one line, and not much of it."""
    return _REPR.repr(value)


def clean(text: str) -> str:
    """`text` without the control characters that a terminal would obey."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def sentence(error: Exception) -> str:
    """What an error says, on one line, and not too much of it."""
    text = " ".join(clean(str(error)).split())
    half = SENTENCE // 2
    return text if len(text) <= SENTENCE else f"{text[:half]} … {text[-half:]}"


def check_size(path: Path, limit: int) -> None:
    """Raises ExchangeError for a file of more bytes than `limit`."""
    if (size := path.stat().st_size) > limit:
        raise ExchangeError(f"{path} has {size} bytes, more than {limit}: not read")


@contextmanager
def naming(place: str) -> Iterator[None]:
    """What is wrong with a line becomes one sentence that names the line."""
    try:
        yield
    except ValueError as error:
        raise ExchangeError(f"{place}: {sentence(error)}") from error


def _parsed(text: bytes) -> dict[str, Any]:
    try:
        record = json.loads(
            text.decode(),
            parse_constant=_refused,
            parse_float=_finite,
            parse_int=_short,
            object_pairs_hook=_unique,
        )
        if rb"\u" in text:  # half of a surrogate pair, which no file can hold
            json.dumps(record, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise ValueError(f"is no JSON: {error.msg}, column {error.colno}") from error
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        raise ValueError(f"is no UTF-8: {error.reason}") from error
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error
    if not isinstance(record, dict):
        raise ValueError(f"is {shown(record)}, not an object")
    return record


def _refused(name: str) -> float:
    raise ValueError(f"holds {name}, which JSON has not")


def _finite(text: str) -> float:
    if math.isinf(value := float(text)):
        raise ValueError(f"holds {shown(text)}, which is no number of 64 bits")
    return value


def _short(text: str) -> int:
    if len(text.lstrip("-")) > DIGITS:
        raise ValueError(f"holds an integer of more than {DIGITS} digits")
    return int(text)


def _unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"holds {shown(name)} twice")
        found[name] = value
    return found

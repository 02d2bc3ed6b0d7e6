"""What a probe reads, and what all of them come to."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from attncheck.calling import Calling
from attnref.spec import Conventions


class NotMeasured(Exception):  # noqa: N818 — an outcome, not an error
    """Why a probe has no value; one sentence."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A value and what shows it."""

    value: Any
    shown: str
    """What came back, in words and numbers."""
    detail: Mapping[str, Any] = field(default_factory=dict)
    """What else was measured on the way, in types of JSON."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The outcome of one probe."""

    probe: str
    """A field of `Conventions`, or a storage type, whose precision was measured."""
    measured: bool = False
    value: Any = None
    shown: str = ""
    """What shows the value, or why there is none."""
    detail: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0


NUMBERS = ("fill", "lse_empty")
"""Fields whose values are numbers, infinite ones too: JSON has those as strings."""


def reading_of(record: Mapping[str, Any]) -> Reading:
    """The reading that was written as JSON."""
    found = Reading(**record)
    if found.measured and found.probe in NUMBERS:
        return replace(found, value=float(found.value))
    return found


@dataclass(frozen=True, kw_only=True)
class Fingerprint:
    """How one function behaves, field by field."""

    name: str
    framework: str
    version: str
    home: str | None = None
    """`module:name`, from where code can import it; None where there is no such."""
    calling: Calling
    readings: Mapping[str, Reading]
    """Field of `Conventions` → what was read."""
    profiles: Mapping[str, Reading]
    """Storage type → the strictest precision profile that holds."""
    returns: tuple[str, ...] = ()
    """Names of what the function returns, where they are declared."""

    @property
    def seconds(self) -> float:
        """That the probes took; the import of the framework is not counted."""
        readings = [*self.readings.values(), *self.profiles.values()]
        return sum(reading.seconds for reading in readings)

    @property
    def known(self) -> dict[str, Any]:
        """Field → value, of the fields that were measured."""
        return {name: r.value for name, r in self.readings.items() if r.measured}

    @property
    def conventions(self) -> Conventions:
        """The conventions measured; of what was not measured, the spec's."""
        return Conventions(**self.known)

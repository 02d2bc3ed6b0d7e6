"""Wherein two functions differ, and the code that makes up for it.

The code is run before it is shown: its own fingerprint has to be that of `b` wherever
code around a call can make it so.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from attncheck.budget import PROFILES
from attncheck.case import DTYPES
from attncheck.diff.adapter import Adapter, write_adapter
from attncheck.diff.needs import Needs, NoAdapterError
from attncheck.fingerprint import Fingerprint, Reading
from attncheck.subject import SubjectError

__all__ = ["Adapter", "Diff", "Difference", "diff"]

LESS: Mapping[str, tuple] = {
    "value_width": ("same",),
    "heads": (None,),
    "scale_zero": ("refuse", "nan"),
    "scale_negative": ("refuse", "nan"),
    "mask_true": (None,),
    "mask_float": ("refuse",),
    "mask_and_causal": ("refuse",),
    "window": (None,),
    "softcap": (None,),
    "bias": (None,),
    "sinks": (False,),
    "empty_row": ("refuse",),
    "empty_row_bias": ("refuse",),
    "lse": (None,),
    "weights": (None,),
    "nan_blocked_k": ("leaks",),
    "nan_blocked_v": ("leaks",),
    "nan_visible": ("hidden",),
    "softmax_dtype": ("float32", "input"),
    "float64": ("float32",),
}
"""Field → values of `b` that nobody would imitate: `a` does more, or does better."""

MEANS: Mapping[str, Callable[[Needs], bool]] = {
    **dict.fromkeys(
        ("layout", "heads", "value_width", "scale", "scale_zero", "scale_negative"),
        lambda needs: True,
    ),
    **dict.fromkeys(
        (
            "mask_true",
            "mask_and_causal",
            "causal",
            "window",
            "empty_row",
            "nan_blocked_k",
            "nan_blocked_v",
        ),
        lambda needs: needs.can_block,
    ),
    "mask_float": lambda needs: (
        needs.takes_bias if needs.there("mask_float") == "add" else needs.can_block
    ),
    **dict.fromkeys(("bias", "empty_row_bias"), lambda needs: needs.takes_bias),
    "dropout_rescale": lambda needs: needs.takes("dropout_rate"),
    "lse": lambda needs: needs.takes("lse"),
    "lse_empty": lambda needs: needs.takes("lse") and needs.can_block,
    "lse_dtype": lambda needs: (
        needs.takes("lse") and needs.there("lse_dtype") == "input"
    ),
}
"""Field → whether code around a call of `a` can do as `b` does; others cannot be."""

NOTHING = "nothing to imitate"

INSIDE: Mapping[str, str] = {
    "fill": "it is inside, and shows beside logits as low only",
    "softcap": "its place is inside",
    "nan_visible": "a NaN that is lost inside cannot be found again",
    "weights": "returned weights are left out",
    "weights_heads": "returned weights are left out",
    **dict.fromkeys(
        ("softmax_dtype", "float64", "lse_dtype", *DTYPES), "digits are lost inside"
    ),
}
"""Field → why code around a call cannot change it."""

SHOWN_BY: Mapping[str, str] = {
    "mask_true": "mask",
    "mask_float": "mask",
    "mask_and_causal": "mask",
    "empty_row": "mask",
    "causal": "causal",
    "window": "window",
    "fill": "mask",
    "bias": "bias",
    "empty_row_bias": "bias",
    "softcap": "softcap",
    "sinks": "sinks",
    "lse": "lse",
    "lse_empty": "lse",
    "lse_dtype": "lse",
    "weights": "weights",
    "weights_heads": "weights",
    "dropout_rescale": "dropout_rate",
}
"""Field → the part of a call without which it does not show."""


@dataclass(frozen=True)
class Difference:
    """A field in which two functions differ, or a storage type."""

    field: str
    a: Reading
    b: Reading
    why_not: str | None
    """Why no code around a call of `a` makes up for it; None where some can."""
    adapted: bool = False
    """Whether the adapter was seen to do as `b` does."""


@dataclass(frozen=True)
class Diff:
    """Wherein `a` and `b` differ, and the code between them."""

    a: Fingerprint
    b: Fingerprint
    differences: tuple[Difference, ...]
    profiles: tuple[Difference, ...]
    """Storage types whose precision differs: no code gives digits back."""
    adapter: Adapter | None = None
    judged: Fingerprint | None = None
    """The adapter's own fingerprint."""
    no_adapter: str = ""
    """Why there is none."""

    @property
    def left_out(self) -> list[str]:
        """Parts of a call of `b` that the adapter does not have."""
        kept = self.adapter.keywords if self.adapter else {}
        return [part for part in self.b.calling.keywords if part not in kept]


def diff(
    a: Fingerprint, b: Fingerprint, measure: Callable[[str, Adapter], Fingerprint]
) -> Diff:
    """The differences, and the adapter that makes a call of `a` mean what `b` means.

    Args:
        measure: the fingerprint of an adapter that is a target now.
    """
    needs = Needs(a, b)
    differences = tuple(_differing(needs, a.readings, b.readings))
    profiles = tuple(_differing(needs, a.profiles, b.profiles))
    found = Diff(a, b, differences, profiles)
    if not differences:
        return found
    if all(one.why_not for one in differences):
        said = "no code around a call would change any of that"
        return replace(found, no_adapter=said)
    try:
        adapter = write_adapter(a, b)
        judged = _run(a, adapter, measure)
    except (NoAdapterError, SubjectError) as error:
        return replace(found, no_adapter=str(error))
    return _judged(replace(found, adapter=adapter, judged=judged), judged)


def _run(
    a: Fingerprint, adapter: Adapter, measure: Callable[[str, Adapter], Fingerprint]
) -> Fingerprint:
    """What the code does."""
    with tempfile.TemporaryDirectory(prefix="attncheck-") as folder:
        path = Path(folder) / "adapter.py"
        path.write_text(_finding(a) + adapter.source, "utf-8")
        return measure(f"{path}:{adapter.name}", adapter)


def _judged(found: Diff, judged: Fingerprint) -> Diff:
    """The same, with what the adapter was seen to do; without one that fails."""
    if failed := _failed(found, judged):
        said = f"the code was run, and {failed}"
        return replace(found, adapter=None, judged=None, no_adapter=said)
    adapted = tuple(
        replace(
            one,
            adapted=one.why_not != NOTHING and _same(judged.readings[one.field], one.b),
            why_not=one.why_not or _left_out(found, one.field),
        )
        for one in found.differences
    )
    return replace(found, differences=adapted)


def _differing(
    needs: Needs, a: Mapping[str, Reading], b: Mapping[str, Reading]
) -> Iterator[Difference]:
    for field, one in a.items():
        other = b[field]
        if (one.measured or other.measured) and not _same(one, other):
            yield Difference(field, one, other, _why_not(needs, field, one, other))


def _why_not(needs: Needs, field: str, a: Reading, b: Reading) -> str | None:
    """Why no code around a call of `a` does as `b` does; None where some can."""
    if not b.measured:
        return f"{NOTHING}: {b.shown}"
    if b.value in LESS.get(field, ()) or _is_looser(field, a, b):
        return NOTHING
    if MEANS.get(field, lambda needs: False)(needs):
        return None
    if not a.measured or (a.value in (None, False) and field not in DTYPES):
        return a.shown
    return INSIDE.get(field, "it takes no mask")


def _is_looser(field: str, a: Reading, b: Reading) -> bool:
    """Whether `b` has less precision than `a` in a storage type."""
    if field not in DTYPES or not (a.measured and b.measured):
        return False
    order = [*PROFILES, None]
    return order.index(a.value) < order.index(b.value)


def _same(one: Reading, other: Reading) -> bool:
    return one.measured and other.measured and one.value == other.value


def _failed(found: Diff, judged: Fingerprint) -> str:
    """What the adapter was meant to do and does not, or undoes; else nothing."""
    differ = {one.field: one for one in found.differences}
    for field, reading in judged.readings.items():
        want = found.b.readings[field]
        if field in differ:
            meant = differ[field].why_not is None
        else:  # what both do, but for what nobody would miss
            less = want.value in LESS.get(field, ())
            both = reading.measured and want.measured
            meant = both and field in MEANS and not less
        kept = SHOWN_BY.get(field) not in found.left_out
        if kept and meant and not _same(reading, want):
            return f"does not do as {found.b.name} in {field}: {reading.shown}"
    return ""


def _left_out(found: Diff, field: str) -> str | None:
    part = SHOWN_BY.get(field)
    return f"takes no {part}" if part in found.left_out else None


def _finding(a: Fingerprint) -> str:
    """Lines that make a file importable by its name, as it is where it lies."""
    place = (a.home or "").rpartition(":")[0]
    if not place.endswith(".py"):
        return ""
    folder = str(Path(place).resolve().parent)
    return f"import sys\n\nsys.path.insert(0, {folder!r})\n"

"""From measurements to the evidence: one JSON document, and what it promises."""

import json
import platform
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from correct import PROFILE, implementations
from cover import smallest
from measure import (
    BEYOND,
    NOTHING,
    WITHIN,
    Measured,
    Shown,
    Together,
    operation,
)
from rules import ELEMENTS, RULES, Rule

from attncheck.case import Case
from attncheck.certify import digest
from attncheck.variants import (
    BY_NAME,
    CONVERTERS,
    FAULTS,
    OPERATION_VARIANTS,
    VARIANTS,
    Variant,
)

SCHEMA = "attncheck-faults/2"
SURVIVORS = Path(__file__).with_name("survivors.toml")
CHANGES = (NOTHING, WITHIN, BEYOND)
ELEMENTWISE, STATISTICS, LAWS = "elements", "statistics", "laws"
"""The parts of our rule."""

KINDS: Mapping[str, tuple[Variant, ...]] = {
    "attention": VARIANTS,
    "other operations": OPERATION_VARIANTS,
    "weights carried over": CONVERTERS,
}
"""What a fault is a fault of → the faults."""

USUAL, SMOKE, OTHER = "usual", "smoke", "other"
"""Where cases come from: the usual test, the smoke set, and what only the full set has,
each in its own shape."""

GOAL = {"F32": 1.0, "BF16": 0.97, "F16": 0.97}
"""The share of faults that must be found; in float32, of those beyond rounding."""


@dataclass
class Found:
    """All measurements."""

    sets: Mapping[str, Sequence[Case]]
    """Where cases come from → the cases."""
    measured: dict[str, list[Measured]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """Where → what each case shows."""
    together: dict[tuple[str, str, str, str], dict[str, Together]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    """(rule, where, dtype, operation) → fault or correct implementation → what all
    cases show."""

    @property
    def dtypes(self) -> list[str]:
        """The storage types that were asked for, in order."""
        return list(dict.fromkeys(case.dtype for case in self.sets[SMOKE]))

    @property
    def faults(self) -> dict[str, str]:
        """The faults of the operations that were asked for → their kinds."""
        ops = {operation(case) for case in self.sets[SMOKE]}
        return {
            variant.name: kind
            for kind, variants in KINDS.items()
            for variant in variants
            if variant.model.op in ops
        }

    def add(self, where: str, result: Measured) -> None:
        """Adds what one case shows."""
        self.measured[where].append(result)

    def add_together(self, key: Sequence[str], result: Together) -> None:
        """Adds what all cases show together."""
        *place, name = key
        rule, where, dtype, op = place
        self.together[rule, where, dtype, op][name] = result

    def shown(self, name: str, where: str, dtype: str) -> dict[str, Shown]:
        """Case → what it shows of a fault, in the order of the cases."""
        by_case = {m.case: m.shown for m in self.measured[where] if m.dtype == dtype}
        ordered = [case.id for case in self.sets[where] if case.id in by_case]
        return {id: by_case[id][name] for id in ordered if name in by_case[id]}

    def killing(self, rule: str, name: str, where: str, dtype: str) -> list[str]:
        """The cases in which a rule calls a result of a fault wrong."""
        shown = self.shown(name, where, dtype)
        return [id for id, one in shown.items() if rule in one.flagged]

    def unseen(self, rule: Rule, where: str, dtype: str, op: str) -> list[str]:
        """The faults of an operation that change something, and that no single case
        shows."""
        return [
            variant.name
            for variant in FAULTS
            if variant.model.op == op
            and self.shown(variant.name, where, dtype)
            and not self.killing(rule.name, variant.name, where, dtype)
        ]

    def seen_together(self, rule: str, name: str, where: str, dtype: str) -> str | None:
        """How all cases together show a fault: by statistics, or by a law."""
        one = self.together[rule, where, dtype, BY_NAME[name].model.op].get(name)
        if one is None or not one.alarms:
            return None
        return STATISTICS if one.pools else LAWS


def document(found: Found) -> dict[str, Any]:
    """Everything that is measured, in types of JSON."""
    dtypes = found.dtypes
    faults = {
        name: {
            "module": BY_NAME[name].model.__module__.rpartition(".")[2],
            "kind": kind,
            "sentence": BY_NAME[name].sentence,
            "dtypes": {dtype: _fault(found, name, dtype) for dtype in dtypes},
        }
        for name, kind in found.faults.items()
    }
    explained = explanations()
    return {
        "schema": SCHEMA,
        "date": datetime.now(UTC).date().isoformat(),
        "versions": {
            "python": platform.python_version(),
            "numpy": np.__version__,
            "torch": torch.__version__,
        },
        "cases": {where: len(some) for where, some in found.sets.items()},
        "sha256": digest(found.sets[SMOKE]),
        "profiles": {dtype: PROFILE[dtype] for dtype in dtypes},
        "correct": {
            kind: {dtype: list(implementations(dtype, op)) for dtype in dtypes}
            for kind, op in (
                ("attention", ""),
                ("other operations", "rotary_attention"),
            )
        },
        "rules": {rule.name: rule.sentence for rule in RULES},
        "summary": {dtype: _summary(found, faults, dtype) for dtype in dtypes},
        "kinds": {
            kind: {dtype: _summary(found, faults, dtype, kind) for dtype in dtypes}
            for kind in dict.fromkeys(found.faults.values())
        },
        "smallest": _smallest(found),
        "survivors": [
            {
                "fault": name,
                "dtype": dtype,
                "changes": fault["dtypes"][dtype]["changes"],
                "used": fault["dtypes"][dtype]["used"],
                "case": fault["dtypes"][dtype]["case"],
                "why": explained.get((name, dtype), ""),
            }
            for name, fault in faults.items()
            for dtype in dtypes
            if survives(fault["dtypes"][dtype])
        ],
        "faults": faults,
    }


def as_text(report: Mapping[str, Any]) -> str:
    """The document as JSON, a line a fault."""

    def dumped(value: Any, **layout: Any) -> str:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, **layout)

    head = dumped({k: v for k, v in report.items() if k != "faults"}, indent=1)
    faults = (
        f"  {dumped(name)}: {dumped(one)}" for name, one in report["faults"].items()
    )
    return f'{head[:-2]},\n "faults": {{\n' + ",\n".join(faults) + "\n }\n}\n"


def survives(fault: Mapping[str, Any]) -> bool:
    """Whether a fault that changes something is not found on our cases."""
    return fault["changes"] != NOTHING and not fault["by"]


def _fault(found: Found, name: str, dtype: str) -> dict[str, Any]:
    """One fault in one storage type."""
    shown = {where: found.shown(name, where, dtype) for where in found.sets}
    every = [one.changes for some in shown.values() for one in some.values()]
    killing = found.killing(ELEMENTS, name, SMOKE, dtype)
    by = ELEMENTWISE if killing else found.seen_together(ELEMENTS, name, SMOKE, dtype)
    own = {id: one.used for id, one in shown[SMOKE].items()}
    case = killing[0] if killing else max(own, key=own.__getitem__, default=None)
    return {
        "changes": max(every, key=CHANGES.index, default=NOTHING),
        "by": by,
        "case": case,
        "used": _short(max(own.values(), default=0.0)),
        "kills": {
            rule.name: _kills(found, rule.name, name, dtype)
            for rule in RULES
            if dtype in rule.dtypes
        },
    }


def _kills(found: Found, rule: str, name: str, dtype: str) -> dict[str, int | str]:
    """Where → in how many cases, or by what of all cases together."""
    return {
        where: len(found.killing(rule, name, where, dtype))
        or found.seen_together(rule, name, where, dtype)
        or 0
        for where in found.sets
    }


def _summary(
    found: Found, faults: Mapping[str, Mapping[str, Any]], dtype: str, kind: str = ""
) -> dict[str, Any]:
    """How many faults every rule finds in one storage type, and its false alarms.

    Args:
        kind: only the faults of a kind, and the cases that they are run on.
    """
    chosen = {n: f for n, f in faults.items() if kind in ("", f["kind"])}
    here = {name: fault["dtypes"][dtype] for name, fault in chosen.items()}
    ops = {BY_NAME[name].model.op for name in chosen}
    changing = {n: one for n, one in here.items() if one["changes"] != NOTHING}
    beyond = [one for one in changing.values() if one["changes"] == BEYOND]
    return {
        "changing": len(changing),
        "beyond": len(beyond),
        "beyond_found": sum(bool(one["by"]) for one in beyond),
        "changing_usual": sum(bool(found.shown(n, USUAL, dtype)) for n in changing),
        "rules": {
            rule.name: {
                where: _found_by(changing.values(), rule.name, where)
                | _alarms(found, rule, where, dtype, ops)
                for where in (USUAL, SMOKE)
            }
            for rule in RULES
            if dtype in rule.dtypes
        },
    }


def _found_by(
    changing: Iterable[Mapping[str, Any]], rule: str, where: str
) -> dict[str, int]:
    """How many faults a rule finds, and how many of them only by all cases together."""
    kills = [one["kills"][rule][where] for one in changing]
    return {
        "found": sum(map(bool, kills)),
        "by_statistics": kills.count(STATISTICS),
        "by_laws": kills.count(LAWS),
    }


def _alarms(
    found: Found, rule: Rule, where: str, dtype: str, ops: Set[str]
) -> dict[str, int]:
    """False alarms and checks of correct implementations of some operations."""
    measured = (one for one in found.measured[where] if one.dtype == dtype)
    some = [one for one in measured if one.op in ops]
    right = [
        one
        for op in ops
        for name, one in found.together[rule.name, where, dtype, op].items()
        if name in implementations(dtype, op)
    ]
    return {
        "alarms": sum(one.alarms[rule.name] for one in some)
        + sum(one.alarms for one in right),
        "checks": sum(one.checks[rule.name] for one in some)
        + sum(one.judged for one in right),
    }


def _smallest(found: Found) -> dict[str, Any]:
    """The smallest part of the smoke set that finds all that any case finds alone."""
    smoke, other = (_finds(found.measured[where]) for where in (SMOKE, OTHER))
    cover = smallest(smoke)
    everything = set().union(*smoke.values(), *other.values())
    return {
        "cases": cover.cases,
        "of": len(smoke),
        "optimal": cover.optimal,
        "lost": sorted(map(" ".join, everything.difference(*smoke.values()))),
        "of_all_cases": len(smallest(smoke | other, smoke.keys()).cases),
        "found_by_one_only": {
            case: sorted(
                " ".join(one)
                for one in smoke[case]
                if not any(one in smoke[other] for other in smoke if other != case)
            )
            for case in cover.cases
        },
    }


def _finds(measured: Iterable[Measured]) -> dict[str, set[tuple[str, str]]]:
    """Case, whatever its type → the faults that it shows, and in which types."""
    finds: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for one in measured:
        finds[one.case.rpartition("/")[0]] |= {
            (name, one.dtype)
            for name, shown in one.shown.items()
            if ELEMENTS in shown.flagged
        }
    return dict(finds)


def explanations() -> dict[tuple[str, str], str]:
    """(fault, dtype) → why it survives."""
    read = tomllib.loads(SURVIVORS.read_text("utf-8"))
    return {
        (name, dtype.strip()): why
        for name, some in read.items()
        for dtypes, why in some.items()
        for dtype in dtypes.split(",")
    }


def unexplained(
    report: Mapping[str, Any], explained: Mapping[tuple[str, str], str]
) -> Iterator[str]:
    """Survivors without an explanation, and explanations without a survivor."""
    surviving = {(one["fault"], one["dtype"]) for one in report["survivors"]}
    for name, dtype in sorted(surviving - set(explained)):
        yield f"{name} survives in {dtype}, and {SURVIVORS.name} does not say why"
    left_out = BY_NAME.keys() - report["faults"].keys()
    for name, dtype in sorted(set(explained) - surviving):
        if dtype in report["profiles"] and name not in left_out:
            yield f"{SURVIVORS.name} explains {name} in {dtype}, where it is found"


def missed(report: Mapping[str, Any]) -> Iterator[str]:
    """The goals that are not met."""
    for one in report["smallest"]["lost"]:
        yield f"{one} is found by a case that the smoke set lacks"
    for kind, by_dtype in report["kinds"].items():
        for dtype, summary in by_dtype.items():
            ours = summary["rules"][ELEMENTS]
            for where, one in ours.items():
                if one["alarms"]:
                    yield f"{one['alarms']} false alarms in {dtype}, {kind}, {where}"
            found, of = ours[SMOKE]["found"], summary["changing"]
            if dtype == "F32":
                found, of = summary["beyond_found"], summary["beyond"]
            if found < GOAL.get(dtype, 0.0) * of:
                yield f"{found} of {of} faults of {kind} are found in {dtype}, too few"


def _short(number: float) -> float | None:
    """Three significant digits; infinity is no number of JSON."""
    return float(f"{number:.3g}") if np.isfinite(number) else None

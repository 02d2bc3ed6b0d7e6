"""What cases show of every fault, by every rule: the two measurements, as functions.

`measure` runs on one case all faults of its operation.  `look_again` takes one fault
that no single case shows, and asks what all cases together show: their statistics, and
the laws.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import naive
import numpy as np
from correct import PROFILE, implementations, model, stores
from rules import RESULTS, RULES, Given, error

from attncheck import laws
from attncheck.budget import PROFILES, Pooled, Sample, is_void, pool, sample
from attncheck.cache import Cache
from attncheck.case import Case
from attncheck.exchange import Result
from attncheck.judging import Judge
from attncheck.operations import OPERATIONS
from attncheck.variants import BY_NAME, FAULTS
from attncheck.verdict import compare

Arrays = Mapping[str, np.ndarray]

NOTHING, WITHIN, BEYOND = "nothing", "within rounding", "beyond rounding"
"""How much a fault changes: nothing, bit for bit; at most twice what the worst of the
correct implementations is off, on the same result of the same case; or more."""

ROUNDING = 2.0
"""How many times the greatest error of correct implementations is beyond rounding."""


@dataclass
class Shown:
    """What one case shows of one fault."""

    changes: str
    flagged: dict[str, tuple[str, ...]]
    """Rule → the results that it calls wrong, and passes of all that are correct."""
    used: float
    """The largest share of a budget."""


@dataclass
class Measured:
    """What one case shows."""

    case: str
    dtype: str
    op: str
    """As of `operation`."""
    shown: dict[str, Shown] = field(default_factory=dict)
    """Fault → what is shown of it; those that change nothing here are left out."""
    checks: Counter[str] = field(default_factory=Counter)
    """Rule → how many results of correct implementations it looked at."""
    alarms: Counter[str] = field(default_factory=Counter)
    """Rule → how many of those it called wrong."""


@cache
def judge() -> Judge:
    """Expected values and budgets, from the user's cache."""
    return Judge(Cache.of_user())


def operation(case: Case) -> str:
    """The operation beside attention and multi-head attention; nothing where it is of
    those: their faults, and what carries weights wrongly, are run on both."""
    return case.op if case.op in OPERATIONS else ""


def prepare(case: Case) -> Given:
    """A case with all that its results are compared with."""
    want = judge().expected(case)
    budget = judge().budget(case, PROFILE[case.dtype])
    values = {name: getattr(want, name) for name in results_of(case)}
    bounds = None if is_void(case, want, budget.bounds) else budget.bounds
    with np.errstate(all="ignore"):
        return Given(case, values, bounds, naive.results(case))


def results_of(case: Case) -> list[str]:
    """The results that the case wants and that a caller sees."""
    return [name for name in RESULTS if name in case.wants]


def seen(case: Case, arrays: Arrays) -> dict[str, np.ndarray]:
    """The results that a caller sees, of all that there are; none where it refuses."""
    return {name: arrays[name] for name in results_of(case) if name in arrays}


def measure(case: Case) -> Measured:
    """What one case shows of every fault, and of every correct implementation."""
    given = prepare(case)
    found = Measured(case.id, case.dtype, operation(case))
    off = dict.fromkeys(given.want, 0.0)
    alarms: dict[str, set[str]] = {rule.name: set() for rule in RULES}
    for one in implementations(case.dtype, found.op).values():
        with np.errstate(all="ignore"):
            right = seen(case, one.compute(case).arrays)
        for rule in (rule for rule in RULES if case.dtype in rule.dtypes):
            flagged = rule.flags(given, right)
            alarms[rule.name] |= flagged
            found.checks[rule.name] += len(set(right) & set(rule.looks_at))
            found.alarms[rule.name] += len(flagged)
        for name, array in right.items():
            off[name] = max(off[name], error(array, given.want[name]).max(initial=0.0))
    with np.errstate(all="ignore"):
        right = seen(case, model(case).arrays)
    for variant in (fault for fault in FAULTS if fault.model.op == found.op):
        wrong = changed(case, variant.run(case, stores=stores(case.dtype)), right)
        if wrong:
            found.shown[variant.name] = _shown(given, wrong, right, off, alarms)
    return found


def changed(case: Case, results: Arrays, right: Arrays) -> dict[str, np.ndarray]:
    """Those of the results that are not the right model's, bit for bit."""
    return {
        name: array
        for name, array in seen(case, results).items()
        if not np.array_equal(array, right[name], equal_nan=True)
    }


def _shown(
    given: Given,
    wrong: Arrays,
    right: Arrays,
    off: Mapping[str, float],
    alarms: Mapping[str, set[str]],
) -> Shown:
    beyond = any(
        error(array, right[name].astype(np.float64)).max() > ROUNDING * off[name]
        for name, array in wrong.items()
    )
    flagged = {
        rule.name: tuple(sorted(rule.flags(given, wrong) - alarms[rule.name]))
        for rule in RULES
        if given.case.dtype in rule.dtypes
    }
    return Shown(
        BEYOND if beyond else WITHIN,
        {rule: names for rule, names in flagged.items() if names},
        max(_used(given, name, array) for name, array in wrong.items()),
    )


def _used(given: Given, name: str, got: np.ndarray) -> float:
    if given.bounds is None:
        return 0.0
    return compare(given.case, name, got, given.want[name], given.bounds[name]).used


# ------------------------------------- all cases of a type and of an operation at once


@dataclass(frozen=True)
class Together:
    """What all cases of a storage type and of an operation show together."""

    judged: int
    """How many statistics and laws were judged."""
    pools: dict[str, tuple[float, float]]
    """Result → rms, and the gain as a share of its limit, where either is in excess."""
    laws: tuple[str, ...]
    """The laws that are broken."""

    @property
    def alarms(self) -> int:
        """How many of them call the implementation wrong."""
        return len(self.pools) + len(self.laws)


def look_again(
    name: str, cases: Sequence[Case], looks_at: Sequence[str] = RESULTS
) -> Together:
    """What cases of a storage type and of an operation show of a fault, or of what is
    correct, together.

    Args:
        name: a variant's, or a correct implementation's.
        looks_at: the results that are shown.
    """
    results = {case.id: _result(name, case, looks_at) for case in cases}
    holdings = laws.check(
        cases,
        results,
        judge().expected,
        lambda case: judge().budget(case, PROFILE[case.dtype]).bounds,
    )
    pools = pooled(cases, results)
    excess = {
        result: (one.rms, abs(one.gain) / (one.gain_limit or 1.0))
        for result, one in pools.items()
        if not one.passes
    }
    judged = sum(one.judged for one in pools.values()) + len(holdings)
    broken = tuple(holding.law for holding in holdings if holding.broken)
    return Together(judged, excess, broken)


def _result(name: str, case: Case, looks_at: Sequence[str]) -> Result:
    with np.errstate(all="ignore"):
        if name in BY_NAME:
            arrays = BY_NAME[name].run(case, stores=stores(case.dtype))
        else:
            right = implementations(case.dtype, operation(case))[name]
            arrays = right.compute(case).arrays
    shown = {n: array for n, array in seen(case, arrays).items() if n in looks_at}
    return Result(case.id, "done", arrays=shown)


def pooled(cases: Sequence[Case], results: Mapping[str, Result]) -> dict[str, Pooled]:
    """Result → the statistics of all random cases, as the judge pools them."""
    samples: dict[str, list[Sample]] = {}
    for case in (case for case in cases if not case.law):
        want = judge().expected(case)
        budget = judge().budget(case, PROFILE[case.dtype])
        if not budget.random or is_void(case, want, budget.bounds):
            continue
        profile = PROFILES[PROFILE[case.dtype]]
        for name, got in results[case.id].arrays.items():
            finite = np.isfinite(got[np.isfinite(getattr(want, name))]).all()
            if name in budget.deviation and got.size and finite:
                one = sample(case, want, budget, profile, got, name=name)
                samples.setdefault(name, []).append(one)
    return {name: pool(ones) for name, ones in samples.items()}

"""Runs correct implementations and counts how often they are called wrong: never.

    python conformance/soundness/run.py --framework numpy --seeds 200

A check is one result of one case.  The cases are the suite's own: every seed draws new
numbers for one recipe in `--stride`, so that all recipes come round in as many seeds.
"""

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from implementations import FRAMEWORKS, Implementation

from attncheck import frameworks
from attncheck.budget import Budget, Profile, Sample, derive, is_void, pool, sample
from attncheck.case import DTYPES, STEPS, Case
from attncheck.definition import Expected, expected
from attncheck.suite import RECIPES, build
from attncheck.suite.recipe import Recipe
from attncheck.suite.shapes import LENGTHS, Shape, of_length
from attncheck.verdict import Finding, judge

QUANTILES = (5, 25, 50, 75, 95, 100)
"""Of the shares of the budget that cases use; 100: the greatest."""

MANY = Shape(b=1, h=1, g=2, i=32, j=96, d=16, e=16)
"""Rows and keys enough that roundings can be taken as independent."""

SHARED = Shape(b=2, h=2, g=2, i=5, j=33, d=16, e=16)
"""One shape for almost all cases of a framework that compiles for every shape."""

LARGEST = 2**14
"""Scores of a case, at most, from the second time that all recipes come round: the
longest would take all the time."""

SAMPLES = 24
"""Random cases whose statistics are pooled: they are kept whole."""

ANY = "any result"
"""The worst result of a case, unless all that it has are exact."""


@dataclass
class Tally:
    """What is found about one implementation in one storage type."""

    used: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Result → the share of the budget of every case."""
    alarms: list[str] = field(default_factory=list)
    exceptions: Counter[str] = field(default_factory=Counter)
    """Known departure → results that it made fail."""
    statuses: Counter[str] = field(default_factory=Counter)
    """Status → cases."""
    samples: dict[str, list[Sample]] = field(default_factory=lambda: defaultdict(list))

    def alarm(self, text: str) -> None:
        """Notes a correct result that is called wrong, aloud."""
        print(f"\nfalse alarm: {text}", file=sys.stderr)
        self.alarms.append(text)


@dataclass(frozen=True)
class Given:
    """A case and what it must give, derived once for all implementations."""

    case: Case
    want: Expected
    budgets: dict[Profile, Budget] = field(default_factory=dict)

    def budget(self, profile: Profile) -> Budget:
        """How far off results may be under a profile."""
        if profile not in self.budgets:
            self.budgets[profile] = derive(self.case, self.want, profile)
        return self.budgets[profile]


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 1 where a legal implementation is called wrong."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--framework", choices=FRAMEWORKS, required=True)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--stride", type=int, default=32)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(argv)
    implementations = FRAMEWORKS[options.framework]()
    tallies: dict[tuple[str, str], Tally] = defaultdict(Tally)
    seen: Counter[str] = Counter()
    for case in progress(cases(options.framework, options.seeds, options.stride)):
        seen[case.id.partition("@")[0]] += 1
        given = Given(case, expected(case))
        for one in implementations:
            if case.dtype in one.dtypes:
                check(given, one, tallies[one.name, case.dtype])
    profiles = {
        (i.name, dtype): i.profile_name for i in implementations for dtype in i.dtypes
    }
    report = {
        "framework": frameworks.adapter(options.framework).describe(),
        "seeds": options.seeds,
        "recipes": len(seen),
        "cases": sum(seen.values()),
        **document(tallies, profiles),
    }
    print(f"{report['checks']} checks, {report['false_alarms']} false alarms")
    if options.out:
        text = json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False)
        options.out.write_text(text + "\n", "utf-8")
    return 1 if report["false_alarms"] else 0


def cases(framework: str, seeds: int, stride: int) -> Iterator[tuple[int, int, Case]]:
    """Number of the seed, of all seeds, and each case."""
    for seed in range(seeds):
        for recipe in RECIPES[seed % stride :: stride]:
            shape = shape_of(recipe, seed // stride, framework)
            sizes = shape.sizes
            scores = np.prod([sizes[axis] for axis in "bnij"])
            if seed >= stride and scores > LARGEST:
                continue
            # 0, 1 and 2 are the suite's own seeds.
            drawn = build(
                recipe, tuple(DTYPES), shape=shape, seed=seed + 3, tag=f"{seed + 3}"
            )
            for case in drawn:
                yield seed, seeds, case


def shape_of(recipe: Recipe, turn: int, framework: str) -> Shape:
    """The recipe's own shape, one with many rows, and lengths around the tiles'.

    The libraries take values as wide as keys only.
    """
    shape = recipe.shape
    if framework == "jax":
        simple = recipe.resizable and not recipe.is_multi_head
        return SHARED if simple else shape
    if recipe.resizable and turn % 3 == 1:
        length = MANY.j if recipe.is_self_attention else MANY.i
        shape = MANY._replace(i=length, c=shape.c, m=shape.m)
    elif recipe.resizable and turn % 3 == 2:
        length = LENGTHS[turn // 3 % len(LENGTHS)]
        around = of_length(length, square=recipe.is_self_attention)
        shape = around._replace(c=shape.c, m=shape.m)
    is_library = framework == "torch" and recipe.resizable and not recipe.is_multi_head
    return shape._replace(e=shape.d) if is_library else shape


def progress(found: Iterator[tuple[int, int, Case]]) -> Iterator[Case]:
    """The cases, with the number of the seed on stderr."""
    last = -1
    for seed, seeds, case in found:
        if seed != last:
            print(f"\rseed {seed + 1} of {seeds}", end="", file=sys.stderr, flush=True)
        last = seed
        yield case
    print(file=sys.stderr)


def check(given: Given, one: Implementation, tally: Tally) -> None:
    """Judges one implementation in one case."""
    case, derived = given.case, given.budget(one.profile)
    if is_void(case, given.want, derived.bounds):
        tally.statuses["not applicable"] += 1
        return
    with np.errstate(all="ignore"):
        result = one.compute(case)
    tally.statuses[result.status] += 1
    if result.status == "error":
        tally.alarm(f"{one.name} {case.id}: {result.message}")
    verdict = judge(case, given.want, derived.bounds, result)
    judged = [f for f in verdict.findings if f.status != "not judged"]
    used = [count(given, one, tally, finding) for finding in judged]
    if any(used):
        tally.used[ANY].append(max(used))
    if derived.random:
        passed = (f.name for f in judged if f.status == "pass")
        collect(given, one, tally, {name: result.arrays[name] for name in passed})


def count(given: Given, one: Implementation, tally: Tally, finding: Finding) -> float:
    """Notes one check; its share of the budget, 0 where it is not counted."""
    if known := one.exception(given.case, finding.name):
        tally.exceptions[known.why] += finding.status == "fail"
        return 0.0
    if finding.status == "fail":
        place = f"{finding.worst}, used {finding.used:.3g} {finding.message}"
        tally.alarm(f"{one.name} {given.case.id} {finding.name}: {place}")
        return 0.0
    tally.used[finding.name].append(finding.used)
    return finding.used


def collect(
    given: Given, one: Implementation, tally: Tally, results: dict[str, np.ndarray]
) -> None:
    """Keeps what a random case adds to the pooled statistics."""
    derived = given.budget(one.profile)
    for name in set(results) & set(derived.deviation) - set(STEPS):
        samples, got = tally.samples[name], results[name]
        if got.size and len(samples) < SAMPLES and not one.exception(given.case, name):
            chosen = given.case, given.want, derived, one.profile, got
            samples.append(sample(*chosen, name=name))


def document(
    tallies: dict[tuple[str, str], Tally], profiles: dict[tuple[str, str], str]
) -> dict:
    """All tallies in types of JSON."""
    rows = [
        {
            "implementation": name,
            "dtype": dtype,
            "profile": profiles[name, dtype],
            "cases": dict(tally.statuses),
            "checks": len(tally.alarms)
            + sum(len(used) for name, used in tally.used.items() if name != ANY),
            "false_alarms": len(tally.alarms),
            "alarms": tally.alarms,
            "known": dict(tally.exceptions),
            "used": {
                result: {
                    "checks": len(used),
                    "quantiles": [_short(x) for x in np.percentile(used, QUANTILES)],
                }
                for result, used in tally.used.items()
            },
            "pooled": {
                result: {k: _short(v) for k, v in asdict(pool(samples)).items()}
                | {"passes": pool(samples).passes}
                for result, samples in tally.samples.items()
            },
        }
        for (name, dtype), tally in sorted(tallies.items())
    ]
    return {
        "checks": sum(row["checks"] for row in rows),
        "false_alarms": sum(row["false_alarms"] for row in rows),
        "quantiles": QUANTILES,
        "implementations": rows,
    }


def _short(number: float) -> float:
    """Four significant digits."""
    return float(f"{number:.4g}")


if __name__ == "__main__":
    sys.exit(main())

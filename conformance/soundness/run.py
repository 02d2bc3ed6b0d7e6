"""Runs correct implementations and counts how often they are called wrong: never.

    python conformance/soundness/run.py --framework numpy --seeds 200

A check is one result of one case.  The cases are the suite's own: every recipe is drawn
with as many seeds, in each storage type, or with one seed in `--every` so many, by
turns.  What is found about one recipe is left in `--parts`, a file each, so that an
interrupted run goes on with `--resume`, and several can share the work: `--recipes
'causal*'` runs some.
"""

import argparse
import json
import sys
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
from implementations import FRAMEWORKS, Implementation
from rich.console import Console
from rich.progress import track

from attncheck import frameworks
from attncheck.budget import (
    Budget,
    Pooled,
    Profile,
    Sample,
    derive,
    is_void,
    pool,
    sample,
)
from attncheck.case import DTYPES, Case
from attncheck.definition import Expected, expected
from attncheck.suite import RECIPES, build
from attncheck.suite.recipe import Recipe
from attncheck.suite.shapes import LENGTHS, Shape, of_length
from attncheck.verdict import Finding, judge

QUANTILES = (5, 25, 50, 75, 95, 100)
"""Of the shares of the budget that cases use; 100: the greatest."""

LARGEST = 2**13
"""Scores of a case, at most, where lengths are not what it is about."""

OWN, ROWS = 0, 4
"""Of eight seeds in turn, the one that has the recipe's own shape, and the one that has
many rows; the others have lengths around those of tiles."""

FIRST = 3
"""0, 1 and 2 are the seeds of the suite's own cases."""

MANY = Shape(b=1, h=1, g=2, i=32, j=96, d=16, e=16)
"""Rows and keys enough that roundings can be taken as independent."""

SQUARE = MANY._replace(i=48, j=48)
"""The same where there are as many queries as keys."""

SHARED = Shape(b=2, h=1, g=2, i=3, j=33, d=16, e=16)
"""One shape for almost all cases of a framework that compiles for every shape."""

SAMPLES = 48
"""Random cases of a recipe whose statistics are pooled: they are kept whole."""

ANY = "any result"
"""The worst result of a case, unless all that it has are exact."""


@dataclass
class Tally:
    """What is found about one implementation in one storage type."""

    used: dict[str, array] = field(default_factory=lambda: defaultdict(_numbers))
    """Result → the share of the budget of every case."""
    alarms: list[str] = field(default_factory=list)
    known: Counter[str] = field(default_factory=Counter)
    """Known departure → results that it made fail."""
    cases: Counter[str] = field(default_factory=Counter)
    """Status → cases."""
    pools: dict[str, list[Pooled]] = field(default_factory=lambda: defaultdict(list))
    """Result → statistics of the random cases of every recipe."""

    def alarm(self, text: str) -> None:
        """Notes a correct result that is called wrong, aloud."""
        print(f"\nfalse alarm: {text}", file=sys.stderr)
        self.alarms.append(text)

    def add(self, other: "Tally") -> None:
        """Takes in what was found elsewhere about the same."""
        self.alarms += other.alarms
        self.known += other.known
        self.cases += other.cases
        for name, shares in other.used.items():
            self.used[name] += shares
        for name, pools in other.pools.items():
            self.pools[name] += pools


def _numbers() -> array:
    return array("d")


Tallies = dict[tuple[str, str], Tally]
"""By implementation and storage type."""


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
    parser.add_argument(
        "--every", type=int, default=1, help="a recipe gets one seed in so many"
    )
    parser.add_argument("--recipes", default="*", help="such as 'causal*'")
    parser.add_argument("--out", type=Path, help="where the evidence goes")
    parser.add_argument("--parts", type=Path, help="build/soundness/FRAMEWORK")
    parser.add_argument(
        "--resume", action="store_true", help="keep parts with the same seeds"
    )
    options = parser.parse_args(argv)
    chosen = [recipe for recipe in RECIPES if fnmatch(recipe.name, options.recipes)]
    if not chosen:
        parser.error(f"no recipe matches {options.recipes!r}")
    folder = options.parts or Path("build", "soundness", options.framework)
    folder.mkdir(parents=True, exist_ok=True)
    implementations = FRAMEWORKS[options.framework]()
    found: Tallies = defaultdict(Tally)
    console = Console(stderr=True)
    count = 0
    for recipe in track(chosen, options.framework, console=console):
        part = folder / f"{recipe.name}.json"
        seeds = seeds_of(recipe, options.seeds, options.every)
        if not (options.resume and read(part, seeds)):
            drawn = cases(recipe, options.framework, seeds)
            write(part, seeds, of_recipe(drawn, implementations))
        for key, tally in read(part, seeds).items():
            found[key].add(tally)
        count += len(seeds) * len(DTYPES)
    report = {
        "framework": frameworks.adapter(options.framework).describe(),
        "seeds": options.seeds,
        "recipes": len(chosen),
        "cases": count,
        **document(found, implementations),
    }
    print(f"{report['checks']} checks, {report['false_alarms']} false alarms")
    if options.out:
        write_json(options.out, report, indent=1)
    return 1 if report["false_alarms"] else 0


# --------------------------------------------------------------------------- cases


def seeds_of(recipe: Recipe, seeds: int, every: int) -> range:
    """The seeds that a recipe is drawn with: of every so many one, by turns."""
    turn = RECIPES.index(recipe) % every
    return range(FIRST + turn, FIRST + seeds, every)


def cases(recipe: Recipe, framework: str, seeds: Sequence[int]) -> Iterator[Case]:
    """The case of a recipe in each storage type, drawn with every seed."""
    for seed in seeds:
        shape = shape_of(recipe, seed, framework)
        yield from build(recipe, tuple(DTYPES), shape=shape, seed=seed, tag=f"{seed}")


def shape_of(recipe: Recipe, seed: int, framework: str) -> Shape:
    """The recipe's own shape, or one with many rows, or with a length around a tile's.

    The libraries take values as wide as keys only.
    """
    own = recipe.shape
    if not recipe.resizable:
        return thinned(own, seed)
    if framework == "jax":
        return own if recipe.is_multi_head else SHARED
    turn = seed % 8
    shape = (
        own if turn == OWN else many(recipe) if turn == ROWS else around(recipe, seed)
    )
    shape = shape._replace(c=own.c, m=own.m)
    is_library = framework == "torch" and not recipe.is_multi_head
    return shape._replace(e=shape.d) if is_library else shape


def many(recipe: Recipe) -> Shape:
    """Many rows."""
    return SQUARE if recipe.is_self_attention else MANY


def around(recipe: Recipe, seed: int) -> Shape:
    """One pair of heads over a length of around 16, 64 or 128, by turns."""
    square = recipe.is_self_attention
    shapes = [of_length(n, square=square)._replace(h=1) for n in LENGTHS]
    small = [shape for shape in shapes if scores(shape) <= LARGEST]
    return small[seed % len(small)]


def thinned(shape: Shape, seed: int) -> Shape:
    """Of a large shape 16 channels and two positions beside the longer axis.

    It is left whole for one seed in eight.  The longest, which would take most of
    the time, are whole only once.
    """
    longest = max(shape.i, shape.j)
    whole = seed == FIRST or (seed % 8 == OWN and longest <= LENGTHS[-1])
    if whole or scores(shape) <= LARGEST:
        return shape
    beside = {"i" if shape.j > shape.i else "j": 2}
    return shape._replace(**beside, d=16, e=16)


def scores(shape: Shape) -> int:
    """How many there are."""
    return shape.b * shape.h * shape.g * shape.i * shape.j


# --------------------------------------------------------------------------- checks


def of_recipe(
    drawn: Iterator[Case], implementations: Sequence[Implementation]
) -> Tallies:
    """What is found about the implementations in the cases of one recipe."""
    tallies: Tallies = defaultdict(Tally)
    samples: dict[tuple[str, str, str], list[Sample]] = defaultdict(list)
    for case in drawn:
        given = Given(case, expected(case))
        for one in implementations:
            if case.dtype not in one.dtypes:
                continue
            passed = check(given, one, tallies[one.name, case.dtype])
            for name, got in passed.items():
                kept = samples[one.name, case.dtype, name]
                if len(kept) < SAMPLES and is_counted(given, one, name, got):
                    chosen = case, given.want, given.budget(one.profile), one.profile
                    kept.append(sample(*chosen, got, name=name))
    for (implementation, dtype, name), kept in samples.items():
        if kept:
            tallies[implementation, dtype].pools[name].append(pool(kept))
    return tallies


def check(given: Given, one: Implementation, tally: Tally) -> dict[str, np.ndarray]:
    """Judges one implementation in one case; the results that pass."""
    case, derived = given.case, given.budget(one.profile)
    if is_void(case, given.want, derived.bounds):
        tally.cases["not applicable"] += 1
        return {}
    with np.errstate(all="ignore"):
        result = one.compute(case)
    tally.cases[result.status] += 1
    if result.status == "error":
        tally.alarm(f"{one.name} {case.id}: {result.message}")
    verdict = judge(case, given.want, derived.bounds, result)
    judged = [f for f in verdict.findings if f.status != "not judged"]
    used = [count(given, one, tally, finding) for finding in judged]
    if any(used):
        tally.used[ANY].append(_short(max(used)))
    passed = (f.name for f in judged if f.status == "pass")
    return {name: result.arrays[name] for name in passed}


def count(given: Given, one: Implementation, tally: Tally, finding: Finding) -> float:
    """Notes one check; its share of the budget, 0 where it is not counted."""
    if known := one.exception(given.case, finding.name):
        tally.known[known.why] += finding.status == "fail"
        return 0.0
    if finding.status == "fail":
        place = f"{finding.worst}, used {finding.used:.3g} {finding.message}"
        tally.alarm(f"{one.name} {given.case.id} {finding.name}: {place}")
        return 0.0
    tally.used[finding.name].append(_short(finding.used))
    return finding.used


def is_counted(given: Given, one: Implementation, name: str, got: np.ndarray) -> bool:
    """Whether a result adds to the pooled statistics: it is one of a random case."""
    is_random = name in given.budget(one.profile).deviation
    return is_random and got.size > 0 and not one.exception(given.case, name)


# --------------------------------------------------------------------------- files


def write(path: Path, seeds: Sequence[int], tallies: Tallies) -> None:
    """Leaves what was found about one recipe."""
    rows = [
        {
            "implementation": name,
            "dtype": dtype,
            "used": {result: list(used) for result, used in tally.used.items()},
            "alarms": tally.alarms,
            "known": tally.known,
            "cases": tally.cases,
            "pools": {
                result: [asdict(one) for one in pools]
                for result, pools in tally.pools.items()
            },
        }
        for (name, dtype), tally in tallies.items()
    ]
    write_json(path, {"seeds": list(seeds), "rows": rows})


def read(path: Path, seeds: Sequence[int]) -> Tallies:
    """What was found about one recipe with these seeds; nothing if it was not."""
    if not path.exists():
        return {}
    part = json.loads(path.read_text("utf-8"))
    if part["seeds"] != list(seeds):
        return {}
    return {(row["implementation"], row["dtype"]): _tally(row) for row in part["rows"]}


def _tally(row: dict) -> Tally:
    return Tally(
        used=defaultdict(_numbers, {n: array("d", x) for n, x in row["used"].items()}),
        alarms=row["alarms"],
        known=Counter(row["known"]),
        cases=Counter(row["cases"]),
        pools=defaultdict(
            list, {n: [Pooled(**one) for one in x] for n, x in row["pools"].items()}
        ),
    )


def write_json(path: Path, content: dict, indent: int | None = None) -> None:
    """Replaces a file by a whole one."""
    text = json.dumps(content, indent=indent, ensure_ascii=False, allow_nan=False)
    whole = path.with_suffix(".tmp")
    whole.write_text(text + "\n", "utf-8")
    whole.replace(path)


def document(found: Tallies, implementations: Sequence[Implementation]) -> dict:
    """All tallies in types of JSON."""
    profiles = {
        (i.name, dtype): i.profile_name for i in implementations for dtype in i.dtypes
    }
    rows = [
        {
            "implementation": name,
            "dtype": dtype,
            "profile": profiles[name, dtype],
            "cases": dict(tally.cases),
            "checks": len(tally.alarms)
            + sum(len(used) for name, used in tally.used.items() if name != ANY),
            "false_alarms": len(tally.alarms),
            "alarms": tally.alarms,
            "known": dict(tally.known),
            "used": {
                result: {
                    "checks": len(used),
                    "quantiles": [_short(x) for x in np.percentile(used, QUANTILES)],
                }
                for result, used in tally.used.items()
            },
            "pooled": {result: pooled(pools) for result, pools in tally.pools.items()},
        }
        for (name, dtype), tally in sorted(found.items())
    ]
    return {
        "checks": sum(row["checks"] for row in rows),
        "false_alarms": sum(row["false_alarms"] for row in rows),
        "quantiles": QUANTILES,
        "implementations": rows,
    }


def pooled(pools: Sequence[Pooled]) -> dict:
    """The worst of the pools that have rows enough."""
    judged = [one for one in pools if one.judged]
    gains = [abs(one.gain) / one.gain_limit for one in judged if one.gain_limit]
    return {
        "pools": len(judged),
        "rms": _short(max((one.rms for one in judged), default=0.0)),
        "gain": _short(max(gains, default=0.0)),
        "passes": all(one.passes for one in judged),
    }


def _short(number: float) -> float:
    """Four significant digits."""
    return float(f"{number:.4g}")


if __name__ == "__main__":
    sys.exit(main())

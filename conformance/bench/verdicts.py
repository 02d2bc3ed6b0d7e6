"""How long a verdict takes: a cold run, the same again, and with one worker.

    python conformance/bench/verdicts.py attnref.numpy [--set full] [--out FILE]

`--case 'softcap*'` is a part, which is not kept as evidence.

Every run is a process of its own and has an empty cache, but for the warm one, which
finds what the cold one left.  The import of the framework is measured apart; every
worker pays it once.  Seconds depend on the machine and on what else it does, so compare
the rows of one table, and look at the load that is printed with it.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from attncheck.exchange import RESULTS

KEPT = ("cold", "warm", "one_worker")
"""The runs by the names that the evidence has for them, in order."""


class Run(NamedTuple):
    """One run that was timed."""

    what: str
    seconds: float
    cases: int
    checks: int
    """Results of cases: a case has up to ten."""


def main() -> None:
    """Measures, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("target", help="what `attncheck run` takes")
    parser.add_argument("--set", default="smoke", choices=("smoke", "full"))
    parser.add_argument("--case", help="only these, a glob")
    parser.add_argument("--out", type=Path, help="evidence to which this is added")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        cold, other = Path(place, "cold"), Path(place, "other")
        runs = [
            run(given, cold, "cold"),
            run(given, cold, "warm"),
            run(given, other, "cold, one worker", "--jobs=1"),
        ]
    module = given.target.partition(":")[0].removesuffix(".py")
    imported = seconds_of([sys.executable, "-c", f"import {module}"], os.environ)
    show(given, runs, imported)
    if given.out and not given.case:
        keep(given, runs, imported)


def run(given: argparse.Namespace, cache: Path, what: str, *options: str) -> Run:
    """Times `attncheck run` with a cache folder."""
    print(f"{given.target}, {given.set}: {what} …", file=sys.stderr)
    out = cache.parent / what
    command = [sys.executable, "-m", "attncheck", "run", given.target, *options]
    command += [f"--set={given.set}", f"--out={out}"]
    command += ["--case", given.case] if given.case else []
    environment = os.environ | {"ATTNCHECK_CACHE": str(cache)}
    seconds = seconds_of(command, environment)
    with (out / RESULTS).open(encoding="utf-8") as lines:
        done = [len(record["outputs"]) for record in map(json.loads, lines)]
    return Run(what, seconds, len(done), sum(done))


def seconds_of(command: list[str], environment: Mapping[str, str]) -> float:
    """How long a process takes.

    Raises:
        CalledProcessError: it fails; a subject that does not conform does not.
    """
    started = time.perf_counter()
    ended = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL)
    if ended.returncode > 1:
        ended.check_returncode()
    return time.perf_counter() - started


def show(given: argparse.Namespace, runs: Sequence[Run], imported: float) -> None:
    """Prints the table, and what the seconds were measured on."""
    title = f"{given.target}, {given.set}: {runs[0].cases} cases"
    table = Table("run", "seconds", "of cold", "checks a second", title=title, box=None)
    for one in runs:
        share = one.seconds / runs[0].seconds
        rate = one.checks / one.seconds
        table.add_row(one.what, f"{one.seconds:.1f}", f"{share:.0%}", f"{rate:.0f}")
    console = Console(highlight=False)
    console.print(table)
    load = ", ".join(f"{x:.1f}" for x in os.getloadavg())
    console.print(f"importing {given.target} in a new process: {imported:.1f} s")
    console.print(f"{os.cpu_count()} processors; load of the last minutes: {load}")


def keep(given: argparse.Namespace, runs: Sequence[Run], imported: float) -> None:
    """Writes the seconds into the file, in place of what it had of target and set."""
    rows = json.loads(given.out.read_text("utf-8")) if given.out.exists() else []
    key = {"target": given.target, "set": given.set}
    row = {**key, "cases": runs[0].cases, "checks": runs[0].checks}
    row |= {name: one.seconds for name, one in zip(KEPT, runs, strict=True)}
    row |= {"import": imported, "processors": os.cpu_count(), "date": str(date.today())}
    others = [one for one in rows if not key.items() <= one.items()]
    rows = sorted(
        [*others, row], key=lambda one: (one["set"], one["target"]), reverse=True
    )
    given.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

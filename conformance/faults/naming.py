"""How often a diagnosis names the mistake of a wrong program that shares no code with
the variants: each program is judged as its author would, and what the judge says is
compared with what it should say.

    python conformance/faults/naming.py --framework numpy --out docs/evidence

`--only 'numpy_naive:*'` judges some of the programs, which is a part and no evidence.
"""

import argparse
import json
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from attncheck.cache import Cache
from attncheck.collect import collect
from attncheck.exchange import RESULTS
from attncheck.explain import Diagnosis, Evidence, explain
from attncheck.judging import Folder, Judge
from attncheck.suite import cases
from attncheck.variants import CANDIDATES, CONVERTERS

HERE = Path(__file__).parent
JUDGE = Judge(Cache.of_user())
DTYPES = ("F32", "BF16", "F64")
"""Tried in this order until a case fails: some mistakes show in some types only."""


def main() -> int:
    """Judges the programs of a framework, prints a table, and writes the evidence."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--framework", required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder of evidence")
    parser.add_argument("--results", type=Path, help="keep results here, and use them")
    parser.add_argument("--only", default="*", help="such as 'numpy_naive:*'")
    asked = parser.parse_args()
    chosen = [x for x in programs(asked.framework) if fnmatch(x["program"], asked.only)]
    if not chosen:
        parser.error(f"no program matches {asked.only!r}")
    rows = []
    with tempfile.TemporaryDirectory() as place:
        for program in chosen:
            rows.append(judged(program, asked.results or Path(place)))
            print("{program:44} {outcome:10} {named}".format(**rows[-1]), flush=True)
    for key in ("blind", "outcome"):
        counts = Counter(row[key] for row in rows)
        print(key, *(f"{number} {word}" for word, number in counts.items()), sep=", ")
    text = json.dumps(rows, indent=1, ensure_ascii=False)
    file = asked.out / f"naming-{asked.framework}.json"
    file.write_text(text + "\n", encoding="utf-8")
    return 0


def programs(framework: str) -> Iterator[dict[str, Any]]:
    """The entries of the index, each with the names that are right."""
    with (HERE / "programs" / "index.toml").open("rb") as file:
        index = tomllib.load(file)["program"]
    with (HERE / "expected.toml").open("rb") as file:
        expected = tomllib.load(file)
    for entry in index:
        if entry["framework"] == framework:
            module, function = Path(entry["target"]).name.split(".py:")
            first = expected[module][function]
            since = expected["later"].get(module, {}).get(function, [])
            names = {"first": first, "right": [*first, *since]}
            yield entry | names | {"program": f"{module}:{function}"}


def judged(program: Mapping[str, Any], place: Path) -> dict[str, Any]:
    """What the judge says of one program, and whether that is right.

    Blind is what it says with the variants that were there before any was judged.
    """
    evidence, dtype = _first_failing(program, place)
    found = next(iter(explain(evidence)), Diagnosis((), ()))
    names, alike = list(found.names), _alike(found)
    before, added = names, later()
    if evidence and (not names or added & {*names, *alike}):
        known = [v for v in CANDIDATES if v.name not in added and v not in CONVERTERS]
        before = list(explain(evidence, known)[0].names)
    return {
        "program": program["program"],
        "mistake": program["mistake"],
        "unusual": program.get("unusual", False),
        "dtype": dtype,
        "right": program["right"],
        "named": names,
        "alike": alike,
        "closest": found.closest.variant.name if found.closest else None,
        "outcome": outcome(program["right"], names) if evidence else "passes",
        "blind": outcome(program["first"], before) if evidence else "passes",
        "blind_named": before,
    }


def later() -> set[str]:
    """The variants that were added after programs had been judged."""
    with (HERE / "expected.toml").open("rb") as file:
        table = tomllib.load(file)["later"]
    return {
        name for named in table.values() for right in named.values() for name in right
    }


def outcome(right: list[str], named: list[str]) -> str:
    """`named`: right at the first guess; `unknown`: nothing, as it should be; `missed`:
    nothing, though there is a name; `wrong`: another first, or any where none is right.
    """
    if not named:
        return "missed" if right else "unknown"
    return "named" if named[0] in right else "wrong"


def _first_failing(
    program: Mapping[str, Any], place: Path
) -> tuple[list[Evidence], str]:
    """What is known in the first storage type in which a case fails."""
    for dtype in DTYPES:
        folder = place / program["program"].replace(":", "--") / dtype
        if not (folder / RESULTS).exists():
            collect(program["target"], cases("smoke", [dtype]), folder, options={})
        found = Folder.read(folder)
        profile = found.profile
        verdicts = [JUDGE.verdict(case, found, profile) for case in found.cases]
        if any(verdict.first_failure for verdict in verdicts):
            return list(JUDGE.evidence(verdicts, found, profile)), dtype
    return [], DTYPES[0]


def _alike(found: Diagnosis) -> list[str]:
    return [variant.name for cause in found.causes for variant in cause.alike]


if __name__ == "__main__":
    sys.exit(main())

"""Measures how far library and room are apart with the same weights.

    python conformance/porting/measure.py docs/evidence/weights.json

Each of the two is judged against the definition on the same parameters; the number is
the greatest share of the budget that an element uses.  Every library must be here, or
those that `--only 'torch*'` names, which is a part and no evidence.
"""

import argparse
import json
from datetime import date
from fnmatch import fnmatch
from importlib.metadata import version
from pathlib import Path

from carry import PROFILE, dumped, loaded
from libraries import LIBRARIES

from attncheck.layer import judged

DISTRIBUTIONS = {"haiku": "dm-haiku"}
"""Package → the distribution that it comes with, where that has another name."""


def main() -> None:
    """Writes the evidence."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path, help="where the evidence goes")
    parser.add_argument("--only", default="*", help="layers, such as 'torch*'")
    given = parser.parse_args()
    chosen = {n: one for n, one in LIBRARIES.items() if fnmatch(n, given.only)}
    if not chosen:
        parser.error(f"no layer matches {given.only!r}")
    layers = {}
    for name, one in chosen.items():
        shares = {}
        for way, carry in (("loaded", loaded), ("dumped", dumped)):
            params, x, context, *outputs = carry(name)
            for who, got in zip(("theirs", "ours"), outputs, strict=True):
                found = judged(got, params, x, context, profile=PROFILE)
                assert found.verdict.status == "pass", (name, way, who)
                shares[f"{way}_{who}"] = float(f"{found.verdict.used:.3g}")
        layers[name] = {"of": one.layout.of, **shares}
        print(name, *(f"{share:.1%}" for share in shares.values()))
    packages = sorted(
        {DISTRIBUTIONS.get(x.package, x.package) for x in chosen.values()}
    )
    report = {
        "date": date.today().isoformat(),
        "dtype": "F32",
        "profile": PROFILE,
        "versions": {name: version(name) for name in packages},
        "layers": layers,
    }
    given.out.write_text(json.dumps(report, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()

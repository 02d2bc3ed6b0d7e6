"""Correct implementations are never called wrong, and wrong ones would be counted."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "conformance" / "soundness"
EVIDENCE = sorted((ROOT / "docs" / "evidence").glob("soundness-*.json"))
FOUND = [json.loads(path.read_text("utf-8")) for path in EVIDENCE]
PAGE = (ROOT / "docs" / "soundness.md").read_text("utf-8")


def python(*arguments):
    return subprocess.run(
        [sys.executable, *arguments], cwd=FOLDER, capture_output=True, text=True
    )


def evidence(folder, *arguments):
    """What a run over a few recipes finds, its parts left in a folder."""
    out = folder / "evidence.json"
    places = f"--out={out}", f"--parts={folder / 'parts'}"
    ended = python("run.py", "--framework=numpy", *places, *arguments)
    assert ended.returncode == 0, ended.stderr
    return json.loads(out.read_text("utf-8"))


@pytest.mark.parametrize("recipes", ["causal-*", "multi-head-*"])
def test_a_few_seeds_raise_no_false_alarm(tmp_path, recipes):
    found = evidence(tmp_path, "--seeds=2", f"--recipes={recipes}")
    assert found["cases"] == 2 * found["recipes"] * 4
    assert found["false_alarms"] == 0
    assert found["checks"] > 500


def test_a_run_goes_on_with_the_parts_that_have_as_many_seeds(tmp_path):
    one = ("--seeds=1", "--recipes=plain")
    first = evidence(tmp_path, *one)
    (part,) = (tmp_path / "parts").iterdir()
    made = part.stat().st_mtime_ns
    assert evidence(tmp_path, *one, "--resume") == first
    assert part.stat().st_mtime_ns == made
    more = evidence(tmp_path, "--seeds=2", "--recipes=plain", "--resume")
    assert more["checks"] > first["checks"]


def test_of_every_so_many_seeds_a_recipe_gets_one(tmp_path):
    found = evidence(tmp_path, "--seeds=3", "--every=3", "--recipes=plain")
    assert (found["seeds"], found["cases"]) == (3, 4)


def test_a_pattern_that_no_recipe_has_is_a_usage_error():
    ended = python("run.py", "--framework=numpy", "--recipes=none-*")
    assert ended.returncode == 2
    assert "no recipe matches 'none-*'" in ended.stderr


BROKEN = """
import implementations, run, sys
from dataclasses import replace
broken = replace(implementations.TILES, gain=1.05)
table = implementations.KERNELS[("strict", ("F64", "F32", "BF16", "F16"))]
table["naive"] = broken
raise SystemExit(run.main(["--framework=numpy", *sys.argv[1:]]))
"""


def test_an_implementation_that_is_wrong_is_counted(tmp_path):
    ended = python("-c", BROKEN, "--seeds=1", "--recipes=plain", f"--parts={tmp_path}")
    assert ended.returncode == 1
    assert "false alarm: naive plain@" in ended.stderr
    assert re.search(r"[1-9]\d* false alarms", ended.stdout)


@pytest.mark.parametrize("found", FOUND, ids=[path.stem for path in EVIDENCE])
def test_the_evidence_has_no_false_alarm(found):
    rows = found["implementations"]
    assert found["checks"] == sum(row["checks"] for row in rows)
    assert found["false_alarms"] == sum(row["false_alarms"] for row in rows) == 0
    assert not any("error" in row["cases"] for row in rows)
    for row in rows:
        assert all(pooled["passes"] for pooled in row["pooled"].values()), row


def test_there_is_as_much_evidence_as_the_page_says():
    assert {path.stem.removeprefix("soundness-") for path in EVIDENCE} == {
        "jax",
        "numpy",
        "torch",
    }
    assert sum(found["checks"] for found in FOUND) >= 100_000
    assert max(found["seeds"] for found in FOUND) >= 200
    assert f"{sum(found['checks'] for found in FOUND):,} checks" in PAGE


def test_the_tables_of_the_page_are_those_of_the_evidence():
    ended = python("tables.py")
    lines = [line for line in ended.stdout.splitlines() if line]
    assert len(lines) > 20, ended.stderr
    assert [line for line in lines if line not in PAGE] == []

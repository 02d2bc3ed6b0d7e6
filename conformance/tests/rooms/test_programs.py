"""Each wrong program fails by its one mistake: without it, it passes the same case."""

import tomllib
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from attncheck.judging import Judge
from attncheck.subject import Subject
from attncheck.suite import cases
from attncheck.target import load
from attncheck.verdict import judge
from attncheck.worker import run_case

ROOT = Path(__file__).parents[3]
INDEX = ROOT / "conformance" / "faults" / "programs" / "index.toml"
PROGRAMS = tomllib.loads(INDEX.read_text("utf-8"))["program"]
CASES = {case.id: case for case in cases(dtypes=("F64", "F32", "BF16"))}
JUDGE = Judge()


def pytest_generate_tests(metafunc):
    rooms = metafunc.config.getoption("room")
    chosen = [p for p in PROGRAMS if p["framework"] in rooms]
    if "program" in metafunc.fixturenames:
        names = [Path(p["target"]).name for p in chosen]
        metafunc.parametrize("program", chosen, ids=names)
    if "file" in metafunc.fixturenames:
        files = dict.fromkeys(p["target"].partition(":")[0] for p in chosen)
        metafunc.parametrize("file", files, ids=[Path(f).name for f in files])


@cache
def loaded(target: str) -> Subject:
    return load(str(ROOT / target))


def status(target: str, name: str) -> str:
    case, subject = CASES[name], loaded(target)
    with np.errstate(all="ignore"):  # NaN and infinity are what some cases are about
        result = run_case(subject, case, {})
    bounds = JUDGE.budget(case, subject.profile).bounds
    return judge(case, JUDGE.expected(case), bounds, result).status


def test_a_program_fails_by_its_mistake(program):
    target = program["target"]
    file = target.partition(":")[0]
    assert status(f"{file}:right", program["fails"]) == "pass"
    assert status(target, program["fails"]) == "fail"


@pytest.mark.parametrize("case", ["blocked-bias-nan/F32", "empty-rows/F32"])
def test_without_a_mistake_a_program_keeps_the_axiom(file, case):
    assert status(f"{file}:right", case) == "pass"

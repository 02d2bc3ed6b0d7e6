"""The index of wrong programs and the files beside it say the same."""

import re
import tomllib
from collections import Counter
from pathlib import Path

from attncheck.frameworks import NAMES
from attncheck.suite import cases

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "conformance" / "faults" / "programs"
PROGRAMS = tomllib.loads((FOLDER / "index.toml").read_text("utf-8"))["program"]


def test_the_index_names_every_mistake_of_every_file():
    made = {
        f"{file.relative_to(ROOT).as_posix()}:{name}"
        for file in FOLDER.glob("*.py")
        for name in re.findall(
            r'^(\w+) = make\("\1"\)$', file.read_text("utf-8"), re.MULTILINE
        )
    }
    assert sorted(p["target"] for p in PROGRAMS) == sorted(made)


def test_every_file_has_a_right_version():
    files = list(FOLDER.glob("*.py"))
    assert files
    for file in files:
        assert "\nright = make()\n" in file.read_text("utf-8"), file


def test_every_framework_has_programs_and_each_tells_its_framework():
    for program in PROGRAMS:
        file = Path(program["target"]).name
        assert file.startswith(f"{program['framework']}_")
    assert min(Counter(p["framework"] for p in PROGRAMS)[name] for name in NAMES) >= 15


def test_every_program_fails_a_case_that_exists():
    known = {case.id for case in cases()}
    assert {p["fails"] for p in PROGRAMS} <= known


def test_every_mistake_is_told_once():
    told = Counter(p["mistake"] for p in PROGRAMS)
    assert [mistake for mistake, count in told.items() if count > 1] == []
    assert sum(p.get("unusual", False) for p in PROGRAMS) >= 6


def test_pages_count_the_programs():
    files = len(list(FOLDER.glob("*.py")))
    said = f"{len(PROGRAMS)} wrong attention programs"
    assert said in (ROOT / "README.md").read_text("utf-8")
    changes = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert said in changes
    assert f"{files} right ones" in changes

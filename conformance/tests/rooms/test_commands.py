"""Every command that a page shows is run, each in the room that has its framework.

It is run in a copy of the project, so that no evidence is overwritten, and in a short
form: `SHORTER` says which.  nox runs too, but that its sessions install nothing and
only say what they would run; each of that is then run like a command of a page, but
of those that are alike up to the room's name the one of NumPy's alone.  Of pytest's
tests, also those of the sessions that are rooms, the first one is run.

Not run are the programs of `ELSEWHERE`, which rooms have not; the paths that they are
given must be there.  `nox -s lint` and `nox -s docs` are part of `nox`, and so of every
CI run, as they stand; `nox -s docs-browser` needs Chromium.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import entry_points
from itertools import takewhile
from pathlib import Path

import pytest

from attncheck.__main__ import main

from .shown import PAGES, ROOT, code, commands

HERE = Path(__file__).with_name("commands")
SHOWN = list(dict.fromkeys(words for path in PAGES for words in commands(path)))
PYTHON = {
    "python": [],
    "pytest": ["-m", "pytest"],
    "torchrun": ["-m", "torch.distributed.run"],
}
"""Program → with which arguments Python is it."""

ELSEWHERE = ("sphinx-build", "ruff", "mypy", "pytest conformance/site")

OWNERS = {
    "torch": "torch|sdpa|board|gpu|porting|faults/run|bench/dispatch",
    "jax": "jax",
    "numpy": "",
}
"""Room → the commands that are run there, unless a room before it has them."""

VALUES = {
    "TARGET": "my.py:attention",
    "A": "my.py:attention",
    "B": "my.py:attention",
    "mask=attn_mask,scale": "mask=allowed,scale",
    "FILE": "waivers.toml",
    "DIR": "docs",
    "COMMAND": "run",
    "<room>": "numpy",
    "HOST:29500": "localhost:0",
    "jax.nn:dot_product_attention": "my.py:attention",
}
"""What is given for what the reader has to fill in, and for a second framework."""

ONE_TEST = {"-p": "one_test", "-n": "0"}
SHORTER = {
    "attncheck run": {"--dtype": "F64", "--case": "square"},
    "attncheck run my.py:subject": {"--dtype": "F64"},
    "attncheck export": {"--case": "square"},
    "attncheck board": {"--only": "torch:sdpa-math", "--out": "board", "--resume": ""},
    "pytest": ONE_TEST | {"--ignore-glob": "*/test_[!m]*.py"},
    "pytest conformance/tests/rooms": ONE_TEST | {"--ignore-glob": "*/test_[!e]*.py"},
    "pytest conformance/tests/rooms/test_weights.py": ONE_TEST | {"-k": "torch"},
    "pytest --pyargs": {"--attn-dtype": "F64", "--attn-case": "square"},
    "python -m attncheck.certify": {"--case": "square"},
    "python conformance/bench/attention.py": {
        "--only": "numpy*",
        "--rounds": "1",
        "--longest": "128",
        "--part": "points",
    },
    "python conformance/bench/blocks.py": {
        "--room": "numpy",
        "--rounds": "1",
        "--length": "32",
    },
    "python conformance/bench/dispatch.py": {"--rounds": "1", "--length": "4"},
    "python conformance/bench/tile.py": {"--room": "numpy"},
    "python conformance/bench/verdicts.py": {"--case": "square"},
    "python conformance/faults/naming.py": {"--only": "*:softcap_after_bias"},
    "python conformance/faults/run.py": {
        "--dtype": "F32",
        "--operation": "linformer_attention",
        "--jobs": "1",
        "--out": "faults.json",
    },
    "python conformance/pages/run.py": {"--only": "batches"},
    "python conformance/porting/measure.py": {"--only": "torch self"},
    "python conformance/soundness/run.py": {
        "--recipes": "no-keys",
        "--seeds": "1",
        "--every": "1",
    },
    "torchrun": {"--nnodes": "1", "--nproc-per-node": "2"},
}
"""First words of a command → options that it gets, or gets other values of; a flag has
the value nothing.  Of more that fit, the longest counts."""


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the project, with the files that commands speak of."""
    place = tmp_path_factory.mktemp("project")
    for name in ("impls", "conformance", "docs"):
        shutil.copytree(ROOT / name, place / name)
    for path in (ROOT / "README.md", ROOT / "noxfile.py", HERE / "one_test.py"):
        shutil.copy(path, place)
    shutil.copy(ROOT / "docs" / "evidence" / "board.json", place / "old.json")
    my = (HERE / "my.py").read_text("utf-8")
    settings = (ROOT / "pyproject.toml").read_text("utf-8")
    interpreter = place / "other" / "bin" / "python"
    files = {
        "my.py": my + code("from attncheck import Subject\n\nsubject ="),
        "my/__init__.py": "",
        "my/module.py": my,
        "program.py": code("# program.py"),
        "waivers.toml": code("# waivers.toml"),
        "pyproject.toml": settings + code("# pyproject.toml"),
        interpreter: f'#!/bin/sh\nexec "{sys.executable}" "$@"\n',
    }
    for name, text in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text, "utf-8")
    interpreter.chmod(0o755)
    return place


@pytest.fixture(scope="module")
def recorded(copy):
    """Arguments of nox on pages → what it would run, or what is wrong with them."""
    asked = [filled(words[1:]) for words in SHOWN if words[0] == "nox"]
    done = subprocess.run(
        [sys.executable, HERE / "recorded.py", json.dumps(asked)],
        cwd=copy,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return {tuple(line): found for line, found in json.loads(done.stdout)}


@pytest.fixture(scope="module")
def ran():
    """What has been run: several pages and sessions have some commands in common."""
    return set()


@pytest.fixture
def place(copy, monkeypatch):
    """The copy, in which commands are given and from which they import."""
    roots = [str(copy), *(str(copy / name) for name in ("impls", "conformance"))]
    path = os.pathsep.join([*roots, os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)  # compiled once
    monkeypatch.chdir(copy)
    if "attncheck" not in [x.name for x in entry_points(group="pytest11")]:
        monkeypatch.setenv("PYTEST_PLUGINS", "attncheck.pytest_plugin")
    return copy


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("shown", SHOWN, ids=" ".join)
def test_a_command_on_a_page_runs(shown, room, place, recorded, ran, monkeypatch):
    found = [words for words in comes_to(shown, recorded) if owner(words) == room.name]
    if not found:
        pytest.skip("a command for the tests of other rooms")
    for words in map(shortened, found):
        if (known := tuple(sorted(words))) not in ran:
            prepare(words, monkeypatch)
            run(words, monkeypatch)
            ran.add(known)


def filled(words):
    """A command as a reader would give it."""
    return [VALUES.get(word, word) for word in words]


def comes_to(words, recorded):
    """The command itself, or what the sessions of nox would run.

    Of those that are alike but for the room, the first one stands for all.
    """
    words = filled(words)
    if words[0] == "nox" or words[1:3] == ["-m", "nox"]:
        within = recorded[tuple(words[1 if words[0] == "nox" else 3 :])]
        assert not isinstance(within, str), within
        for inner in within:
            first = [re.sub("torch|jax", "numpy", word) for word in inner]
            if inner == first or first not in within:
                yield from comes_to(inner, recorded)
    else:
        yield words


def owner(words):
    """The room in which a command is run."""
    line = " ".join(words)
    return next(room for room, pattern in OWNERS.items() if re.search(pattern, line))


def is_elsewhere(words):
    return " ".join(words).startswith(ELSEWHERE)


def shortened(words):
    """The command with the options of `SHORTER`."""
    words = [x for word in words for x in word.split("=", word.startswith("--"))]
    line = " ".join([*words, ""])
    known = [first for first in SHORTER if line.startswith(f"{first} ")]
    if is_elsewhere(words) or not known:
        return words
    for option, value in SHORTER[max(known, key=len)].items():
        if option not in words:
            words += [option, value] if value else [option]
        elif value:
            words[words.index(option) + 1] = value
    return words


def prepare(words, monkeypatch):
    """Makes the files that a command of the judge reads."""
    given = [Path(x) for x in takewhile(lambda x: x[0] != "-", words[2:])]
    if words[:2] == ["attncheck", "judge"]:
        for folder in (x for x in given if not (x / "results.jsonl").exists()):
            one = ["attncheck", "run", "my.py:attention", "--out", str(folder)]
            run(shortened(one), monkeypatch)
    if words[:2] == ["attncheck", "board"]:
        for file in given:
            file.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy("old.json", file)


def run(words, monkeypatch):
    """Runs a command, which ends well; two functions may differ."""
    program, *given = words
    if is_elsewhere(words):
        paths = [x for x in given if "/" in x and not x.startswith("build/")]
        assert [x for x in paths if not Path(x).exists()] == []
    elif program == "attncheck":
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code in ((0, 1) if given[0] == "diff" else (0,))
    else:
        line = [sys.executable, *PYTHON[program], *given]
        done = subprocess.run(line, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

"""Every command that a page shows is there, and those of the judge are run.

The README's have tests of their own, with what they print.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROGRAMS = ("nox", "attncheck", "pytest", "python", "torchrun")

SHORTER = {
    "run": ["--case", "causal-square/F32"],
    "board": ["--only", "torch:sdpa-math"],
}
"""Command of the judge → what is added to it here, so that it takes seconds."""

MY = """
import numpy as np

def attention(q, k, v, *, mask=None, allowed=None):
    seen = mask if allowed is None else allowed
    s = q @ np.repeat(k, q.shape[1] // k.shape[1], 1).swapaxes(2, 3) / q.shape[3] ** 0.5
    s = s if seen is None else np.where(seen, s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True) @ np.repeat(v, q.shape[1] // v.shape[1], 1)
"""
"""The reader's own file, where a page speaks of one."""


def commands(path):
    """The lines of a page's plain blocks that start with a program, in words."""
    text = path.read_text("utf-8")
    blocks = re.findall(r"^```(.*)\n((?:.*\n)*?)```$", text, re.MULTILINE)
    for block in (block for language, block in blocks if not language):
        for line in block.replace("pip install nox && ", "").splitlines():
            line = re.sub(r"^([A-Z_]+=\S+ )+", "", line)
            if line.startswith(tuple(f"{program} " for program in PROGRAMS)):
                yield tuple(shlex.split(line, comments=True))


SHOWN = sorted({words for path in PAGES for words in commands(path)})


@pytest.fixture
def place(tmp_path):
    """A folder with all the files that pages speak of."""
    for file in (tmp_path / "my.py", tmp_path / "my" / "module.py"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(MY, "utf-8")
    for name in ("conformance", "impls"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copy(ROOT / "docs" / "evidence" / "board.json", tmp_path / "old.json")
    interpreter = tmp_path / "other" / "bin" / "python"
    interpreter.parent.mkdir(parents=True)
    interpreter.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', "utf-8")
    interpreter.chmod(0o755)
    return tmp_path


def run(words, place):
    """Python with these arguments, and what it says; a command may find fault."""
    roots = [str(ROOT / name) for name in ("impls", "conformance")]
    path = os.pathsep.join([*roots, os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, *words],
        cwd=place,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("shown", SHOWN, ids=" ".join)
def test_a_command_on_a_page_runs(shown, room, place):
    line, (program, first, *_) = " ".join(shown), shown
    framework = re.search(r"jax|torch|sdpa|board", line)
    owner = ("jax" if framework[0] == "jax" else "torch") if framework else "numpy"
    if owner != room.name:
        pytest.skip(f"a command for the tests of the {owner} room")
    if program == "nox":
        assert_sessions(shown[2:])
    elif program == "torchrun" or (program == "pytest" and first != "--pyargs"):
        assert (
            first.startswith("--") or (ROOT / first).exists()
        )  # no less than a CI run
    elif program == "python" and first != "-m":
        said = run([str(ROOT / first), "--help"], place)
        assert [x for x in shown if x.startswith("--") and x not in said] == []
    else:
        run(judged(shown, place), place)


def assert_sessions(names):
    """They are sessions of the noxfile."""
    source = (ROOT / "noxfile.py").read_text("utf-8")
    for name in names:
        known = f"def {name.replace('-', '_')}(", f'name="{name}"'
        assert (
            any(x in source for x in known) or (ROOT / "impls/attnref" / name).exists()
        )


def judged(shown, place):
    """A command of the judge, for one case."""
    program, first, *_ = shown
    if program == "python":
        return shown[1:]
    if first == "judge":  # what has been run
        one = ["run", "my.py:attention", "--out", shown[2], *SHORTER["run"]]
        run(["-m", "attncheck", *one], place)
    if program == "attncheck":
        return ["-m", *shown, *SHORTER.get(first, [])]
    installed = [x.name for x in entry_points(group="pytest11")]
    plugin = [] if "attncheck" in installed else ["-p", "attncheck.pytest_plugin"]
    return ["-m", *shown, *plugin, "--attn-dtype=F32", "-k", "causal-square"]

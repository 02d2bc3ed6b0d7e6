"""What the README shows of a room runs as it stands there."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[3] / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def blocks(name):
    """The blocks of code that use a room, or the judge on its framework's arrays."""
    return [
        block
        for block in BLOCKS
        if f"from attnref.{name}" in block
        or ("assert_attention" in block and block.startswith(f"import {name}"))
    ]


def missing(block):
    """What the block needs that this machine lacks, if anything."""
    compiler = os.environ.get("CXX", "g++")
    if "torch.compile(" in block and shutil.which(compiler) is None:
        return f"torch.compile needs a C++ compiler, and there is no {compiler}"
    return None


def test_the_readme_shows_the_room_and_a_test_of_ones_own(room):
    assert len(blocks(room.name)) >= 2


def test_the_readmes_code_runs(room, tmp_path):
    for block in blocks(room.name):
        if reason := missing(block):
            pytest.skip(reason)
        ended = subprocess.run(
            [sys.executable, "-c", block],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert ended.returncode == 0, ended.stderr

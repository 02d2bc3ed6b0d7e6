"""PyTorch's own flash kernel on the CPU does what the page and its waivers say."""

import io
import re
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest
import torch

from attncheck.waivers import read

HOME = Path(__file__).parents[4]
PAGE = (HOME / "docs/backends.md").read_text("utf-8")
WAIVERS = HOME / "conformance/waivers/torch-sdpa-flash.toml"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
SHOWN = [block for block in BLOCKS if ")  # " in block and "sdpa_kernel" in block]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The results of PyTorch's kernel on the cases that all its shapes allow."""
    place = tmp_path_factory.mktemp("raw")
    run = attncheck(
        *("run", "torch:sdpa-flash", "--set=full", "--case=*coincidence*"),
        *("--dtype=F32", "--no-shrink", f"--out={place}"),
    )
    assert run.returncode == 1, run.stderr
    assert "clauses of which every case fails: nan-query" in run.stdout
    assert "The mask comes before the scale: −∞ · 0 is NaN" in run.stdout
    return place


def attncheck(*arguments):
    command = [sys.executable, "-m", "attncheck", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_with_its_waivers_it_conforms(folder):
    judged = attncheck("judge", str(folder), f"--waivers={WAIVERS}")
    assert judged.returncode == 0, judged.stdout


def test_every_waiver_is_linked_to_a_minimal_case():
    headings = re.findall(r"^### (.*)$", PAGE, re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9_]+", "-", h.lower()).strip("-") for h in headings}
    linked = {str(waiver.issue) for waiver in read(WAIVERS)}
    assert linked == {f"docs/backends.md#{anchor}" for anchor in anchors}


@pytest.mark.filterwarnings("ignore:Flash attention kernel not used")
@pytest.mark.filterwarnings("ignore:.*attn_mask that requires_grad")
@pytest.mark.parametrize("block", SHOWN, ids=range(len(SHOWN)))
def test_what_the_page_shows_is_printed(block):
    (said,) = re.findall(
        r"print\(.*\)  # (.*?)(?:, and the spec|$)", block, re.MULTILINE
    )
    with redirect_stdout(io.StringIO()) as out:
        exec(compile(block, "docs/backends.md", "exec"), {})
    assert out.getvalue().split() == said.replace("(s)", "").split()


def test_the_page_shows_all_four():
    assert len(SHOWN) == 4
    assert torch.__version__  # the page names the version that constraints.txt pins
    assert "torch==2.13.0" in (HOME / "constraints.txt").read_text("utf-8")

"""What the README shows is what happens: the judge's side."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

README = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
"""Language and text of every block of code, in order."""


def words(text):
    """The words of a text, whatever the lines are; NumPy's version is this one's.

    What is equal bit for bit depends on the machine, and is not shown.
    """
    text = re.sub(r"^ *laws:.*$", "", text, flags=re.MULTILINE)
    return re.sub(r"numpy [\d.]+", f"numpy {np.__version__}", text).split()


def place_of(start):
    """The index of the one block that has a line that starts so."""
    (found,) = (
        place for place, (_, text) in enumerate(BLOCKS) if f"\n{start}" in f"\n{text}"
    )
    return found


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """What the command that the README shows prints about the file that it shows,
    where no more is installed than what it says.
    """
    folder = tmp_path_factory.mktemp("readme")
    _, source = BLOCKS[place_of("# my.py")]
    (folder / "my.py").write_text(source, "utf-8")
    command = "attncheck run my.py:attention --dtype F32"
    assert command in BLOCKS[place_of("attncheck run my.py")][1]
    program = (
        "from attncheck import minilm\n"
        "minilm.find_spec = lambda name: None\n"
        "from attncheck.__main__ import main\n"
        "main()"
    )
    return subprocess.run(
        [sys.executable, "-c", program, *command.split()[1:]],
        cwd=folder,
        capture_output=True,
        text=True,
    )


def test_the_function_shown_is_right_but_for_its_empty_rows(judged):
    assert judged.returncode == 1, judged.stderr
    assert "got nan, expected 0" in judged.stdout
    assert "does not conform" in judged.stdout


def test_the_output_shown_is_what_the_command_prints(judged):
    _, shown = BLOCKS[place_of("attncheck run my.py") + 1]
    assert words(shown) == words(judged.stdout)


@pytest.mark.parametrize("path", re.findall(r"\]\(([^):]+)\)", README))
def test_every_link_leads_somewhere(path):
    file = path.partition("#")[0]
    assert (Path(__file__).parents[2] / file).exists()


def test_what_pages_tell_pip_to_install_is_there():
    root = Path(__file__).parents[2]
    settings = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    pages = [*root.glob("*.md"), *(root / "docs").rglob("*.md")]
    told = re.findall(
        r"pip install [^\n`]*(?:[.]|attnref)\[([\w,]+)\]",
        "\n".join(page.read_text("utf-8") for page in pages),
    )
    extras = {extra for some in told for extra in some.split(",")}
    assert extras
    assert extras <= settings["project"]["optional-dependencies"].keys()


def test_the_commands_shown_are_those_that_there_are():
    from attncheck.cli import app

    names = {c.name or c.callback.__name__ for c in app.registered_commands}
    (said,) = re.findall(
        r"`attncheck --help` shows the other commands: (.*?)\. ", README, re.DOTALL
    )
    assert set(re.findall(r"`(\w+)`", said)) == names - {"run"}

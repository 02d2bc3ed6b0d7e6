"""What pages show: their commands, and blocks of code."""

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "impls/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "conformance").rglob("README.md")),
]
PROGRAMS = ("nox", "attncheck", "pytest", "python", "torchrun")
BLOCK = re.compile(r"^```(.*)\n((?:.*\n)*?)```$", re.MULTILINE)
"""Language, and text."""


def commands(path):
    """The commands of a page, in words: in plain blocks, and within sentences.

    Where a sentence only names one of the judge's, `--help` is added.
    """
    text = path.read_text("utf-8")
    blocks = "".join(block for language, block in BLOCK.findall(text) if not language)
    yield from filter(None, map(command, blocks.splitlines()))
    for span in re.findall(r"`([^`]+)`", BLOCK.sub("", text)):
        words = command(" ".join(span.split())) or ()
        if words[:1] == ("attncheck",) and len(words) == 2:
            yield (*words, "--help")
        elif len(words) > 1:
            yield words


def command(line):
    """The words of a line, if it is a command, whatever is set or installed before."""
    line = re.sub(r"^(pip install nox && |[A-Z_]+=\S+ )+", "", line)
    if re.match(rf"({'|'.join(PROGRAMS)})( |$)", line) and "…" not in line:
        return tuple(shlex.split(line, comments=True))
    return None


def code(start):
    """The one block of code that has these lines first."""
    texts = (path.read_text("utf-8") for path in PAGES)
    blocks = [block for text in texts for _, block in BLOCK.findall(text)]
    (found,) = (block for block in blocks if block.startswith(start))
    return found

"""Text that is the same wherever this project is, and the tokens that MiniLM makes."""

import platform
from functools import cache
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np

from attncheck import minilm
from attncheck.minilm import Tokens

LICENCE = Path(__file__).parents[2] / "LICENSE"

PARAGRAPHS = "paragraphs of the Python language reference, as Python ships it"


@cache
def tokenizer():
    """The model's, without the limit at which it would cut."""
    from tokenizers import Tokenizer

    found = Tokenizer.from_file(str(minilm.folder() / "tokenizer.json"))
    found.no_truncation()
    found.no_padding()
    return found


def licence(length: int) -> Tokens:
    """The first tokens of the project's licence, as one sequence of this length."""
    ids = tokenizer().encode(LICENCE.read_text("utf-8")).ids
    return Tokens(np.array([ids[: length - 1] + ids[-1:]]), np.array([length]))


def paragraphs() -> list[str]:
    """The prose of `pydoc_data.topics`: paragraphs that begin with a capital letter."""
    parts = "\n\n".join(topics[name] for name in sorted(topics)).split("\n\n")
    return [part for part in parts if part[:1].isalpha() and part[0].isupper()]


def lengths() -> list[int]:
    """Of every paragraph its tokens, [CLS] and [SEP] included."""
    return [len(one.ids) for one in tokenizer().encode_batch(paragraphs())]


def version() -> str:
    """That of Python, whose text it is."""
    return platform.python_version()

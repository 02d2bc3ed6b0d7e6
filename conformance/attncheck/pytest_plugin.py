"""Attention cases as pytest items: `pytest --pyargs attncheck --attn-subject my:fn`.

This module is imported by every pytest run of whoever has installed the judge, so it
imports nothing that is not there already, and does nothing before it is asked.  What it
is asked for is in `attncheck.conformance`.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

OPTIONS = {
    "subject": "judge this: a built-in name, package.module:function or "
    "file.py:function; again for more",
    "set": "which cases: smoke or full",
    "dtype": "only this dtype: F64, F32, BF16 or F16; again for more",
    "case": "only cases that match, as decode, decode/F32 or causal*",
    "profile": "precision profile to judge by, not the declared one",
    "framework": "whose arrays the function takes, where its module does not say",
    "accepts": "keywords it takes, where no signature says, or it calls them "
    "otherwise, as in mask=attn_mask,scale",
    "waivers": "TOML file of failures that are expected, each with its reason",
    "timeout": "seconds that one case may take",
    "memory": "GiB that a process of the subject may hold",
    "python": "run the subject with this interpreter",
}
"""Option without its `--attn-` → what it does."""

SEVERAL = ("subject", "dtype")
"""Options that may be given again."""

TYPES = {"timeout": float, "memory": float, "waivers": Path}

CONFORMANCE = Path(__file__).with_name("conformance.py")
"""The file that stands for the cases, so that pytest's own selection works on them."""

_ASKED = re.compile(r"(.*[/\\])?attncheck([./\\]conformance(\.py)?)?[/\\]?(::.*)?")

_FOLDER = pytest.StashKey[TemporaryDirectory]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options that say what `--pyargs attncheck` judges, and how."""
    group = parser.getgroup(
        "attncheck", "attention conformance: --pyargs attncheck --attn-subject TARGET"
    )
    for name, what in OPTIONS.items():
        action = "append" if name in SEVERAL else "store"
        kind = TYPES.get(name, str)
        group.addoption(f"--attn-{name}", action=action, type=kind, help=what)


def pytest_configure(config: pytest.Config) -> None:
    """Says so where a subject is given and nothing asks for it."""
    if config.getoption("attn_subject") and not _is_asked(config):
        raise pytest.UsageError("--attn-subject needs --pyargs attncheck beside it")


def pytest_collect_file(
    file_path: Path, parent: pytest.Collector
) -> pytest.Collector | None:
    """The cases, where pytest was asked for `attncheck`, not just for what is above."""
    is_given = parent.session.isinitpath
    if file_path != CONFORMANCE or not (
        is_given(CONFORMANCE) or is_given(CONFORMANCE.parent)
    ):
        return None
    from attncheck.__main__ import missing

    if (sentence := missing()) is not None:
        raise parent.CollectError(sentence)
    from attncheck.conformance import Conformance

    return Conformance.from_parent(
        parent,
        name=CONFORMANCE.name,
        path=CONFORMANCE,
        nodeid="attncheck.conformance",  # as --pyargs takes it, wherever it lies
    )


def pytest_report_header(config: pytest.Config) -> Iterator[str]:
    """What is not judged for want of the real model."""
    if not _is_asked(config):
        return
    from attncheck.__main__ import missing

    if missing():  # collecting says so
        return
    from attncheck import minilm

    if (why := minilm.available()) is not None:
        yield f"attncheck: no real cases: {why}"


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tells a worker of pytest-xdist where results are shared."""
    if _is_asked(node.config):
        node.workerinput["attncheck_folder"] = str(folder(node.config))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Removes the results."""
    if _FOLDER in config.stash:
        config.stash[_FOLDER].cleanup()


def folder(config: pytest.Config) -> Path:
    """Where all processes of this run of pytest keep results."""
    shared = getattr(config, "workerinput", {}).get("attncheck_folder")
    if shared is not None:
        return Path(shared)
    if _FOLDER not in config.stash:
        config.stash[_FOLDER] = TemporaryDirectory(prefix="attncheck-")
    return Path(config.stash[_FOLDER].name)


def given(config: pytest.Config) -> dict[str, Any]:
    """Option without its `--attn-` → its value, None where it is not given."""
    return {name: config.getoption(f"attn_{name}") for name in OPTIONS}


def _is_asked(config: pytest.Config) -> bool:
    """Whether an argument of pytest names the judge."""
    return any(_ASKED.fullmatch(str(argument)) for argument in config.args)

"""The examples in other languages conform, by their files alone, and a mistake in one
does not."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from attncheck.cli import app
from attncheck.exchange import (
    CASES,
    RESULTS,
    read_cases,
    read_results,
    write_cases,
)
from attncheck.suite import cases

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "conformance" / "examples"
COMPILER, NODE = shutil.which(os.environ.get("CC", "cc")), shutil.which("node")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler: no `cc`")
needs_node = pytest.mark.skipif(NODE is None, reason="no JavaScript: no `node`")

LANGUAGES = [
    pytest.param("c", marks=needs_compiler),
    pytest.param("mjs", marks=needs_node),
]
DTYPES = {"c": ("F32",), "mjs": ("F32", "F64")}
"""What each example computes in."""

CHOSEN = {dtype: cases(dtypes=(dtype,)) for dtype in ("F32", "F64", "BF16")}

MISTAKE = {
    "c": ("n / (c->q.shape[1] / heads)", "n % heads"),
    "mjs": ("Math.floor(head / group)", "head % k.shape[1]"),
}
"""Query heads that share key/value heads in another order."""


def run(*command):
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """Makes of an example the command that runs it, after a change if one is given."""
    made = {}

    def make(language, old="", new=""):
        if (language, new) in made:
            return made[language, new]
        place = tmp_path_factory.mktemp(language)
        source = (EXAMPLES / f"attention.{language}").read_text("utf-8")
        assert old == "" or source.count(old) == 1
        file = place / f"attention.{language}"
        file.write_text(source.replace(old, new) if old else source, "utf-8")
        command = [NODE, str(file)]
        if language == "c":
            strict = ("-std=c99", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
            built = run(COMPILER, *strict, "-o", str(place / "a"), str(file), "-lm")
            assert built.returncode == 0, built.stderr
            command = [str(place / "a")]
        return made.setdefault((language, new), command)

    return make


def attncheck(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.parametrize("language", LANGUAGES)
def test_an_example_conforms(program, tmp_path, language):
    dtypes = [f"--dtype={dtype}" for dtype in DTYPES[language]]
    assert attncheck("export", tmp_path, *dtypes).exit_code == 0
    ended = run(*program(language), tmp_path)
    assert ended.returncode == 0, ended.stderr
    judged = attncheck("judge", tmp_path, "--format", "json")
    assert judged.exit_code == 0, judged.output
    (subject,) = json.loads(judged.stdout)["subjects"]
    assert subject["name"] == f"attention.{language}"
    assert subject["profile"] == "strict"
    assert subject["damage"] == []
    ops = [case.op for case in read_cases(tmp_path)]
    assert subject["counts"] == {
        "pass": ops.count("attention"),
        "not applicable": len(ops) - ops.count("attention"),
    }
    assert subject["clauses_not_judged"] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_an_example_with_a_mistake_does_not_conform(program, tmp_path, language):
    known = [case for case in CHOSEN["F32"] if case.op == "attention"]
    grouped = [case for case in known if "head-order" in case.clauses]
    others = [case for case in known if case.sizes["g"] == 1]  # one order only
    write_cases(tmp_path, grouped + others)
    assert run(*program(language, *MISTAKE[language]), tmp_path).returncode == 0
    ended = attncheck("judge", tmp_path, "--format", "json")
    assert ended.exit_code == 1, ended.output
    (subject,) = json.loads(ended.stdout)["subjects"]
    failing = {failure["case"] for failure in subject["failures"]}
    assert failing == {case.id for case in grouped}
    assert "head-order" in subject["clauses_failing"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_an_example_says_what_it_does_not_do(program, tmp_path, language):
    others = [case for case in CHOSEN["F32"] if case.op != "attention"]
    write_cases(tmp_path, [*others[:2], *CHOSEN["BF16"][:2]])
    assert run(*program(language), tmp_path).returncode == 0
    results = list(read_results(tmp_path).values())
    assert {result.status for result in results} == {"not applicable"}
    assert ["multi-head" in result.message for result in results] == [
        *(True, True, False, False)
    ]


@needs_node
def test_the_example_in_javascript_goes_on_where_it_was_stopped(program, tmp_path):
    write_cases(tmp_path, CHOSEN["F32"][:5])
    run(*program("mjs"), tmp_path)
    whole = (tmp_path / RESULTS).read_bytes()
    for length in (0, 1, len(whole) // 2, len(whole) - 1):
        (tmp_path / RESULTS).write_bytes(whole[:length])
        assert run(*program("mjs"), tmp_path).returncode == 0
        assert (tmp_path / RESULTS).read_bytes() == whole


@needs_compiler
@needs_node
def test_the_results_of_the_program_that_ran_last_count(program, tmp_path):
    write_cases(tmp_path, CHOSEN["F32"][:3])
    for language in ("c", "mjs", "c"):
        assert run(*program(language), tmp_path).returncode == 0
        subjects = {r.subject["name"] for r in read_results(tmp_path).values()}
        assert subjects == {f"attention.{language}"}


DAMAGED = {
    "no folder": lambda folder: shutil.rmtree(folder),
    "another schema": lambda folder: edit(folder / CASES, b"-case/1", b"-case/9"),
    "no file": lambda folder: shutil.rmtree(folder / "cases"),
    "cut short": lambda folder: [
        file.write_bytes(file.read_bytes()[:-1]) for file in folder.glob("cases/*")
    ],
    "empty": lambda folder: [file.write_bytes(b"") for file in folder.glob("cases/*")],
}


def edit(file, old, new):
    file.write_bytes(file.read_bytes().replace(old, new))


@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED)
@pytest.mark.parametrize("language", LANGUAGES)
def test_an_example_ends_with_a_message_on_what_it_cannot_read(
    program, tmp_path, language, damage
):
    folder = tmp_path / "cases"
    write_cases(folder, CHOSEN["F32"][:1])
    damage(folder)
    ended = run(*program(language), folder)
    assert ended.returncode in (1, 2)
    assert ended.stderr


@pytest.mark.parametrize("language", ["c", "mjs"])
def test_an_example_is_short(language):
    text = (EXAMPLES / f"attention.{language}").read_text("utf-8")
    assert len(text.splitlines()) <= 450
    assert max(map(len, text.splitlines())) <= 92


def shown(page):
    """The commands on a page, of its blocks about the examples, in order."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S)
    plain = (block for language, block in blocks if not language)
    about = "".join(block for block in plain if "conformance/examples" in block)
    return [line for line in about.splitlines() if line and line[:4] != "pip "]


@needs_compiler
@pytest.mark.parametrize("page", [EXAMPLES / "README.md", ROOT / "README.md"])
def test_the_commands_shown_do_what_is_said(page, tmp_path):
    (tmp_path / "conformance").symlink_to(ROOT / "conformance")
    judge = tmp_path / "attncheck"
    judge.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m attncheck "$@"\n', "utf-8")
    judge.chmod(0o755)
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    lines = [x for x in shown(page) if NODE or not x.startswith("node ")]
    assert {"attncheck", "cc", "./attention"} <= {line.split()[0] for line in lines}
    for line in lines:
        command = line.replace("--dtype F32", "--dtype F32 --case 'head*'")
        done = subprocess.run(
            command,
            shell=True,
            cwd=tmp_path,
            env=os.environ | {"PATH": path},
            capture_output=True,
            text=True,
        )
        said = done.stdout + done.stderr
        assert done.returncode == ("exit status 1" in line), f"{line}\n{said}"


def test_the_mistake_shown_is_the_one_that_is_judged(tmp_path):
    (line,) = (x for x in shown(EXAMPLES / "README.md") if x.startswith("sed "))
    shell = line.replace("> ", f"> {tmp_path}/")
    subprocess.run(shell, shell=True, cwd=ROOT, check=True)
    source = (EXAMPLES / "attention.c").read_text("utf-8")
    assert (tmp_path / "wrong.c").read_text("utf-8") == source.replace(*MISTAKE["c"])

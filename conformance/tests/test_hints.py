"""A function whose axes are in another order is told so, with what to judge instead."""

import re

import pytest
from typer.testing import CliRunner

from attncheck import minilm
from attncheck.cli import app
from attncheck.hints import looks_misread

SOURCE = """
import numpy as np

def heads_behind(q, k, v, *, attn_mask=None, scale=None):
    g = q.shape[2] // k.shape[2]
    k, v = np.repeat(k, g, 2), np.repeat(v, g, 2)
    scale = q.dtype.type(q.shape[-1] ** -0.5 if scale is None else scale)
    s = np.einsum("bind,bjnd->bnij", q, k) * scale
    s = s if attn_mask is None else np.where(attn_mask, s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    return np.einsum("bnij,bjne->bine", p / p.sum(-1, keepdims=True), v)

def length_first(q, k, v):
    q, k, v = (x.swapaxes(0, 1) for x in (q, k, v))
    return heads_behind(q, k, v).swapaxes(0, 1)

def zeros(q, k, v):
    return np.zeros(q.shape[:-1] + v.shape[-1:], q.dtype)

def turned(q, k, v):
    return zeros(q, k, v).swapaxes(1, 2)
"""

CASES = ("--case", "[dpl][elo]*[gne]/*", "--dtype", "F32")


@pytest.fixture(autouse=True)
def run(tmp_path, monkeypatch):
    """Runs the command in a folder with the functions, without the real model."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(minilm, "available", lambda: "left out by the test")
    (tmp_path / "mine.py").write_text(SOURCE, "utf-8")

    def command(target):
        return CliRunner().invoke(app, ["run", target, *CASES])

    return command


@pytest.mark.parametrize(
    ("name", "layout", "call"),
    [
        (
            "heads_behind",
            "b i n d",
            "(q, k, v, *, mask=None, scale=None): "
            "heads_behind(q, k, v, attn_mask=mask, scale=scale)",
        ),
        ("length_first", "i b n d", "(q, k, v): length_first(q, k, v)"),
    ],
)
def test_what_is_said_to_be_judged_instead_conforms(run, tmp_path, name, layout, call):
    ended = run(f"mine.py:{name}")
    assert ended.exit_code == 1
    assert f"mine.py:{name} takes q, k and v as `{layout}`" in ended.stderr
    program = ended.stderr.partition("judge this instead:")[2]
    lines = [line[4:] for line in program.splitlines()]
    head, given = call.split(": ")
    assert f"def rearranged{head}:" in lines
    assert f"    output = {given}" in lines
    (tmp_path / "instead.py").write_text("import numpy\n" + "\n".join(lines), "utf-8")
    ended = run("instead.py:rearranged")
    assert ended.exit_code == 0, ended.output
    assert ended.stderr == ""


def test_who_asks_a_function_for_an_operation_is_told_of_subjects(tmp_path):
    def command(target, pattern):
        return CliRunner().invoke(app, ["run", target, "--case", pattern])

    ended = command("mine.py:zeros", "linear/*")
    assert ended.exit_code == 1
    assert "not applicable: has no linear attention (4)" in ended.stdout
    (given,) = re.findall(r"attncheck\.Subject with (.*…})", ended.stderr)
    subject = (
        "\nimport attnref.numpy as room\n"
        "from attnref.numpy.variants import linear_attention\n"
        "from attncheck import Subject\n"
        'subject = Subject(call=room.attention, framework="numpy", name="mine", '
        f"accepts=frozenset(), {given.replace('…', 'linear_attention')})\n"
    )
    (tmp_path / "mine.py").write_text(SOURCE + subject, "utf-8")
    ended = command("mine.py:subject", "linear/*")
    assert (ended.exit_code, ended.stderr) == (0, "")
    assert "operations" not in command("mine.py:zeros", "softcap/F32").stderr


@pytest.mark.parametrize("target", ["mine.py:zeros", "attnref.numpy"])
def test_nothing_is_said_where_the_axes_are_right(run, target):
    assert "takes q, k and v" not in run(target).stderr


def test_an_output_with_its_axes_in_another_order_is_told_so(run):
    shown = " ".join(run("mine.py:turned").stdout.split())
    assert re.search(
        r"`output` is float32 \(.*\): its axes are b i n e, must be b n i e", shown
    )


@pytest.mark.parametrize(
    ("counts", "misread"),
    [
        ({"pass": 10}, False),
        ({"pass": 1, "fail": 5, "error": 4, "not applicable": 90}, True),
        ({"pass": 6, "fail": 5}, False),
        ({"fail": 3, "crash": 30}, False),
        ({"error": 3}, True),
        ({}, False),
    ],
)
def test_only_where_most_cases_are_wrong_is_it_looked_at(counts, misread):
    assert looks_misread(counts) is misread

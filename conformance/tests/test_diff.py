"""Wherein functions differ is said, and the code between them does what it says."""

import io
import json
import random
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from rich.console import Console

from attncheck import frameworks
from attncheck.calling import calling_of
from attncheck.diff import diff
from attncheck.diff.adapter import write_adapter
from attncheck.diff.code import moves, moves_back, wrapped
from attncheck.diff.needs import NoAdapterError
from attncheck.fingerprint import PROBES, Fingerprint
from attncheck.fingerprint.function import Function
from attncheck.fingerprint.probes import read
from attncheck.report import print_diff
from attncheck.target import find
from attnref.spec import SPEC

from .conventional import attention_under
from .rooms.evidence import fingerprint_in
from .test_fingerprint import FIELDS, ONE_CHANGED, consistent, values


def measured(call, home, keywords=None):
    """The fingerprint of a NumPy function but for its precision, in this process."""
    calling = calling_of(call, keywords or {}, home)
    f = Function(call, frameworks.adapter("numpy"), calling)
    readings = {name: read(f, name) for name in PROBES}
    if readings["layout"].measured:
        calling = replace(calling, layout=readings["layout"].value)
    return Fingerprint(
        name=home,
        framework="numpy",
        version="numpy",
        home=home,
        calling=calling,
        readings=readings,
        profiles={},
    )


@pytest.fixture
def compared(monkeypatch):
    """The difference of two functions, the code between them run in this process."""
    module = ModuleType("of_a_test")
    monkeypatch.setitem(sys.modules, "of_a_test", module)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def compare(a, b):
        module.attend = a
        one, other = measured(a, "of_a_test:attend"), measured(b, "theirs:attend")
        return diff(one, other, lambda t, it: measured(find(t), t, it.keywords))

    return compare


def made(name, value):
    return attention_under(consistent(vars(replace(SPEC, **{name: value}))))


ADAPTED = {
    "layout",
    "scale",
    "heads",
    "mask_true",
    "causal",
    "mask_and_causal",
    "window",
    "empty_row",
    "empty_row_bias",
    "lse",
    "lse_empty",
    "dropout_rescale",
}
"""Fields in which any value is made of any other by code around a call."""

TO_SPEC = {"scale_zero", "scale_negative", "value_width", "bias"} | {
    "nan_blocked_k",
    "nan_blocked_v",
}
"""Fields in which code around a call makes the spec's value of another."""

FROM_SPEC = {"bias", "scale_zero", "scale_negative", "mask_float", "lse_dtype"}
"""Fields in which it makes another of the spec's, if anybody wants that."""

NOBODY_WANTS = {
    ("heads", None),
    ("mask_true", None),
    ("mask_and_causal", "refuse"),
    ("window", None),
    ("empty_row", "refuse"),
    ("empty_row_bias", "refuse"),
    ("scale_zero", "nan"),
    ("scale_zero", "refuse"),
    ("scale_negative", "nan"),
    ("scale_negative", "refuse"),
    ("bias", None),
    ("lse", None),
    ("lse_dtype", "float32"),
}
NOBODY_CAN = {
    ("layout", "n i d"),
    ("layout", "i n d"),
    ("layout", "i d"),
    ("bias", None),
    ("lse", None),
}


@pytest.mark.parametrize(("name", "value"), ONE_CHANGED)
def test_the_spec_becomes_what_differs_from_it(compared, name, value):
    found = compared(attention_under(SPEC), made(name, value))
    row = next(one for one in found.differences if one.field == name)
    can = name in ADAPTED | FROM_SPEC and (name, value) not in NOBODY_WANTS
    assert row.adapted == can, (row.why_not, found.no_adapter)
    assert row.adapted or row.why_not


@pytest.mark.parametrize(("name", "value"), ONE_CHANGED)
def test_what_differs_from_the_spec_becomes_it(compared, name, value):
    found = compared(made(name, value), attention_under(SPEC))
    row = next(one for one in found.differences if one.field == name)
    can = name in ADAPTED | TO_SPEC and (name, value) not in NOBODY_CAN
    assert row.adapted == can, (row.why_not, found.no_adapter)
    assert row.adapted or row.why_not or found.no_adapter


@pytest.mark.parametrize("seed", range(40))
def test_any_two_become_alike_as_far_as_code_can_make_them(compared, seed):
    """Whatever the code is meant to do, it does: or `no_adapter` says where not."""
    rng = random.Random(seed)

    def drawn():
        c = {n: rng.choice([getattr(SPEC, n), *values(n)]) for n in FIELDS}
        return consistent(c | {"layout": rng.choice(["b n i d", "b i n d", "i b n d"])})

    found = compared(attention_under(drawn()), attention_under(drawn()))
    assert found.adapter is not None, found.no_adapter
    assert all(one.adapted or one.why_not for one in found.differences)


def test_windows_of_every_form_become_pairs(compared):
    for form in ("either", "number", "left"):
        b = attention_under(replace(SPEC, causal="lower-right"), window_form=form)
        found = compared(attention_under(SPEC), b)
        judged = found.judged.readings["window"]
        assert judged.value == "inclusive"
        assert judged.detail == found.b.readings["window"].detail


def test_alike_functions_have_no_difference(compared):
    found = compared(attention_under(SPEC), attention_under(SPEC))
    assert found.differences == ()
    assert found.adapter is None


def test_code_that_fails_is_not_shown(monkeypatch):
    a, b = attention_under(SPEC), made("empty_row", "mean")
    one, other = measured(a, "of_a_test:attend"), measured(b, "theirs:attend")
    found = diff(one, other, lambda target, adapter: one)  # as if it did nothing
    assert found.adapter is None
    assert "does not do as theirs:attend in empty_row" in found.no_adapter


def test_what_cannot_be_imported_has_no_adapter():
    a, b = attention_under(SPEC), made("causal", "lower-right")
    other = measured(b, "theirs:attend")
    for home in (None, "my-kernel.py:attend"):
        one = replace(measured(a, "of_a_test:attend"), home=home)
        with pytest.raises(NoAdapterError, match="no import statement can name"):
            write_adapter(one, other)


def test_what_cannot_be_called_has_no_adapter():
    one = measured(lambda q, k, v: q.sum(), "of_a_test:attend")
    with pytest.raises(NoAdapterError, match="not known how 'of_a_test:attend' is"):
        write_adapter(one, one)


def test_lines_are_short_enough_to_be_shown(compared):
    a = made("value_width", "same")
    c = consistent({**vars(SPEC), "layout": "i b n d", "heads": "gh", "scale": "one"})
    found = compared(a, attention_under(c))
    lines = found.adapter.source.splitlines()
    assert max(map(len, lines)) <= 76


@pytest.mark.parametrize("axes", ["b n i d", "b i n d", "i b n d", "n i d", "i n d"])
def test_axes_are_moved_there_and_back(axes):
    sizes = dict(zip("bnid", (2, 3, 5, 7), strict=True))
    x = np.random.default_rng(0).random([sizes[axis] for axis in axes.split()])
    inside = eval(f"x{moves(axes)}")
    assert inside.shape == tuple(sizes[a] if a in axes else 1 for a in "bnid")
    assert (eval(f"inside{moves_back(axes)}") == x).all()


def test_a_call_takes_as_few_lines_as_there_is_room_for():
    assert wrapped("f(", ["a", "b=1"], ")") == "f(a, b=1)"
    middle = wrapped("f" * 60 + "(", ["a" * 20, "b"], ")[0]")
    assert middle.splitlines()[1:] == ["    " + "a" * 20 + ", b", ")[0]"]
    long = wrapped("f(", ["a" * 40, "b" * 40], ")")
    assert long.splitlines() == ["f(", f"    {'a' * 40},", f"    {'b' * 40},", ")"]


# --- the command ----------------------------------------------------------------------

MINE = """
import numpy as np

def attention(query, key, value, allowed=None, sm_scale=None):
    scores = np.einsum("binc,bjnc->bnij", query, key) * (sm_scale or 1.0)
    if allowed is not None:
        scores = np.where(allowed, -1e9, scores)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p = p / p.sum(-1, keepdims=True)
    return np.einsum("bnij,bjne->bine", p, value).astype(query.dtype)
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "mine.py").write_text(MINE, "utf-8")
    return tmp_path


def attncheck(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "attncheck", "diff", *arguments],
        capture_output=True,
        text=True,
    )


def test_the_command_shows_the_differences_and_code_that_runs(place):
    arguments = ("lib/mine.py:attention", "attnref.numpy", "--map-a", "mask=allowed")
    ended = attncheck(*arguments, "--format", "json")
    assert ended.returncode == 1, ended.stderr
    document = json.loads(ended.stdout)
    rows = {row["field"]: row for row in document["differences"]}
    adapted = {field for field, row in rows.items() if row["adapted"]}
    assert adapted == {
        "layout",
        "scale",
        "scale_zero",
        "heads",
        "mask_true",
        "empty_row",
        "nan_blocked_v",
    }
    assert rows["softcap"]["why_not"] == "has no known keyword for a softcap"
    adapter = document["adapter"]
    assert "from mine import attention" in adapter["source"]
    assert {"softcap", "bias"} <= set(adapter["left_out"])
    assert adapter["fingerprint"]["profiles"]["F32"]["value"] == "strict"


def test_the_command_prints_words(place):
    ended = attncheck(
        "lib/mine.py:attention", "attnref.numpy", "--map-a", "mask=allowed"
    )
    assert ended.returncode == 1, ended.stderr
    assert "wherein they differ" in ended.stdout
    assert "def like_attention_steps(" in ended.stdout


def test_the_same_function_does_not_differ_from_itself(place):
    ended = attncheck("attnref.numpy", "attnref.numpy")
    assert ended.returncode == 0, ended.stderr
    assert "no difference" in ended.stdout


def test_trouble_is_status_2(place):
    ended = attncheck("attnref.numpy", "lib/mine.py:attentoin")
    assert ended.returncode == 2
    assert "it has attention" in ended.stderr


# --- the pages ------------------------------------------------------------------------

ROOT = Path(__file__).parents[2]


def blocks(page):
    """The blocks of code of a page."""
    text = (ROOT / page).read_text("utf-8")
    return re.findall(r"^```\w*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.fixture
def stored():
    """What `nox -s diff` left."""
    return json.loads((ROOT / "docs" / "evidence" / "diff.json").read_text("utf-8"))


def test_the_readme_shows_the_differences_that_were_measured(stored):
    console = Console(file=io.StringIO(), width=92)
    print_diff(stored, console)
    table, _, _ = console.file.getvalue().partition("a call of A")
    (shown,) = (block for block in blocks("README.md") if "wherein" in block)
    assert shown.split() == table.split()


def test_the_page_shows_the_code_that_was_run(stored):
    assert stored["adapter"]["source"] in blocks("docs/fingerprint.md")


def test_the_code_that_was_run_is_the_code_that_would_be_written(stored):
    a, b = (fingerprint_in(stored[letter]) for letter in "ab")
    assert write_adapter(a, b).source == stored["adapter"]["source"]

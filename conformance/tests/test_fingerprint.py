"""Every convention is told from every other, by probes of functions that follow it."""

import json
import math
import re
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import get_type_hints

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attncheck import frameworks
from attncheck.calling import PARTS, calling_of
from attncheck.case import DTYPES
from attncheck.fingerprint import NAMES, PROBES, fingerprint
from attncheck.fingerprint.function import LAYOUTS, Function
from attncheck.fingerprint.probes import read
from attncheck.fingerprint.words import WORDS, phrase
from attncheck.signature import read_parameters
from attncheck.subject import SubjectError
from attnref.spec import SPEC, Conventions
from attnref.spec.conventions import _choices

from .conventional import attention_under

FREE = {
    "layout": LAYOUTS[1:],
    "fill": (-1e4, -1e9, -3.0e38, -0.7 * float(np.finfo(np.float32).max)),
    "lse_empty": (0.0, -1e30),
    "dropout_rescale": (True, False),
    "sinks": (True, False),
    "weight_layout": (),
}
"""Values of the fields whose choices are not a list."""


def values(name):
    """Every value of a field but the spec's."""
    choices = FREE.get(name) or _choices(get_type_hints(Conventions)[name])
    return [v for v in choices if v != getattr(SPEC, name) and not isinstance(v, type)]


FIELDS = [field.name for field in fields(Conventions)]
ONE_CHANGED = [(name, value) for name in FIELDS for value in values(name)]


def consistent(drawn):
    """Conventions that one implementation can have, by fewest further changes."""
    c = dict(drawn)
    if c["float64"] == "float32" or c["softmax_dtype"] == "float32":
        c |= {"float64": "float32", "softmax_dtype": "float32"}
    if "n" not in c["layout"]:
        c["heads"] = None
    if c["mask_true"] is None and c["mask_float"] == "refuse":
        c["mask_float"] = "add"
    if c["mask_float"] == "add" and c["bias"] is None:
        c["bias"] = "after_scale"
    if c["bias"] == "before_scale" and c["softcap"] == "before_bias":
        c["softcap"] = "after_bias"
    if c["scale"] == "required":
        for name in ("scale_zero", "scale_negative"):
            c[name] = "honoured" if c[name] == "default" else c[name]
    return Conventions(**c)


def probed(call, framework="numpy"):
    """Field → reading, of a function in this process."""
    f = Function(call, frameworks.adapter(framework), calling_of(call, {}, "it"))
    return {name: read(f, name) for name in PROBES}


def wrong(readings, conventions):
    """What was read and is not so, floats as far as float32 tells."""

    def same(one, other):
        if isinstance(one, float) and isinstance(other, float):
            return math.isclose(one, other, rel_tol=1e-5)
        return one == other and type(one) is type(other)

    return {
        name: (one.value, one.shown)
        for name, one in readings.items()
        if one.measured and not same(one.value, getattr(conventions, name))
    }


UNMEASURED = {
    ("layout", "i d"): {"weights_heads"},
    ("mask_true", None): {"mask_and_causal", "empty_row", "lse_empty"},
    ("empty_row", "refuse"): {"lse_empty"},
    ("bias", None): {"softcap", "empty_row_bias"},
    ("lse", None): {"lse_empty", "lse_dtype"},
    ("weights", None): {"weights_heads"},
}
"""A changed convention → the fields that then cannot be seen."""


def test_the_spec_itself_is_read_in_every_field():
    readings = probed(attention_under(SPEC))
    assert wrong(readings, SPEC) == {}
    assert all(one.measured for one in readings.values())


@pytest.mark.parametrize(("name", "value"), ONE_CHANGED)
def test_a_changed_convention_is_read_and_so_are_all_others(name, value):
    conventions = consistent(vars(replace(SPEC, **{name: value})))
    readings = probed(attention_under(conventions))
    assert wrong(readings, conventions) == {}
    unmeasured = {name for name, one in readings.items() if not one.measured}
    assert unmeasured == UNMEASURED.get((name, value), set())


@settings(max_examples=60, deadline=None)
@given(
    st.fixed_dictionaries(
        {name: st.sampled_from([getattr(SPEC, name), *values(name)]) for name in FIELDS}
    )
)
def test_of_any_conventions_together_nothing_wrong_is_read(drawn):
    conventions = consistent(drawn)
    assert wrong(probed(attention_under(conventions)), conventions) == {}


def test_there_is_a_probe_and_a_word_for_every_field():
    assert set(PROBES) == set(WORDS) == set(FIELDS)
    assert all(probe.__doc__ for probe in PROBES.values())
    for name, value in ONE_CHANGED:
        assert phrase(name, value)
        assert phrase(name, getattr(SPEC, name)) != phrase(name, value)


@pytest.mark.parametrize("alignment", ["upper-left", "lower-right"])
def test_a_causal_flag_alone_blocks_keys(alignment):
    c = replace(SPEC, causal=alignment, mask_true=None)
    readings = probed(attention_under(c, without=("mask", "window")))
    assert readings["causal"].value == alignment
    assert readings["fill"].value == -math.inf
    upper = alignment == "upper-left"  # what it blocks for all, and what for one query
    assert readings["nan_blocked_k"].measured == upper
    assert readings["empty_row"].measured != upper


@pytest.mark.parametrize("ends", ["inclusive", "exclusive"])
@pytest.mark.parametrize(
    ("form", "pair", "number"),
    [
        ("pair", True, None),
        ("either", True, "same"),
        ("number", False, "same"),
        ("left", False, "none"),
    ],
)
def test_a_window_may_be_a_pair_or_a_number(ends, form, pair, number):
    c = replace(SPEC, window=ends)
    reading = probed(attention_under(c, window_form=form))["window"]
    assert reading.value == ends
    assert (reading.detail["pair"], reading.detail["number"]) == (pair, number)


def test_a_window_has_the_alignment_that_it_shows():
    c = replace(SPEC, causal="lower-right")
    assert probed(attention_under(c))["window"].detail["aligned"] == "lower-right"


def naive(q, k, v, mask=None):
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]).astype(q.dtype)
    scores = scores if mask is None else np.where(mask, scores, -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True) @ v


def of_both_paths(q, k, v, mask=None, is_causal=False):
    if is_causal:
        seen = np.tri(q.shape[2], k.shape[2], dtype=bool)
        mask = seen if mask is None else mask
        if v.shape[-1] != q.shape[-1]:
            raise ValueError("no such width with is_causal")
    return naive(q, k, v, mask)


def test_what_depends_on_the_path_is_shown():
    reading = probed(of_both_paths)["mask_and_causal"]
    assert reading.value == "mask"
    assert "values of another width: ValueError: no such width" in reading.shown


def ignores_the_cap(q, k, v, softcap=None):
    return naive(q, k, v)


def half_a_scale(q, k, v):
    return naive(q / 2, k, v)


def adds_booleans(q, k, v, mask=None):
    return naive(q + 0 * q, k, v) if mask is None else _added(q, k, v, mask)


def _added(q, k, v, mask):
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]) + mask
    p = np.exp(scores - scores.max(-1, keepdims=True))
    return (p / p.sum(-1, keepdims=True) @ v).astype(q.dtype)


def wrong_shape(q, k, v):
    return naive(q, k, v).sum()


@pytest.mark.parametrize(
    ("call", "name", "says"),
    [
        (ignores_the_cap, "softcap", "are not those of c·tanh(s/c) at any place"),
        (half_a_scale, "scale", "multiplied by 0.189 at width 7"),
        (half_a_scale, "bias", "has no known keyword for a bias"),
        (wrong_shape, "layout", "not the mean of the values"),
        (wrong_shape, "float64", "needs the scale, which was not measured"),
        (naive, "causal", "has no known keyword for a causal flag"),
        (naive, "scale_zero", "has no known keyword for a scale"),
        (adds_booleans, "mask_true", "adds a boolean mask as 1 and 0"),
        (adds_booleans, "empty_row", "takes no boolean mask"),
    ],
)
def test_what_no_convention_describes_is_not_called_one(call, name, says):
    reading = probed(call)[name]
    assert reading.value is None
    assert says in reading.shown


def rounds_to_tf32(x):
    bits = x.astype(np.float32).view(np.int32)
    return ((bits + (1 << 12)) & ~((1 << 13) - 1)).view(np.float32)


def at_precision(kind):
    """A naive attention that rounds what a profile lets it round."""

    def attention(q, k, v):
        storage = q.dtype
        wide = [x.astype(np.float32) for x in (q, k, v)]
        q, k, v = map(rounds_to_tf32, wide) if kind == "tf32" else wide

        def stored(x, kinds):
            return x.astype(storage).astype(np.float32) if kind in kinds else x

        scores = q @ k.swapaxes(-1, -2) * np.float32(q.shape[-1] ** -0.5)
        scores = stored(scores, ["eager"])
        p = np.exp(scores - scores.max(-1, keepdims=True))
        p = stored(p / p.sum(-1, keepdims=True), ["eager", "tensor-core"])
        return (p @ v).astype(np.float64 if kind == "wide" else storage)

    return attention


@pytest.mark.parametrize(
    ("kind", "dtype", "profile"),
    [
        ("strict", "F32", "strict"),
        ("strict", "BF16", "strict"),
        ("strict", "F16", "strict"),
        ("strict", "F64", None),  # float32 inside
        ("tf32", "F32", "tf32"),
        ("tensor-core", "BF16", "tensor-core"),
        ("tensor-core", "F16", "tensor-core"),
        ("eager", "BF16", "eager"),
        ("eager", "F16", "eager"),
        ("wide", "F32", None),
    ],
)
def test_the_first_profile_that_holds_is_found(kind, dtype, profile):
    call = at_precision(kind)
    f = Function(call, frameworks.adapter("numpy"), calling_of(call, {}, "it"))
    assert read(f, "layout").measured
    reading = read(f, dtype)
    assert reading.measured
    assert reading.value == profile, reading.shown


# --- how a function is called ---------------------------------------------------------


def known(q, k, v, *, attn_mask=None, is_causal=False, sm_scale=None, extra=3): ...
def two_masks(q, k, v, mask=None, attn_mask=None): ...
def unknown(q, k, v, allowed=None): ...
def needs(q, k, v, heads): ...
def two(q, k): ...
def star(*arrays, scale=None): ...
def anything(query, key, value, **options): ...


def test_keywords_are_recognised_and_the_rest_is_left_alone():
    calling = calling_of(known, {}, "it")
    assert calling.keywords == {
        "mask": "attn_mask",
        "causal": "is_causal",
        "scale": "sm_scale",
    }
    assert calling.ignored == ("extra",)
    assert calling_of(anything, {}, "it").arrays == ("query", "key", "value")
    assert calling_of(star, {}, "it").keywords == {"scale": "scale"}


def test_a_declaration_says_what_a_name_does_not():
    assert calling_of(unknown, {"mask": "allowed"}, "it").keywords["mask"] == "allowed"
    assert calling_of(two_masks, {"mask": "mask"}, "it").keywords == {"mask": "mask"}
    assert calling_of(anything, {"bias": "b"}, "it").keywords == {"bias": "b"}


@pytest.mark.parametrize(
    ("call", "declared", "says"),
    [
        (two_masks, {}, "may be mask or attn_mask: say which, as in --map mask=mask"),
        (unknown, {"mask": "alowed"}, "'alowed', but allowed: did you"),
        (unknown, {"maks": "allowed"}, "part of a call .* did you mean 'mask'"),
        (needs, {}, "needs `heads`: say which part of a call it is"),
        (two, {}, r"cannot be called as f\(q, k, v\): .* are \(q, k\)"),
    ],
)
def test_a_function_that_cannot_be_called_is_a_sentence(call, declared, says):
    with pytest.raises(SubjectError, match=says):
        calling_of(call, declared, "it")


def test_a_docstring_that_begins_with_a_signature_is_read():
    class BuiltIn:
        __name__ = "attend"
        __signature__ = "none"

        def __call__(self): ...

    one = BuiltIn()
    one.__doc__ = """
attend(query, key, value, attn_mask=None, *, scale=None,
       is_causal=False) -> Tensor:  and so on"""
    parameters = read_parameters(one)
    assert [p.name for p in parameters][2:] == [
        "value",
        "attn_mask",
        "scale",
        "is_causal",
    ]
    assert [p.default is p.empty for p in parameters] == [True] * 3 + [False] * 3
    for text in ("attend(q, k, ->) -> x", "no signature", None):
        one.__doc__ = text
        assert read_parameters(one) is None


# --- in a process ---------------------------------------------------------------------

SOURCE = """
import os, sys, time
import numpy as np
from attncheck import Subject

def right(q, k, v, mask=None, scale=None):
    print("noise on stdout")
    scores = q @ k.swapaxes(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    scores = scores if mask is None else np.where(mask, scores, -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True, initial=-1e30))
    return p / np.maximum(p.sum(-1, keepdims=True), 1e-30) @ v

def dies(q, k, v, mask=None, scale=None):
    if scale == 0:
        os.kill(os.getpid(), 11)
    return right(q, k, v, mask, scale)

def hangs(q, k, v, mask=None, scale=None):
    if scale == 0:
        time.sleep(600)
    return right(q, k, v, mask, scale)

def always_dies(q, k, v):
    os._exit(3)

def blocks(q, k, v, forbidden=None):
    return right(q, k, v, None if forbidden is None else ~forbidden)

mine = Subject(call=blocks, framework="numpy", name="mine", accepts=frozenset(),
               keywords={"mask": "forbidden"})
"""


@pytest.fixture
def target(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(SOURCE, "utf-8")
    return lambda name: f"mine.py:{name}"


def test_a_lost_probe_takes_no_other_with_it(target):
    found = fingerprint(target("dies"))
    lost = found.readings["scale_zero"]
    assert not lost.measured
    assert "SIGSEGV" in lost.shown
    assert found.readings["mask_true"].value == "attend"
    assert found.known["float64"] == "float64"


def test_an_infinite_value_comes_back_from_the_process(target):
    found = fingerprint(target("right"))
    assert found.readings["fill"].value == -math.inf
    assert found.conventions.fill == -math.inf


def test_a_probe_that_hangs_is_ended(target):
    found = fingerprint(target("hangs"), timeout=2)
    assert "no result within 2 s" in found.readings["scale_zero"].shown
    assert found.readings["scale_negative"].value == "honoured"


def test_after_many_losses_in_a_row_the_rest_is_not_run(target, monkeypatch):
    monkeypatch.setattr("attncheck.crew.PATIENCE", 1)
    found = fingerprint(target("dies"))
    last = list(found.profiles.values())[-1]
    assert last.shown == "crash: not run: 1 processes in a row were lost"
    assert found.readings["scale"].measured


def test_of_a_function_that_always_ends_its_process_nothing_is_known(target):
    found = fingerprint(target("always_dies"))
    layout = found.readings["layout"]
    assert layout.shown == "crash: the process ended itself with exit status 3"
    assert not any(one.measured for one in found.profiles.values())


@pytest.mark.parametrize(
    ("name", "keywords"), [("blocks", ["mask=forbidden"]), ("mine", [])]
)
def test_a_mapping_comes_from_the_caller_or_the_subject(target, name, keywords):
    keywords = dict(pair.split("=") for pair in keywords)
    found = fingerprint(target(name), keywords=keywords)
    assert found.readings["mask_true"].value == "block"
    assert found.calling.keywords == {"mask": "forbidden"}


def attncheck(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "attncheck", "fingerprint", *arguments],
        capture_output=True,
        text=True,
    )


def test_the_command_prints_json(target):
    ended = attncheck(target("right"), "--format", "json")
    assert ended.returncode == 0, ended.stderr
    document = json.loads(ended.stdout)
    assert list(document["conventions"]) == list(PROBES)
    assert list(document["profiles"]) == list(DTYPES)
    row = document["conventions"]["empty_row"]
    assert (row["value"], row["measured"], row["spec"]) == ("zero", True, "zero")
    assert document["conventions"]["fill"]["value"] == "-inf"
    assert document["calling"]["keywords"] == {"mask": "mask", "scale": "scale"}


def test_the_command_prints_a_table_and_what_was_not_measured(target):
    ended = attncheck(target("right"))
    assert ended.returncode == 0, ended.stderr
    assert "may attend" in ended.stdout
    assert "not measured" in ended.stdout
    assert f"{len(NAMES)} probes took" in ended.stdout


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["mine.py:always_dies"], 1, "exit status 3"),
        (["mine.py:none"], 2, "has no 'none'"),
        (["mine.py:right", "--map", "mask"], 2, "--map is like mask=allowed"),
        (["mine.py:right", "--map", "mask=masc"], 2, "has no keyword 'masc'"),
        (["mine.py:right", "--framework", "nympy"], 2, "did you mean 'numpy'?"),
    ],
)
def test_trouble_is_a_status_and_a_sentence(target, arguments, status, says):
    ended = attncheck(*arguments)
    assert ended.returncode == status
    assert says in " ".join((ended.stdout + ended.stderr).split())


def test_every_part_of_a_call_has_a_known_keyword_of_its_own():
    words = [word for known in PARTS.values() for word in known]
    assert len(words) == len(set(words))


def test_the_page_lists_every_probe_and_every_part():
    page = (Path(__file__).parents[2] / "docs" / "fingerprint.md").read_text("utf-8")
    rows = set(re.findall(r"^\| `(\w+)` \| (.*) \|$", page, re.MULTILINE))
    probes = {(n, " ".join(p.__doc__.split())) for n, p in PROBES.items()}
    parts = {(n, ", ".join(f"`{w}`" for w in words)) for n, words in PARTS.items()}
    assert rows == probes | parts

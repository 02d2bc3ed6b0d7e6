"""A target is found and its signature read, or its author is told what is wrong."""

import subprocess
import sys

import pytest

from attncheck import frameworks
from attncheck.budget import PROFILES
from attncheck.frameworks import NAMES
from attncheck.subject import DEFAULT_PROFILE, KEYWORDS, Subject, SubjectError
from attncheck.target import ROOMS, load

MODULE = """
import numpy as np

from attncheck.subject import Subject

def plain(q, k, v, *, mask=None, scale=None): ...
def three(q, k, v): ...
def positional_only(q, k, v, /, *, bias=None): ...
def star(*arrays, softcap=None): ...
def extra(q, k, v, mask=None, causal=False): ...
def renamed(query, key, value, attn_mask=None, causal=False, *, scale=None, rate=0): ...
def two(q, k): ...
def needs(q, k, v, heads): ...
def anything(q, k, v, **options): ...
subject = Subject(call=plain, framework="numpy", name="mine", accepts=frozenset())
number = 3
"""


@pytest.fixture
def target(tmp_path, monkeypatch):
    """Makes a target of a function's name and a module's source."""
    monkeypatch.setattr(sys, "modules", sys.modules.copy())

    def write(name, source=MODULE):
        file = tmp_path / "targets_of_a_test.py"
        file.write_text(source, "utf-8")
        return f"{file}:{name}"

    return write


@pytest.mark.parametrize(
    ("name", "accepts"),
    [
        ("plain", {"mask", "scale"}),
        ("three", set()),
        ("positional_only", {"bias"}),
        ("star", {"softcap"}),
        ("extra", {"mask"}),
    ],
)
def test_the_signature_says_what_a_function_accepts(target, name, accepts):
    subject = load(target(name))
    assert subject.accepts == accepts
    assert subject.framework == "numpy"
    assert subject.name == target(name)
    assert subject.returns == ("output",)
    assert subject.profile == DEFAULT_PROFILE


def test_accepts_takes_the_place_of_the_signature(target):
    assert load(target("anything"), accepts="mask, scale").accepts == {"mask", "scale"}
    assert load(target("plain"), accepts="").accepts == set()


def test_accepts_says_what_a_function_calls_an_option(target):
    subject = load(target("renamed"), accepts="mask=attn_mask, scale")
    assert subject.accepts == {"mask", "scale"}
    assert subject.keywords == {"mask": "attn_mask"}
    assert subject.ignored == ("causal", "rate")


def test_a_keyword_that_a_function_does_not_have_is_an_error_that_names_those_it_has(
    target,
):
    with pytest.raises(
        SubjectError, match=r"no keyword 'attn_msk', but attn_mask, causal, .*: did you"
    ):
        load(target("renamed"), accepts="mask=attn_msk")
    assert load(target("anything"), accepts="mask=m").keywords == {"mask": "m"}


@pytest.mark.parametrize(
    ("name", "ignored"),
    [
        ("plain", ()),
        ("star", ()),
        ("extra", ("causal",)),
        ("renamed", ("attn_mask", "causal", "rate")),
    ],
)
def test_what_is_never_given_is_known(target, name, ignored):
    assert load(target(name)).ignored == ignored


def test_a_subject_is_taken_as_it_is(target):
    subject = load(target("subject"))
    assert isinstance(subject, Subject)
    assert subject.name == "mine"


@pytest.mark.parametrize("profile", PROFILES)
def test_a_given_profile_takes_the_place_of_the_declared_one(target, profile):
    for name in ("plain", "subject"):
        assert load(target(name), profile=profile).profile == profile
    assert load("attnref.numpy", profile=profile).profile == profile


def test_a_function_of_an_installed_module_is_found():
    subject = load("attnref.numpy:attention")
    assert subject.accepts == set(KEYWORDS)
    assert subject.framework == "numpy"


def test_a_file_may_have_dataclasses(target):
    source = (
        "from __future__ import annotations\n"
        "import dataclasses\nimport numpy\n"
        "@dataclasses.dataclass\nclass Options:\n    scale: float\n"
        "def attention(q, k, v): ...\n"
    )
    assert load(target("attention", source)).accepts == set()


def test_every_room_is_built_in_and_the_numpy_room_shows_all_its_results():
    assert set(ROOMS) == {
        f"attnref.{name}{part}" for name in NAMES for part in ("", ".blocked")
    }
    room = load("attnref.numpy")
    assert room.name == "attnref.numpy"
    assert room.accepts == set(KEYWORDS)
    assert set(room.returns) >= {
        "scores",
        "logits",
        "masked",
        "weights",
        "output",
        "lse",
    }
    assert room.grad is not None
    assert room.multi_head is not None
    assert room.profile == "strict"


def test_listing_the_built_in_rooms_imports_no_framework():
    probe = (
        "import sys, attncheck.target\n"
        "raise SystemExit(bool({'torch', 'jax'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", probe], check=True)


FRAMEWORK = "def attention(q, k, v): ...\n"

ERRORS = {
    "two": "cannot be called as f(q, k, v): its positional parameters are (q, k)",
    "needs": "needs `heads`, which is not among the options mask, bias, scale",
    "anything": "takes any keyword (**): say which of them it means, as in --accepts",
    "number": "is no function but of type int",
    "absent": "has no 'absent'; it has Subject, anything, extra",
}


@pytest.mark.parametrize(("name", "says"), ERRORS.items(), ids=ERRORS)
def test_what_cannot_be_called_is_an_error_that_says_why(target, name, says):
    with pytest.raises(SubjectError) as caught:
        load(target(name))
    assert says in str(caught.value)
    assert "targets_of_a_test.py" in str(caught.value)


@pytest.mark.parametrize("text", ["", "attnref.nonesuch", "file.py", ":f", "file.py:"])
def test_what_is_no_target_is_an_error_that_shows_the_forms(text):
    with pytest.raises(SubjectError, match="neither a built-in subject nor"):
        load(text)


def test_a_missing_file_is_an_error_that_names_it():
    with pytest.raises(SubjectError, match=r"there is no file 'no/such/file\.py'"):
        load("no/such/file.py:f")


def test_a_missing_module_is_an_error_that_names_it():
    with pytest.raises(
        SubjectError, match=r"'no_such\.module' cannot be imported: Mod"
    ):
        load("no_such.module:f")


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("raise RuntimeError('no GPU here')", "RuntimeError: no GPU here"),
        ("def f(:", "SyntaxError"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_mod"),
    ],
    ids=["raises", "syntax", "import"],
)
def test_a_module_that_cannot_be_imported_is_an_error(target, source, says):
    with pytest.raises(SubjectError) as caught:
        load(target("f", source))
    assert f"cannot be imported: {says}" in str(caught.value)


def test_a_built_in_name_that_is_nearly_right_is_suggested():
    with pytest.raises(SubjectError, match=r": did you mean 'attnref\.numpy'\?$"):
        load("attnref.nunpy")


@pytest.mark.parametrize("name", [name for name in NAMES if name != "numpy"])
def test_a_framework_that_is_missing_is_named_with_how_to_install_it(
    target, monkeypatch, name
):
    # What its import raises where it is not installed.
    source = f"raise ModuleNotFoundError('no module {name}', name={name!r})"
    with pytest.raises(SubjectError, match=rf"pip install 'attnref\[{name}\]'"):
        load(target("attention", source))
    monkeypatch.setattr(frameworks, "installed", lambda: ["numpy"])
    subject = load(target("attention", FRAMEWORK), framework=name)
    with pytest.raises(SubjectError, match=rf" needs {name}: pip install 'attnref"):
        subject.describe()


def test_a_signature_that_cannot_be_read_is_an_error():
    with pytest.raises(SubjectError, match="cannot be read: say which keywords"):
        load("builtins:max", framework="numpy")
    subject = load("builtins:max", framework="numpy", accepts="mask")
    assert subject.accepts == {"mask"}


def test_a_module_of_no_framework_is_ambiguous(target):
    with pytest.raises(SubjectError, match="uses no framework: say whose arrays"):
        load(target("attention", FRAMEWORK))
    assert load(target("attention", FRAMEWORK), framework="jax").framework == "jax"


def test_a_module_of_two_frameworks_is_ambiguous(target):
    # Stand-ins: only the names count, and the frameworks may be absent.
    source = "import types, numpy\njax = types.ModuleType('jax')\n" + FRAMEWORK
    with pytest.raises(SubjectError, match="uses jax and numpy: say whose arrays"):
        load(target("attention", source))
    assert load(target("attention", source), framework="numpy").framework == "numpy"


def test_an_import_from_a_framework_says_which(target):
    source = "from numpy.linalg import norm\n" + FRAMEWORK
    assert load(target("attention", source)).framework == "numpy"


def test_an_unknown_framework_is_an_error_that_names_the_known_ones(target):
    known = ", ".join(NAMES)
    with pytest.raises(SubjectError, match=f"framework is one of {known}, not 'tf'"):
        load(target("plain"), framework="tf")


def test_unknown_keywords_are_an_error_that_names_the_known_ones(target):
    with pytest.raises(
        SubjectError, match=f"made of {', '.join(KEYWORDS)}, not causal"
    ):
        load(target("plain"), accepts="mask,causal")


def test_unknown_results_are_an_error_that_names_the_known_ones():
    with pytest.raises(SubjectError, match=r"`returns` is made of .*, not entropy"):
        Subject(
            call=len,
            framework="numpy",
            name="x",
            accepts=frozenset(),
            returns=("output", "entropy"),
        )

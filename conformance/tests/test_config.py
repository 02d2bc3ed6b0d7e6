"""What pyproject.toml sets, what a command line sets over it, and what neither may."""

import os
from pathlib import Path

import pytest

from attncheck.budget import PROFILES
from attncheck.config import KEYS, ConfigError, Settings, settings


@pytest.fixture
def table(tmp_path):
    """Writes a pyproject.toml with this in the table; the folder that it is in."""

    def write(text, folder=tmp_path):
        folder.mkdir(exist_ok=True)
        content = f"[tool.attncheck]\n{text}\n"
        (folder / "pyproject.toml").write_text(content, "utf-8")
        return folder

    return write


ALL = """
subject = ["attnref.numpy", "my.module:f"]
set = "full"
dtype = ["F32", "BF16"]
profile = "strict"
framework = "numpy"
accepts = "mask,scale"
waivers = "waivers.toml"
timeout = 5
memory = 0.5
python = "env/bin/python"
"""


def test_every_key_is_read(table):
    folder = table(ALL)
    assert settings(folder) == Settings(
        subject=("attnref.numpy", "my.module:f"),
        set="full",
        dtype=("F32", "BF16"),
        profile="strict",
        framework="numpy",
        accepts="mask,scale",
        waivers=folder / "waivers.toml",
        timeout=5,
        memory=0.5,
        python=str(folder / "env/bin/python"),
    )
    assert all(f"\n{key} = " in ALL for key in KEYS)


def test_a_bare_name_of_an_interpreter_is_left_to_the_path(table):
    assert settings(table("python = 'python3.12'")).python == "python3.12"


def test_without_a_table_nothing_is_set(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.other]\nset = 'huge'\n", "utf-8")
    assert settings(tmp_path) == Settings()


def test_one_subject_or_dtype_needs_no_list(table):
    found = settings(table("subject = 'my:f'\ndtype = 'F16'"))
    assert (found.subject, found.dtype) == (("my:f",), ("F16",))


def test_what_is_given_wins_and_what_is_not_given_does_not(table):
    folder = table("set = 'full'\nsubject = 'my:f'\ndtype = 'F16'\naccepts = 'mask'")
    given = {"set": "smoke", "subject": ["attnref.numpy"], "dtype": [], "profile": None}
    found = settings(folder, **given, accepts="")
    assert (found.set, found.subject) == ("smoke", ("attnref.numpy",))
    assert found.dtype == ("F16",)
    assert found.accepts == ""
    assert found.options == {"framework": None, "accepts": "", "profile": None}


def test_the_nearest_table_counts_and_files_are_found_from_it(table, tmp_path):
    table("subject = 'my.py:f'\nwaivers = 'w.toml'\nset = 'full'")
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "a" / "pyproject.toml").write_text("[project]\n", "utf-8")
    found = settings(inner)
    assert found.set == "full"
    assert found.subject == (os.path.join("..", "..", "my.py:f"),)
    assert found.waivers == tmp_path / "w.toml"
    assert settings(table("", inner)) == Settings()


WRONG = {
    "profil = 'strict'": "not 'profil': did you mean 'profile'?",
    "subjects = ['my:f']": "did you mean 'subject'?",
    "colour = 'red'": f"is one of {', '.join(KEYS)}, not 'colour'",
    "profile = 'strcit'": "not 'strcit': did you mean 'strict'?",
    "set = 'smok'": "set is one of smoke, full, not 'smok': did you mean 'smoke'?",
    "dtype = ['F32', 'FP16']": "not 'FP16': did you mean 'F16'?",
    "framework = 'nunpy'": "did you mean 'numpy'?",
    "timeout = '5'": "timeout is a number, not '5'",
    "timeout = true": "timeout is a number, not True",
    "timeout = 0": "timeout is a number of seconds, not 0",
    "memory = 0": "memory is a number of GiB, not 0",
    "timeout = nan": "timeout is a number of seconds, not nan",
    "set = 1": "set is a string, not 1",
    "dtype = [1]": "dtype is a string or a list of strings, not [1]",
    "waivers = ['a']": "waivers is a string, not ['a']",
    "set = ": "Invalid value",
}


@pytest.mark.parametrize(("text", "says"), WRONG.items(), ids=WRONG)
def test_what_is_wrong_is_named_with_its_file(table, text, says):
    folder = table(text)
    with pytest.raises(ConfigError) as caught:
        settings(folder)
    assert says in str(caught.value)
    assert str(caught.value).startswith(f"{folder / 'pyproject.toml'}: ")


def test_what_is_no_table_is_named_with_its_file(tmp_path):
    path = tmp_path / "pyproject.toml"
    path.write_text("[tool]\nattncheck = 1\n", "utf-8")
    with pytest.raises(ConfigError, match=r"pyproject.toml: .* is a table, not 1"):
        settings(tmp_path)


def test_what_is_given_is_checked_too(tmp_path):
    known = ", ".join(PROFILES).replace("+", r"\+")
    with pytest.raises(ConfigError, match=f"^profile is one of {known}, not 'loose'$"):
        settings(tmp_path, profile="loose")


def test_a_path_that_is_given_is_taken_as_it_is(table):
    assert settings(table("waivers = 'a'"), waivers=Path("b")).waivers == Path("b")

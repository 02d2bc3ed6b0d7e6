"""What is derived from a case comes back from the cache as it was, or not at all."""

import os
from dataclasses import fields

import numpy as np
import pytest

from attncheck import cache as cache_module
from attncheck import judging
from attncheck.budget import PROFILES, derive
from attncheck.cache import Cache, compiled_code
from attncheck.definition import expected
from attncheck.judging import Judge
from attncheck.suite import cases

CASES = {case.id: case for case in cases(dtypes=("F32",))}
RANDOM, STRUCTURED = CASES["plain/F32"], CASES["scores-equal/F32"]


def assert_same(left, right):
    """Two records of arrays are equal, NaN and the sign of 0 included."""
    for field in fields(right):
        here, there = getattr(left, field.name), getattr(right, field.name)
        if not isinstance(there, dict):
            here, there = {"": here}, {"": there}
        assert sorted(here) == sorted(there), field.name
        for name, want in there.items():
            assert np.asarray(here[name]).dtype == np.asarray(want).dtype, name
            np.testing.assert_array_equal(here[name], want)


@pytest.mark.parametrize("case", [RANDOM, STRUCTURED], ids=lambda case: case.id)
def test_expected_values_and_budgets_come_back_as_they_were(case, tmp_path):
    kept, want = Cache(tmp_path / "code"), expected(case)
    budget = derive(case, want, PROFILES["strict"])
    kept.keep_expected(case.sha256, want)
    kept.keep_budget(case.sha256, "strict", budget)
    assert_same(kept.expected(case.sha256), want)
    assert_same(kept.budget(case.sha256, "strict"), budget)


def test_both_kinds_of_budget_are_tried():
    strict = PROFILES["strict"]
    assert derive(RANDOM, expected(RANDOM), strict).random
    assert not derive(STRUCTURED, expected(STRUCTURED), strict).random


def test_another_case_or_profile_is_not_answered(tmp_path):
    kept = Cache(tmp_path / "code")
    want = expected(RANDOM)
    kept.keep_expected(RANDOM.sha256, want)
    kept.keep_budget(RANDOM.sha256, "strict", derive(RANDOM, want, PROFILES["strict"]))
    assert kept.expected(STRUCTURED.sha256) is None
    assert kept.budget(RANDOM.sha256, "eager") is None


def test_a_damaged_file_is_as_if_it_were_not_there(tmp_path):
    kept = Cache(tmp_path / "code")
    kept.keep_expected(RANDOM.sha256, expected(RANDOM))
    (file,) = tmp_path.rglob("*.safetensors")
    file.write_bytes(file.read_bytes()[:-9])
    assert kept.expected(RANDOM.sha256) is None


def test_the_judge_reads_what_another_run_kept(tmp_path, monkeypatch):
    first = Judge(Cache(tmp_path / "code"))
    want, budget = first.expected(RANDOM), first.budget(RANDOM, "strict")

    def derived_again(*_):
        raise AssertionError("derived again")

    monkeypatch.setattr(judging, "expected", derived_again)
    monkeypatch.setattr(judging, "derive", derived_again)
    second = Judge(Cache(tmp_path / "code"))
    assert_same(second.expected(RANDOM), want)
    assert_same(second.budget(RANDOM, "strict"), budget)


def test_the_environment_names_the_place_or_switches_it_off(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTNCHECK_CACHE", str(tmp_path))
    Cache.of_user().keep_expected(RANDOM.sha256, expected(RANDOM))
    assert len(list(tmp_path.rglob("*.safetensors"))) == 1
    monkeypatch.setenv("ATTNCHECK_CACHE", "")
    off = Cache.of_user()
    off.keep_expected(RANDOM.sha256, expected(RANDOM))
    assert off.expected(RANDOM.sha256) is None


def test_a_place_that_cannot_be_written_costs_nothing_but_time(tmp_path):
    (tmp_path / "file").write_text("not a folder", "utf-8")
    kept = Cache(tmp_path / "file" / "code")
    kept.keep_expected(RANDOM.sha256, expected(RANDOM))
    assert kept.expected(RANDOM.sha256) is None


def test_over_the_limit_what_was_read_longest_ago_goes(tmp_path, monkeypatch):
    folder = tmp_path / ("0123456789abcdef")
    kept = Cache(folder)
    for age, case in enumerate((RANDOM, STRUCTURED)):
        kept.keep_expected(case.sha256, expected(case))
        os.utime(folder / f"{case.sha256}.safetensors", (age, age))
    sizes = [file.stat().st_size for file in folder.iterdir()]
    monkeypatch.setattr(cache_module, "LIMIT", sum(sizes) - 1)
    steps: list[int] = []
    kept.prune(steps.append)
    assert steps == [1, 2, 3]  # two looked at, one removed
    assert not (folder / f"{RANDOM.sha256}.safetensors").exists()
    assert (folder / f"{STRUCTURED.sha256}.safetensors").exists()


def test_nobody_elses_files_are_removed(tmp_path, monkeypatch):
    theirs = tmp_path / "models" / "model.safetensors"
    theirs.parent.mkdir()
    theirs.write_bytes(b"weights")
    kept = Cache(tmp_path / "0123456789abcdef")
    kept.keep_expected(RANDOM.sha256, expected(RANDOM))
    monkeypatch.setattr(cache_module, "LIMIT", 0)
    kept.prune()
    assert theirs.read_bytes() == b"weights"
    assert list(kept._folder.iterdir()) == []


JAX_FOLDER = "JAX_COMPILATION_CACHE_DIR"


def test_what_jax_compiles_is_kept_beside(tmp_path, monkeypatch):
    monkeypatch.delenv(JAX_FOLDER, raising=False)
    monkeypatch.setenv("ATTNCHECK_CACHE", str(tmp_path))
    assert compiled_code()[JAX_FOLDER] == str(tmp_path / "jax")
    monkeypatch.setenv("ATTNCHECK_CACHE", "")
    assert compiled_code() == {}


def test_who_keeps_what_jax_compiles_elsewhere_is_not_told_otherwise(monkeypatch):
    monkeypatch.setenv(JAX_FOLDER, "elsewhere")
    assert compiled_code() == {}


def test_what_jax_compiled_goes_too_when_there_is_too_much(tmp_path, monkeypatch):
    compiled = tmp_path / "jax" / f"jit__where-{'0' * 64}-cache"
    theirs = tmp_path / "jax" / "model.safetensors"
    compiled.parent.mkdir()
    for path in (compiled, theirs):
        path.write_bytes(b"code")
    monkeypatch.setattr(cache_module, "LIMIT", 0)
    kept = Cache(tmp_path / "0123456789abcdef")
    kept.keep_expected(RANDOM.sha256, expected(RANDOM))
    kept.prune()
    assert list(compiled.parent.iterdir()) == [theirs]


def test_what_jax_compiled_goes_last(tmp_path, monkeypatch):
    compiled = tmp_path / "jax" / f"jit__where-{'0' * 64}-cache"
    compiled.parent.mkdir()
    compiled.write_bytes(b"code")
    os.utime(compiled, (0, 0))  # long before all else
    kept = Cache(tmp_path / "0123456789abcdef")
    kept.keep_expected(RANDOM.sha256, expected(RANDOM))
    monkeypatch.setattr(cache_module, "LIMIT", len(b"code"))
    kept.prune()
    assert list(kept._folder.iterdir()) == []
    assert compiled.exists()

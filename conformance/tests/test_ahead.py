"""What is derived beside a run is what the judge would derive; it ends with the run."""

import os
import signal
import time

import numpy as np
import pytest

from attncheck import ahead
from attncheck.ahead import Ahead
from attncheck.budget import PROFILES, derive
from attncheck.cache import Cache
from attncheck.definition import expected
from attncheck.exchange import write_cases
from attncheck.judging import Judge
from attncheck.suite import cases

CHOSEN = cases("smoke", dtypes=("F32",))[:5]


@pytest.fixture(autouse=True)
def few_are_worth_it(monkeypatch, tmp_path):
    monkeypatch.setattr(ahead, "WORTH_A_PROCESS", 2)
    monkeypatch.setenv("ATTNCHECK_CACHE", str(tmp_path / "cache"))
    write_cases(tmp_path, CHOSEN)


def test_all_that_the_judge_needs_is_kept(tmp_path):
    kept = Cache.of_user()
    with Ahead(kept, jobs=3) as beside:
        beside.begin(tmp_path, CHOSEN, ["strict"])
        assert len(beside._processes) == 2  # two cases are worth one
        derived = list(beside.as_derived(CHOSEN, "strict"))
    assert sorted(derived, key=CHOSEN.index) == CHOSEN
    for case in CHOSEN:
        assert kept.keeps(case.sha256, "strict")
        want = expected(case)
        np.testing.assert_array_equal(kept.expected(case.sha256).output, want.output)
        found = kept.budget(case.sha256, "strict").bounds["output"]
        np.testing.assert_array_equal(
            found, derive(case, want, PROFILES["strict"]).bounds["output"]
        )


def test_what_is_kept_starts_no_process(tmp_path):
    for _ in range(2):
        with Ahead(Cache.of_user(), jobs=1) as beside:
            beside.begin(tmp_path, CHOSEN, ["strict"])
            started = len(beside._processes)
            assert len(list(beside.as_derived(CHOSEN, "strict"))) == len(CHOSEN)
    assert started == 0


def test_where_nothing_can_be_kept_nothing_is_started(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTNCHECK_CACHE", "")
    with Ahead(Cache.of_user()) as beside:
        beside.begin(tmp_path, CHOSEN, ["strict"])
        assert not beside._processes


def test_a_process_that_fails_costs_nothing_but_time(tmp_path):
    with Ahead(Cache.of_user(), jobs=1) as beside:
        beside.begin(tmp_path / "no such folder", CHOSEN, ["strict"])
        assert list(beside.as_derived(CHOSEN, "strict")) == CHOSEN
        assert beside._processes[0].returncode == 1


def test_a_profile_is_derived_once_for_all_subjects(tmp_path):
    with Ahead(Cache.of_user(), jobs=1) as beside:
        beside.begin(tmp_path, CHOSEN, ["strict"])
        beside.begin(tmp_path, CHOSEN, ["strict"])
        assert len(beside._processes) == 1
        beside.begin(tmp_path, CHOSEN, ["tensor-core"])
        assert len(beside._processes) == 2


def test_a_case_comes_as_soon_as_it_is_derived(tmp_path, monkeypatch):
    first, *others = CHOSEN
    Judge(Cache.of_user()).budget(first, "strict")

    def waits(seconds):
        pytest.fail("it waits for what is there already")

    with Ahead(Cache.of_user(), jobs=1) as beside:
        beside.begin(tmp_path, [first, *others], ["strict"])
        os.kill(beside._processes[0].pid, signal.SIGSTOP)
        found = beside.as_derived([*others, first], "strict")
        with monkeypatch.context() as patched:
            patched.setattr(time, "sleep", waits)
            assert next(found) is first
            assert list(beside.as_derived([first], "strict")) == [first]
        os.kill(beside._processes[0].pid, signal.SIGCONT)
        assert len(list(found)) == len(others)


def test_leaving_ends_the_processes(tmp_path):
    started = time.monotonic()
    with Ahead(Cache.of_user(), jobs=1) as beside:
        beside.begin(tmp_path, CHOSEN, ["strict"])
        (process,) = beside._processes
    assert process.returncode is not None
    assert time.monotonic() - started < 60

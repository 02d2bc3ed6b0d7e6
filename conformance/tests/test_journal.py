"""A run that was cut short goes on with what it had, and with nothing else."""

import json
from dataclasses import replace

import numpy as np
import pytest

from attncheck.exchange import (
    MODEL,
    RESULTS,
    Result,
    append_result,
    read_results,
    result_record,
    write_arrays,
    write_cases,
)
from attncheck.journal import Journal
from attncheck.suite import cases

A, B, C = cases(dtypes=("F32",))[:3]
ME, OTHER = {"name": "me", "version": "1"}, {"name": "me", "version": "2"}


def done(case, subject=ME, **changes):
    arrays = {"output": np.ones((1, 2), np.float32)}
    result = Result(case.id, "done", "", arrays, 1.0, subject, case.sha256)
    return replace(result, **changes)


@pytest.fixture
def folder(tmp_path):
    """A folder with the cases A and B and a result of each."""
    write_cases(tmp_path, [A, B])
    for case in (A, B):
        append_result(tmp_path, done(case))
    return tmp_path


def left(folder, subject=ME, chosen=(A, B)):
    """The cases that a run in the folder still has to do."""
    journal = Journal(folder, chosen)
    journal.begin(subject)
    return [chosen[place] for place in journal.left()]


def edit(folder, number, change):
    """Changes a line of results."""
    path = folder / RESULTS
    lines = path.read_bytes().splitlines(keepends=True)
    lines[number] = change(lines[number])
    path.write_bytes(b"".join(lines))


def set_key(key, value):
    return lambda line: json.dumps(json.loads(line) | {key: value}).encode() + b"\n"


def test_what_was_finished_stays(folder):
    before = (folder / RESULTS).read_bytes()
    assert left(folder) == []
    assert (folder / RESULTS).read_bytes() == before


def test_all_is_to_do_where_nothing_ran(tmp_path):
    assert left(tmp_path) == [A, B]
    assert read_results(tmp_path) == {}


def test_a_new_run_keeps_nothing(folder):
    write_arrays(folder / MODEL, {"embedding": np.zeros((1, 1))})
    assert left(folder, None) == [A, B]
    assert read_results(folder) == {}
    assert not (folder / MODEL).exists()


@pytest.mark.parametrize("status", ["crash", "timeout"])
def test_what_was_lost_is_tried_again(folder, status):
    edit(folder, 1, set_key("status", status))
    assert left(folder) == [B]


def test_what_another_subject_had_finished_goes(folder):
    assert left(folder, OTHER) == [A, B]


@pytest.mark.parametrize("length", [1, 20, -2])
def test_a_line_that_was_cut_short_is_as_if_never_written(folder, length):
    edit(folder, 1, lambda line: line[:length])
    assert left(folder) == [B]
    assert list(read_results(folder)) == [A.id]


def test_a_last_line_that_only_lacks_its_end_counts(folder):
    edit(folder, 1, lambda line: line[:-1])
    assert left(folder) == []


def test_a_line_in_the_middle_that_cannot_be_read_is_run_again(folder):
    edit(folder, 0, lambda line: b"{}\n")
    assert left(folder) == [A]


def test_a_result_of_a_case_that_was_changed_since_is_none(folder):
    edit(folder, 0, set_key("sha256", "0" * 64))
    assert left(folder) == [A]


def test_arrays_that_cannot_be_read_are_computed_again(folder):
    line = (folder / RESULTS).read_text("utf-8").splitlines()[1]
    (folder / json.loads(line)["file"]).unlink()
    assert left(folder) == [B]


def test_results_are_on_disk_as_soon_as_they_are_added(tmp_path):
    journal = Journal(tmp_path, [A, B])
    journal.begin(None)
    journal.add(result_record(done(B, status="refused", arrays={})))
    assert list(read_results(tmp_path)) == [B.id]
    assert (len(journal), journal.left()) == (1, [0])


def test_results_are_settled_in_the_order_of_the_cases(tmp_path):
    journal = Journal(tmp_path, [A, B, C])
    journal.begin(None)
    for case in (C, A, B):
        journal.add(result_record(done(case, status="refused", arrays={})))
    assert list(read_results(tmp_path)) == [C.id, A.id, B.id]
    journal.settle()
    assert list(read_results(tmp_path)) == [A.id, B.id, C.id]
    assert [path.name for path in tmp_path.iterdir()] == [RESULTS]

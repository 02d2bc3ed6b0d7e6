"""Every case is run once, whoever asks for its result, and whoever stops asking."""

from threading import Thread

import pytest

from attncheck.shared import SharedResults, StoppedError
from attncheck.subject import SubjectError, options
from attncheck.suite import cases

FEW = [case for case in cases(dtypes=("F32",)) if not options(case)][:6]

SOURCE = """
import os, time
import numpy

def logs(q, k, v):
    with open(os.environ["CALLS"], "a") as calls:
        calls.write("call\\n")
    return numpy.zeros(q.shape[:-1] + v.shape[-1:], q.dtype)

def dies(q, k, v):
    if q.shape[2] == 1:
        os._exit(7)
    return logs(q, k, v)

def hangs(q, k, v):
    logs(q, k, v)
    while True:
        time.sleep(1)
"""


@pytest.fixture
def calls(tmp_path, monkeypatch):
    """The file to which the subjects write a line for each call."""
    path = tmp_path / "calls"
    path.touch()
    monkeypatch.setenv("CALLS", str(path))
    return path


@pytest.fixture
def share(tmp_path, calls):
    """Makes sharers of the results of a function, in one folder."""
    (tmp_path / "subject.py").write_text(SOURCE, "utf-8")

    def make(name, portions=2):
        target = f"{tmp_path / 'subject.py'}:{name}"
        given = {"options": {}, "workers": {"timeout": 60.0}, "portions": portions}
        return SharedResults(target, FEW, tmp_path / "shared", **given)

    return make


def number_of(calls):
    return calls.read_text("utf-8").count("\n")


def test_every_case_is_run_once_in_whatever_order_results_are_asked_for(share, calls):
    shared = share("logs")
    for case in [*reversed(FEW), *FEW]:
        result = shared.result(case)
        assert (result.id, result.status) == (case.id, "done")
        assert result.arrays["output"].shape == case.inputs["d_out"].shape
    shared.stop()
    assert number_of(calls) == len(FEW) >= 4


def test_nothing_is_run_before_a_result_is_asked_for(share, calls):
    share("logs").stop()
    assert number_of(calls) == 0


@pytest.mark.parametrize("portions", [1, 3, 99])
def test_two_who_share_run_every_case_once(share, calls, portions):
    found = [[], []]

    def ask(shared, order, into):
        into += [shared.result(case).status for case in order]

    sharers = [share("logs", portions), share("logs", portions)]
    orders = (FEW, FEW[::-1])
    asked = zip(sharers, orders, found, strict=True)
    threads = [Thread(target=ask, args=arguments) for arguments in asked]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [["done"] * len(FEW)] * 2
    assert number_of(calls) == len(FEW)


def test_a_case_that_ends_the_worker_loses_only_its_own_result(share):
    shared = share("dies")
    found = {case.id: shared.result(case).status for case in FEW}
    lost = {case.id for case in FEW if case.sizes["i"] == 1}
    assert {id for id, status in found.items() if status == "crash"} == lost != set()
    assert set(found.values()) == {"done", "crash"}


def test_who_stops_leaves_the_rest_to_the_next(share, calls):
    first = share("logs", portions=1)
    first.result(FEW[0])
    first.stop()
    before = number_of(calls)
    assert before >= 1
    second = share("logs", portions=1)
    assert [second.result(case).status for case in FEW] == ["done"] * len(FEW)
    second.stop()
    # A case that was being run when the first one stopped is run again.
    assert len(FEW) <= number_of(calls) <= len(FEW) + 1


def test_who_stops_does_not_wait_for_a_subject_that_hangs(share, calls):
    shared, ended = share("hangs", portions=1), []

    def ask():
        with pytest.raises(StoppedError) as caught:
            shared.result(FEW[0])
        ended.append(caught)

    asking = Thread(target=ask)
    asking.start()
    while not number_of(calls):
        asking.join(0.05)
    shared.stop()
    asking.join()
    assert ended


def test_a_target_that_cannot_be_judged_is_an_error_every_time(share):
    shared = share("absent")
    for case in (FEW[0], FEW[-1], FEW[0]):
        with pytest.raises(SubjectError, match="has no 'absent'"):
            shared.result(case)

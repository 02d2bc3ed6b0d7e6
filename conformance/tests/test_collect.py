"""Whatever a subject does to its process, every case gets a result that says so."""

import json
import os
import signal
from itertools import chain

import pytest

from attncheck.collect import collect
from attncheck.crew import PATIENCE
from attncheck.exchange import RESULTS, read_results
from attncheck.subject import SubjectError, options
from attncheck.suite import cases

CASES = {case.id: case for case in cases(dtypes=("F32",))}
FEW = [CASES[f"{name}/F32"] for name in ("plain", "decode", "ungrouped", "long")]
DECODE = FEW[1]

SOURCE = """
import ctypes, os, pathlib, sys
import numpy

def zeros(q, k, v):
    return numpy.zeros(q.shape[:-1] + v.shape[-1:], q.dtype)

def at_decode(act):
    def call(q, k, v):
        return act() if q.shape[2] == 1 else zeros(q, k, v)
    return call

def hang():
    while True:
        pass

segfault = at_decode(lambda: ctypes.string_at(0))
abort = at_decode(os.abort)
exits = at_decode(lambda: os._exit(7))
leaves = at_decode(lambda: sys.exit(7))
interrupts = at_decode(lambda: os.kill(os.getpid(), 9))
hangs = at_decode(hang)

def always(q, k, v):
    os._exit(7)

def signed(q, k, v):
    pathlib.Path(f"{os.getpid()}.pid").touch()
    while len([*pathlib.Path().glob("*.pid")]) < int(os.environ["WORKERS"]):
        pass
    return zeros(q, k, v)
"""


@pytest.fixture
def target(tmp_path):
    """Makes a target of a function's name and a module's source."""

    def write(name, source=SOURCE):
        file = tmp_path / "subject.py"
        file.write_text(source, "utf-8")
        return f"{file}:{name}"

    return write


ENDINGS = {
    "segfault": ("crash", f"the process was ended by {signal.SIGSEGV.name}"),
    "abort": ("crash", f"the process was ended by {signal.SIGABRT.name}"),
    "interrupts": ("crash", "the process was ended by SIGKILL"),
    "exits": ("crash", "the process ended itself with exit status 7"),
    "leaves": ("error", "SystemExit: 7"),
}


@pytest.mark.parametrize(("name", "ending"), ENDINGS.items(), ids=ENDINGS)
def test_a_case_that_ends_the_process_is_the_only_one_lost(
    tmp_path, target, name, ending
):
    finished = []
    collect(target(name), FEW, tmp_path / "run", progress=finished.append)
    results = read_results(tmp_path / "run")
    assert list(results) == [case.id for case in FEW]
    lost = results.pop(DECODE.id)
    assert (lost.status, lost.message) == ending
    assert {result.status for result in results.values()} == {"done"}
    assert finished == sorted(finished)


def test_a_case_that_hangs_is_a_timeout_and_the_only_one_lost(tmp_path, target):
    # Seconds that the import of NumPy has as well, on a busy machine.
    collect(target("hangs"), FEW, tmp_path / "run", timeout=5)
    results = read_results(tmp_path / "run")
    lost = results.pop(DECODE.id)
    assert (lost.status, lost.message) == ("timeout", "no result within 5 s")
    assert [result.status for result in results.values()] == ["done"] * 3


def test_workers_lost_in_a_row_end_the_run_and_the_rest_says_so(tmp_path, target):
    calls = [case for case in CASES.values() if not options(case)]
    masked = [case for case in CASES.values() if "mask" in case.inputs]
    pairs = zip(calls[: PATIENCE + 2], masked, strict=False)
    collect(target("always"), [*chain(*pairs)], tmp_path / "run")
    results = read_results(tmp_path / "run").values()
    assert sum(result.status == "not applicable" for result in results) == PATIENCE + 2
    messages = [result.message for result in results if result.status == "crash"]
    assert messages == [
        *["the process ended itself with exit status 7"] * PATIENCE,
        *[f"not run: {PATIENCE} processes in a row were lost"] * 2,
    ]


IMPORTS = {
    "leaves": (
        "import sys; sys.exit('no licence')",
        "exit status 1; it last said: 'no lic",
    ),
    "leaves silently": (
        "import sys; sys.exit(5)",
        "the process ended itself with exit status 5.",
    ),
    "crashes": ("import ctypes; ctypes.string_at(0)", "ended by SIGSEGV"),
    "hangs": ("while True: pass", "no result within 1 s"),
    "raises": (
        "raise OSError('two\\nlines')",
        "cannot be imported: OSError: two lines",
    ),
}


@pytest.mark.parametrize(("source", "says"), IMPORTS.values(), ids=IMPORTS)
def test_an_import_that_does_not_end_well_is_a_usage_error(
    tmp_path, target, source, says
):
    # A slower machine than this only times out sooner.
    timeout = 1 if "while" in source else 60
    with pytest.raises(SubjectError) as caught:
        collect(target("f", source), FEW, tmp_path / "run", timeout=timeout)
    assert says in f"{caught.value}."
    assert "\n" not in str(caught.value)


def test_a_run_goes_on_where_it_was_cut_short(tmp_path, target):
    run = tmp_path / "run"
    collect(target("zeros"), FEW, run)
    lines = (run / RESULTS).read_text("utf-8").splitlines(keepends=True)
    first = json.loads(lines[0]) | {"message": "from before"}
    (run / RESULTS).write_text(json.dumps(first) + "\n" + lines[1][:20], "utf-8")
    collect(target("zeros"), FEW, run, resume=True)
    results = read_results(run)
    assert list(results) == [case.id for case in FEW]
    assert [r.message for r in results.values()] == ["from before", "", "", ""]


def test_options_reach_the_subject(tmp_path, target):
    given = {"framework": "numpy", "accepts": "mask", "profile": "eager"}
    masked = CASES["mask-single/F32"]
    collect(target("zeros"), [masked], tmp_path / "run", options=given)
    (result,) = read_results(tmp_path / "run").values()
    assert result.subject["profile"] == "eager"
    assert result.status == "error"
    assert "unexpected keyword argument 'mask'" in result.message


def test_a_lost_case_names_the_subject(tmp_path, target):
    name = target("exits")
    collect(name, [DECODE], tmp_path / "run")
    (result,) = read_results(tmp_path / "run").values()
    assert result.subject["name"] == name


MANY = [case for case in CASES.values() if not options(case)][:9]


@pytest.mark.parametrize("jobs", [1, 3])
def test_so_many_workers_share_the_cases(tmp_path, target, monkeypatch, jobs):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WORKERS", str(jobs))
    collect(target("signed"), MANY, tmp_path / "run", jobs=jobs)
    assert len(list(tmp_path.glob("*.pid"))) == jobs
    results = read_results(tmp_path / "run")
    assert list(results) == [case.id for case in MANY]
    assert {result.status for result in results.values()} == {"done"}


def test_a_worker_is_lost_and_the_others_go_on(tmp_path, target):
    collect(target("segfault"), MANY, tmp_path / "run", jobs=3)
    results = read_results(tmp_path / "run")
    assert list(results) == [case.id for case in MANY]
    assert {result.id for result in results.values() if result.status == "crash"} == {
        case.id for case in MANY if case.sizes["i"] == 1
    }


def test_the_subject_is_told_when_it_is_known(tmp_path, target):
    told = []
    collect(target("zeros"), FEW, tmp_path / "run", loaded=told.append)
    assert [subject["name"] for subject in told] == [target("zeros")]


class StopError(Exception):
    pass


def test_what_progress_raises_ends_the_run_and_its_workers(
    tmp_path, target, monkeypatch
):
    monkeypatch.chdir(tmp_path)

    def stop(done):
        if (tmp_path / "began").exists():
            raise StopError

    source = SOURCE + "\nimport time\ndef slow(q, k, v):\n"
    source += (
        "    pathlib.Path('began').write_text(str(os.getpid()))\n    time.sleep(99)"
    )
    with pytest.raises(StopError):
        collect(target("slow", source), FEW, tmp_path / "run", progress=stop)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "began").read_text()), 0)

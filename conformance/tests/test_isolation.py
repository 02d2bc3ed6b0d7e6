"""A subject may do what it likes: its verdict says so, and all else goes on."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from filelock import FileLock

from attncheck.collect import LOCK, collect
from attncheck.exchange import RESULTS, ExchangeError, read_results
from attncheck.judging import Folder, Judge
from attncheck.subject import SubjectError
from attncheck.suite import cases

HOSTILE = Path(__file__).with_name("hostile.py")
CASES = {case.id: case for case in cases(dtypes=("F32",))}
FEW = [CASES[f"{name}/F32"] for name in ("coincidence", "decode", "no-keys")]
HERE = FEW[1].id
"""The case at which hostile subjects are hostile."""

JUDGE = Judge()


def verdicts(subject, folder, monkeypatch, **limits):
    """Case → status and what is said, of a subject of `hostile.py`."""
    monkeypatch.setenv("HOSTILE_FOLDER", str(folder))
    collect(f"{HOSTILE}:{subject}", FEW, folder, **limits)
    run = JUDGE.run(Folder.read(folder, FEW), "strict")
    return {
        verdict.case.id: (
            verdict.status,
            verdict.message
            or (verdict.findings[4].message if verdict.findings else ""),
        )
        for verdict in run.verdicts
    }


ENDS = {
    "segfault": ("crash", "the process was ended by SIGSEGV"),
    "aborts": ("crash", "the process was ended by SIGABRT"),
    "killed": ("crash", "the process was ended by SIGKILL"),
    "exits": ("crash", "the process ended itself with exit status 0"),
    "leaves": ("error", "SystemExit: enough"),
    "interrupts": ("crash", "the process was ended by SIGINT"),
    "raises": ("error", "ArithmeticError: no such number"),
    "recurses": ("error", "RecursionError: maximum recursion depth exceeded"),
    "wrong_type": ("error", "TypeError: `output` is a list, not an array of numpy"),
    "wrong_shape": ("fail", "is float32 (3, 4, 1), must be float32 (3, 4, 1, 8)"),
    "wrong_dtype": ("fail", "is float64 (3, 4, 1, 8), must be float32 (3, 4, 1, 8)"),
    "mutates": ("error", "ValueError: the subject changed its argument `v` in place"),
    "aliases": (
        "error",
        "ValueError: `output` shares its memory with the argument `k`, so that whoever "
        "changes one changes the other",
    ),
    "prints": ("pass", ""),
    "leaves_threads": ("pass", "left threads running: busy"),
    "closes_files": ("crash", "the process ended itself with exit status 1"),
    "forges": ("crash", "the subject answered in the worker's place"),
}
"""Subject → the verdict where it is hostile."""


@pytest.mark.parametrize(("subject", "verdict"), ENDS.items(), ids=ENDS)
def test_a_verdict_says_what_the_subject_did_and_the_others_are_as_ever(
    tmp_path, monkeypatch, subject, verdict
):
    found = verdicts(subject, tmp_path / "run", monkeypatch)
    assert found.pop(HERE) == verdict
    assert set(found.values()) == {("pass", "")}


@pytest.mark.parametrize("subject", ["hangs", "stops"])
def test_a_subject_that_does_not_come_back_is_ended(tmp_path, monkeypatch, subject):
    # Seconds that the import of NumPy has as well, on a busy machine.
    found = verdicts(subject, tmp_path / "run", monkeypatch, timeout=8)
    assert found.pop(HERE) == ("timeout", "no result within 8 s")
    assert set(found.values()) == {("pass", "")}


@pytest.mark.parametrize("subject", ["eats", "eats_in_a_child"])
def test_a_subject_that_eats_memory_is_ended(tmp_path, monkeypatch, subject):
    found = verdicts(subject, tmp_path / "run", monkeypatch, memory=0.3)
    status, message = found.pop(HERE)
    assert status == "crash"
    assert message.startswith("the process held 0.")
    assert message.endswith(" of 0.3 GiB of memory")
    assert set(found.values()) == {("pass", "")}


@pytest.mark.parametrize(
    ("subject", "here"),
    [("deletes", "pass"), ("overwrites", "pass"), ("deletes_and_dies", "crash")],
)
def test_a_subject_that_destroys_the_folder_loses_results_of_its_own(
    tmp_path, monkeypatch, subject, here
):
    run = tmp_path / "run"
    found = verdicts(subject, run, monkeypatch)
    assert list(found) == [case.id for case in FEW]
    assert list(read_results(run)) == list(found)  # the judge's own file is whole
    assert found[HERE][0] == here
    assert found[FEW[2].id] == ("pass", "")
    status, message = found[FEW[0].id]  # whose arrays are no more
    assert status == "not judged"
    assert "cannot be read" in message


def test_a_run_over_ten_hostile_subjects_ends_with_ten_right_verdicts(
    tmp_path, monkeypatch
):
    names = [
        *("segfault", "aborts", "killed", "exits", "leaves", "raises", "recurses"),
        *("wrong_type", "wrong_shape", "mutates"),
    ]
    targets = [f"{HOSTILE}:{name}" for name in names]
    chosen = ("--case", "decode/*", "--dtype", "F32", "--no-shrink", "--format", "json")
    ended = attncheck("run", *targets, *chosen)
    report = json.loads(ended.stdout)
    found = {
        subject["name"].rpartition(":")[2]: [
            (failure["status"], failure["message"] or failure["first"]["message"])
            for failure in subject["failures"]
        ]
        for subject in report["subjects"]
    }
    assert found == {name: [ENDS[name]] for name in names}
    assert ended.returncode == 1


def attncheck(*arguments):
    command = [sys.executable, "-m", "attncheck", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_what_a_subject_prints_is_not_in_the_json(tmp_path):
    chosen = ("--case", "decode/*", "--dtype", "F32", "--format", "json")
    ended = attncheck("run", f"{HOSTILE}:prints", *chosen)
    assert json.loads(ended.stdout)["subjects"][0]["counts"] == {"pass": 1}


# ------------------------------------------------------- runs that are cut short


SLOW = """
import os, pathlib, time
import numpy
from attnref.numpy import attention

def slow(q, k, v):
    if q.shape[2] == 1 and not os.environ.get("QUICK"):
        pathlib.Path("worker.pid").write_text(str(os.getpid()))
        time.sleep(600)
    return attention(q, k, v)
"""


@pytest.fixture
def begun(tmp_path, monkeypatch):
    """A run in a process of its own, which is at its last case."""
    monkeypatch.chdir(tmp_path)
    Path("slow.py").write_text(SLOW, "utf-8")
    program = f"""
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
from attncheck.collect import collect
from attncheck.suite import cases
few = {{case.id: case for case in cases(dtypes=("F32",))}}
few = [few[id] for id in {[FEW[0].id, FEW[2].id, FEW[1].id]}]
collect("slow.py:slow", few, __import__("pathlib").Path("run"))
"""
    process = subprocess.Popen([sys.executable, "-c", program])
    pid, results = Path("worker.pid"), Path("run", RESULTS)

    def is_at_last_case():
        assert process.poll() is None
        return (
            pid.exists() and pid.read_text() and results.read_bytes().count(b"\n") == 2
        )

    wait_for(is_at_last_case)
    yield process
    process.kill()
    process.wait()


def wait_for(condition):
    while not condition():
        time.sleep(0.01)


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A process whose parent does not wait for it is there, but dead.
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().split()[2]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL, signal.SIGTERM])
def test_a_run_that_was_cut_short_goes_on_where_it_was(
    begun, tmp_path, monkeypatch, number
):
    os.kill(begun.pid, number)
    begun.wait()
    wait_for(lambda: not is_running(int(Path("worker.pid").read_text())))
    before = (tmp_path / "run" / RESULTS).read_bytes()
    monkeypatch.setenv("QUICK", "1")
    collect("slow.py:slow", FEW, tmp_path / "run", resume=True)
    after = (tmp_path / "run" / RESULTS).read_bytes()
    assert after.startswith(before)
    assert after.count(b"\n") == 3


def test_two_runs_in_one_folder_are_refused(begun, tmp_path):
    with pytest.raises(ExchangeError, match=f"another run is in {tmp_path / 'run'}"):
        collect("slow.py:slow", FEW, tmp_path / "run")
    assert begun.poll() is None


def test_a_folder_is_free_again_after_a_run(tmp_path):
    collect("attnref.numpy", FEW[:1], tmp_path)
    with FileLock(tmp_path / LOCK, blocking=False):
        pass


def test_a_subject_that_was_changed_is_run_again_and_the_reason_is_said(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    file, said = Path("mine.py"), []
    file.write_text("import other\nfrom attnref.numpy import attention as f", "utf-8")
    Path("other.py").write_text("x = 1", "utf-8")

    def run():
        said.clear()
        where = tmp_path / "run"
        collect("mine.py:f", FEW, where, resume=True, notice=said.append)
        return said

    assert run() == []
    assert run() == []
    Path("other.py").write_text("x = 2", "utf-8")
    assert run() == ["3 results are not kept: its source changed"]
    assert run() == []


# ----------------------------------------------------------- another interpreter


@pytest.fixture(scope="module")
def other_python(tmp_path_factory):
    """An environment that has NumPy, safetensors and ml-dtypes, and nothing else."""
    place = tmp_path_factory.mktemp("environment")
    command = [sys.executable, "-m", "venv", "--without-pip", "--symlinks", place]
    subprocess.run(command, check=True)
    (packages,) = place.glob("lib/*/site-packages")
    for name in ("numpy", "safetensors", "ml_dtypes"):
        home = Path(__import__(name).__file__).parent
        (packages / name).symlink_to(home)
        if (libraries := home.with_name(f"{name}.libs")).exists():
            (packages / libraries.name).symlink_to(libraries)
    return place / "bin" / "python"


ELSEWHERE = """
import sys
import numpy

def zeros(q, k, v):
    return numpy.zeros(q.shape[:-1] + v.shape[-1:], q.dtype)

def packages(q, k, v):
    tops = {name.partition(".")[0] for name in sys.modules}
    raise ValueError(sorted(tops - sys.stdlib_module_names - {"__main__"}))
"""


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A module of subjects, without the path by which the judge is found here."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    (tmp_path / "mine.py").write_text(ELSEWHERE, "utf-8")
    return tmp_path / "mine.py"


def test_a_subject_runs_in_another_environment(tmp_path, elsewhere, other_python):
    options = {"python": str(other_python)}
    collect(f"{elsewhere}:zeros", FEW, tmp_path / "run", **options)
    results = read_results(tmp_path / "run")
    assert [result.status for result in results.values()] == ["done"] * 3
    collect(f"{elsewhere}:packages", FEW[:1], tmp_path / "other", **options)
    (result,) = read_results(tmp_path / "other").values()
    names = ["attncheck", "attnref", "ml_dtypes", "numpy", "safetensors"]
    assert all(f"'{name}'" in result.message for name in names)
    assert "einops" not in result.message


@pytest.mark.parametrize(
    ("python", "says"),
    [
        ("no/such/python", "'no/such/python' cannot be run: No such file"),
        (sys.executable + "-config", "cannot be run"),
        ("/bin/false", "'/bin/false' is no Python that can be used"),
    ],
)
def test_what_is_no_interpreter_is_named(tmp_path, python, says):
    ended = attncheck("run", "attnref.numpy", "--case", "plain/*", "--python", python)
    assert ended.returncode == 2
    assert says in ended.stderr
    assert "Traceback" not in ended.stderr


def test_an_environment_that_lacks_something_is_told_how_to_get_it(
    tmp_path, other_python
):
    (link,) = other_python.parent.parent.glob("lib/*/site-packages/safetensors")
    home = link.readlink()
    link.unlink()
    with pytest.raises(SubjectError) as caught:
        collect("attnref.numpy", FEW, tmp_path, python=str(other_python))
    link.symlink_to(home)
    how = f"{other_python} -m pip install safetensors"
    assert str(caught.value) == f"{str(other_python)!r} lacks safetensors: {how}"

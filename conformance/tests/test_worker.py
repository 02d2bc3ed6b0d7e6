"""What a subject does with a case is recorded as what it is."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from attncheck import frameworks
from attncheck.case import DTYPES
from attncheck.exchange import Result, read_arrays, write_cases
from attncheck.serving import EXIT_SUBJECT
from attncheck.subject import Subject
from attncheck.suite import cases
from attncheck.worker import run_case, start

CASES = {case.id: case for case in cases(dtypes=("F32",))}
PLAIN = CASES["plain/F32"]
BIASED = CASES["bias-full/F32"]
WITH_LSE_GRADIENT = next(c for c in CASES.values() if "lse-gradient" in c.clauses)
MULTI_HEAD = next(c for c in CASES.values() if c.op == "multi_head_attention")


def zeros(q, k, v, **options):
    """The right shape and type, and nothing else."""
    return np.zeros(q.shape[:-1] + v.shape[-1:], q.dtype)


def gradients(d_out, q, k, v, *, d_lse=None, bias=None, **options):
    found = [np.zeros_like(x) for x in (q, k, v)]
    return (*found, None if bias is None else np.zeros_like(bias))


def subject(call=zeros, accepts=("mask", "bias", "scale"), **declared) -> Subject:
    return Subject(
        call=call,
        framework="numpy",
        name="mine",
        accepts=frozenset(accepts),
        **declared,
    )


def run(case, call=zeros, **declared) -> Result:
    return run_case(subject(call, **declared), case, {"name": "mine"})


def test_a_result_is_what_the_subject_returned():
    result = run(PLAIN)
    assert (result.id, result.status, result.message) == (PLAIN.id, "done", "")
    assert result.subject == {"name": "mine"}
    assert result.seconds >= 0
    assert list(result.arrays) == ["output"]
    assert not result.arrays["output"].any()


def test_results_are_named_by_the_declaration():
    def call(q, k, v, **options):
        output = zeros(q, k, v)
        return output[..., 0] + 1, output

    result = run(PLAIN, call, returns=("lse", "output"))
    assert (result.arrays["lse"] == 1).all()
    assert (result.arrays["output"] == 0).all()


def test_a_result_that_the_case_does_not_want_is_left_out():
    case = replace(PLAIN, wants=("lse",))
    assert run(case).arrays == {}


def test_options_are_given_by_what_the_call_calls_them():
    def call(q, k, v, *, added):
        assert (added == BIASED.inputs["bias"]).all()
        return zeros(q, k, v)

    asked = {"keywords": {"bias": "added"}, "grad": gradients}
    result = run(BIASED, call, accepts=("bias",), **asked)
    assert (result.status, result.message) == ("done", "")
    assert "dbias" in result.arrays


def test_a_default_scale_is_not_passed():
    def call(q, k, v, **options):
        assert options == {}
        return zeros(q, k, v)

    assert PLAIN.scale is None
    assert run(PLAIN, call).status == "done"


def test_options_are_passed_by_keyword():
    seen = {}

    def call(q, k, v, **options):
        seen.update(options)
        return zeros(q, k, v)

    case = CASES["scale-zero-causal/F32"]
    assert run(case, call).status == "done"
    assert seen.keys() == {"mask", "scale"}
    assert seen["scale"] == 0.0
    assert (seen["mask"] == case.inputs["mask"]).all()


def test_a_case_that_needs_more_than_is_accepted_is_not_applicable():
    def call(q, k, v, **options):
        raise AssertionError("called all the same")

    result = run(BIASED, call, accepts=("mask",))
    assert (result.status, result.message) == ("not applicable", "takes no `bias`")
    result = run(MULTI_HEAD, call)
    assert (result.status, result.message) == (
        "not applicable",
        "has no multi-head attention",
    )


def test_a_refusal_is_told_apart_from_an_error():
    def refuse(q, k, v, **options):
        raise NotImplementedError("`scale` must not be negative")

    result = run(PLAIN, refuse)
    assert (result.status, result.message) == (
        "refused",
        "`scale` must not be negative",
    )


def raising(error):
    def call(q, k, v, **options):
        raise error

    return call


MENDED = "return that, or declare an `attncheck.Subject` with what it `returns`"

ERRORS = {
    "exception": (raising(ValueError("no")), "ValueError: no"),
    "exit": (raising(SystemExit(3)), "SystemExit: 3"),
    "recursion": (raising(RecursionError("deep")), "RecursionError: deep"),
    "memory": (raising(MemoryError()), "MemoryError: "),
    "list": (
        lambda q, k, v, **o: zeros(q, k, v).tolist(),
        "TypeError: `output` is a list, not an array of numpy",
    ),
    "none": (
        lambda q, k, v, **o: None,
        "TypeError: `output` is a NoneType, not an array of numpy",
    ),
    "scalar": (
        lambda q, k, v, **o: q.sum(),
        "TypeError: `output` is a float32, not an array of numpy",
    ),
    "tuple": (
        lambda q, k, v, **o: (zeros(q, k, v), None),
        "TypeError: returned 2 values, but declares output: " + MENDED,
    ),
    "tuple of one": (
        lambda q, k, v, **o: (zeros(q, k, v),) * 3,
        "TypeError: returned 3 values, but declares output: " + MENDED,
    ),
}


@pytest.mark.parametrize(("call", "says"), ERRORS.values(), ids=ERRORS)
def test_what_goes_wrong_in_a_call_is_an_error_that_says_what(call, says):
    result = run(PLAIN, call)
    assert (result.status, result.message) == ("error", says)
    assert result.arrays == {}


def test_a_declared_tuple_that_does_not_come_is_an_error():
    result = run(PLAIN, returns=("output", "lse"))
    assert result.status == "error"
    declared = "returned no tuple, but declares output, lse"
    assert result.message == f"TypeError: {declared}: {MENDED}"


@pytest.mark.parametrize("name", ["q", "k", "v", "mask", "bias"])
def test_an_argument_changed_in_place_is_an_error_that_names_it(name):
    case = CASES["blocked-bias-large/F32"] if name == "mask" else BIASED

    def call(q, k, v, **options):
        array = ({"q": q, "k": k, "v": v} | options)[name]
        array[...] = ~array if array.dtype == bool else array + 1
        return zeros(q, k, v)

    result = run(case, call)
    assert result.status == "error"
    assert f"changed its argument `{name}` in place" in result.message


def test_a_case_is_never_changed():
    before = {name: array.copy() for name, array in PLAIN.inputs.items()}

    def call(q, k, v, **options):
        q += 1
        return zeros(q, k, v)

    run(PLAIN, call)
    for name, array in PLAIN.inputs.items():
        assert array.tobytes() == before[name].tobytes()


def test_without_autodiff_and_grad_there_are_no_gradients():
    assert set(run(BIASED).arrays) == {"output"}


@pytest.mark.parametrize("case", [PLAIN, BIASED, WITH_LSE_GRADIENT], ids=lambda c: c.id)
def test_grad_gives_every_gradient_that_the_case_wants(case):
    result = run(case, grad=gradients, accepts=("mask", "bias", "scale", "softcap"))
    given = {name for name in result.arrays if name.startswith("d")}
    assert given == {name for name in case.wants if name.startswith("d")}


@pytest.mark.parametrize(
    ("case", "name"),
    [(BIASED, "d_out"), (BIASED, "bias"), (WITH_LSE_GRADIENT, "d_lse")],
    ids=["d_out", "bias", "d_lse"],
)
def test_grad_is_given_the_incoming_gradients_and_the_options(case, name):
    seen = {}

    def grad(d_out, q, k, v, **options):
        seen.update(options, d_out=d_out)
        return gradients(d_out, q, k, v, **options)

    assert run(case, grad=grad).status == "done"
    assert (seen[name] == case.inputs[name]).all()


@pytest.mark.parametrize(
    "found", [None, [0, 0, 0], lambda q, k, v: (q, k)], ids=["none", "list", "short"]
)
def test_a_grad_that_returns_too_little_is_an_error(found):
    def grad(d_out, q, k, v, **options):
        return found(q, k, v) if callable(found) else found

    result = run(PLAIN, grad=grad)
    assert result.status == "error"
    assert "`grad` must return a tuple of dq, dk, dv" in result.message


def test_multi_head_gets_its_parameters_by_name():
    seen = {}

    def multi_head(params, x, context=None, **options):
        seen.update(params, x=x, context=context, **options)
        return np.zeros_like(x)

    result = run(MULTI_HEAD, multi_head=multi_head)
    assert result.status == "done"
    assert result.arrays["output"].shape == MULTI_HEAD.inputs["x"].shape
    for name, array in MULTI_HEAD.inputs.items():
        assert (seen[name] == array).all()


TARGET = """
import os
import sys
import numpy

def noisy(q, k, v):
    print("on stdout")
    os.write(1, b"from C")
    if sys.stdin.read() == "":
        print("read nothing")
    return attention(q, k, v)

def attention(q, k, v, *, mask=None):
    return numpy.zeros(q.shape[:-1] + v.shape[-1:], q.dtype)

def wide(q, k, v):
    return numpy.zeros(q.shape[:-1] + v.shape[-1:], object)

def other(q, k, v, heads): ...
"""


@pytest.fixture
def target(tmp_path, monkeypatch):
    """Makes a target of a function's name."""
    monkeypatch.setattr(sys, "modules", sys.modules.copy())
    file = tmp_path / "targets_of_a_test.py"
    file.write_text(TARGET, "utf-8")
    return lambda name: f"{file}:{name}"


def answers(folder, target, chosen, *tasks):
    """What a worker says first, and to every task."""
    write_cases(folder, chosen)
    hello, job = start(folder, target)
    return hello, [job(task) for task in tasks]


def test_a_worker_says_who_the_subject_is_and_what_does_not_apply(tmp_path, target):
    chosen = [CASES[f"{name}/F32"] for name in ("plain", "bias-full", "mask-single")]
    hello, _ = answers(tmp_path, target("attention"), chosen)
    assert hello["subject"]["framework"] == "numpy"
    assert hello["lacking"] == [None, "takes no `bias`", None]


def test_an_answer_is_a_record_whose_arrays_are_in_the_folder(tmp_path, target):
    chosen = [PLAIN, CASES["mask-single/F32"]]
    _, (record,) = answers(tmp_path, target("attention"), chosen, "1")
    assert (record["id"], record["status"]) == ("mask-single/F32", "done")
    assert list(read_arrays(tmp_path / record["file"])) == ["output"]


def test_arrays_that_no_file_can_hold_are_an_error(tmp_path, target):
    _, (record,) = answers(tmp_path, target("wide"), [PLAIN], "0")
    assert (record["status"], record["file"]) == ("error", None)
    assert "object" in record["message"]


def process(folder, target, tasks=""):
    """A worker in a process of its own, when it has ended."""
    return subprocess.run(
        [sys.executable, "-m", "attncheck.worker", folder, target],
        input=tasks,
        capture_output=True,
        text=True,
    )


def test_what_a_subject_prints_is_no_answer(tmp_path, target):
    write_cases(tmp_path, [PLAIN])
    ended = process(tmp_path, target("noisy"), "0\n0\n")
    said = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [answer["task"] for answer in said] == [None, "0", "0"]
    assert [answer["answer"].get("status") for answer in said] == [None, "done", "done"]
    for place in ("on stdout", "from C", "read nothing"):
        assert ended.stderr.count(place) == 2
    assert ended.returncode == 0


@pytest.mark.parametrize("name", ["other", "absent"])
def test_what_is_no_subject_ends_a_worker_with_a_last_line_that_says_why(
    tmp_path, target, name
):
    write_cases(tmp_path, [PLAIN])
    ended = process(tmp_path, target(name))
    assert ended.returncode == EXIT_SUBJECT
    assert "targets_of_a_test.py" in ended.stderr.splitlines()[-1]
    assert ended.stdout == ""


def test_an_error_of_many_lines_is_told_in_one(tmp_path):
    write_cases(tmp_path, [PLAIN])
    file = tmp_path / "lines.py"
    file.write_text("raise RuntimeError('first\\nsecond')\n")
    ended = process(tmp_path, f"{file}:f")
    assert ended.returncode == EXIT_SUBJECT
    assert "first second" in ended.stderr.splitlines()[-1]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_subject_gets_the_bits_of_the_case(dtype):
    (case,) = (c for c in cases(dtypes=(dtype,)) if c.id == f"blocked-stale/{dtype}")

    def call(q, k, v, **options):
        for name, array in {"q": q, "k": k, "v": v}.items():
            assert array.dtype == case.inputs[name].dtype
            assert array.tobytes() == case.inputs[name].tobytes()
        return zeros(q, k, v)

    assert run(case, call).status == "done"


def test_a_subject_gets_arrays_in_the_memory_that_the_case_says():
    case = CASES["memory-packed/F32"]

    def call(q, k, v, **options):
        _, n, i, d = q.shape
        assert q.strides == tuple(4 * s for s in (i * 3 * n * d, d, 3 * n * d, 1))
        return zeros(q, k, v)

    assert run(case, call).status == "done"


def test_a_case_for_a_compiler_is_not_applicable_where_there_is_none():
    case = replace(PLAIN, compiled=True)
    result = run(case)
    assert (result.status, result.message) == (
        "not applicable",
        "numpy has no compiler",
    )


@pytest.fixture
def compiler(monkeypatch):
    """Gives NumPy a compiler, and takes it away again."""

    def install(compiled):
        numpy = frameworks.adapter("numpy")
        monkeypatch.setattr(numpy, "compiled", compiled, raising=False)
        monkeypatch.setattr(numpy, "no_compiler", lambda: None)

    return install


def test_a_case_for_a_compiler_goes_through_it(compiler):
    compiler(lambda call: lambda *arrays, **options: call(*arrays, **options) + 1)
    result = run(replace(PLAIN, compiled=True))
    assert result.status == "done"
    assert (result.arrays["output"] == 1).all()
    assert not run(PLAIN).arrays["output"].any()


def test_what_cannot_be_compiled_is_not_applicable_and_says_why(compiler):
    def refuse(call):
        raise TypeError("a branch on a value")

    compiler(refuse)
    result = run(replace(PLAIN, compiled=True))
    assert (result.status, result.message) == (
        "not applicable",
        "cannot be compiled: TypeError: a branch on a value",
    )


def test_a_worker_ends_with_the_process_that_started_it(tmp_path):
    """The starter is killed while the subject hangs; its worker goes too."""
    write_cases(tmp_path, [PLAIN])
    (tmp_path / "hangs.py").write_text(
        "import numpy, pathlib\n"
        "def f(q, k, v):\n"
        "    pathlib.Path('at-the-case').touch()\n"
        "    while True:\n"
        "        pass\n",
        "utf-8",
    )
    worker = f"'-m', 'attncheck.worker', {str(tmp_path)!r}, 'hangs.py:f'"
    starter = (
        "import subprocess, sys\n"
        f"process = subprocess.Popen([sys.executable, {worker}], stdin=-1, text=True)\n"
        "process.communicate('0\\n')\n"
    )
    started = subprocess.Popen(
        [sys.executable, "-c", starter],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    while not (tmp_path / "at-the-case").exists():
        assert started.poll() is None
    started.kill()
    # The worker holds the pipe: this waits for its end, and for no other.
    said, _ = started.communicate(timeout=60)
    assert said.count("\n") == 1

"""`attncheck gpu`, as far as it can be run without one: with a device of its own."""

import json
import subprocess
import sys

import pytest
import torch

from attncheck import gpu
from attncheck.gpu import clock, correct, page, timing, work
from attncheck.gpu.timing import SHAPES, Ceilings, Shape, alternate, compared
from attncheck.subjects.sdpa import subject

SMALL = Shape("small", b=2, h=2, g=3, i=3, j=5, d=4, is_causal=True, has_backward=True)


class Fake:
    """A device whose calls take the seconds that are given, by name, in order."""

    def __init__(self, seconds=()):
        self.seconds, self.log, self.clock = iter(seconds), [], 0.0

    def flush(self):
        self.log.append("flush")

    def timed(self, call):
        self.log.append(call())
        taken = next(self.seconds, 1.0)
        self.clock += taken
        return lambda: taken

    def peak(self, call):
        call()
        return 3 * 2**20

    def now(self):
        return self.clock


# ------------------------------------------------------------------------------ timing


def test_backends_are_timed_in_turns_each_from_cold_caches():
    device = Fake([1, 2, 3, 4, 5, 6])
    calls = {name: lambda name=name: name for name in "abc"}
    found = alternate(device, calls, rounds=2)
    timed = [x for x in device.log if x != "flush"]
    assert timed == ["a", "b", "c", "b", "c", "a"]
    assert device.log[::2] == ["flush"] * 6
    assert found == {"a": [1, 6], "b": [2, 4], "c": [3, 5]}


@pytest.mark.parametrize("shape", [*SHAPES, SMALL])
def test_visible_pairs_are_counted_right(shape):
    i, j = shape.i, shape.j
    if i * j < 100:
        assert shape.pairs == int(torch.ones(i, j).tril(j - i).sum())
    elif shape.is_causal:  # the closed form of a triangle at the lower right
        assert shape.pairs == i * (j - i) + i * (i + 1) // 2
    else:
        assert shape.pairs == i * j


def test_operations_and_bytes_are_those_of_the_formulas():
    shape = Shape("x", b=2, h=3, g=2, i=4, j=5, d=8)
    heads = 2 * 3 * 2
    assert shape.operations == heads * 4 * 5 * 4 * 8
    arrays = heads * 4 * 8 * 2 + 2 * 3 * 5 * 8 * 2
    assert shape.bytes == 2 * arrays
    training = Shape("x", b=2, h=3, g=2, i=4, j=5, d=8, has_backward=True)
    assert training.operations == 3.5 * shape.operations


def test_medians_are_compared_with_the_best_and_the_ceilings():
    shape = Shape("x", b=1, h=1, g=1, i=10, j=10, d=10)
    reached = Ceilings(operations=4000.0, bytes=1e9)
    times = {"slow": [4.0, 4.0, 100.0], "fast": [2.0, 1.0, 2.0]}
    fast, slow, other = compared(
        shape, times, {"slow": 1, "fast": 2}, {"other": "no"}, reached
    )
    assert (fast.backend, fast.seconds, fast.to_best, fast.peak) == ("fast", 2.0, 1, 2)
    assert (slow.backend, slow.seconds, slow.to_best) == ("slow", 4.0, 2.0)
    assert fast.rate == shape.operations / 2
    assert fast.of_ceiling == pytest.approx(1 / 2)
    assert (other.seconds, other.why) == (None, "no")


def test_every_backend_that_runs_here_is_timed_and_the_others_say_why(monkeypatch):
    monkeypatch.setattr(work, "BACKENDS", ("flash", "cudnn", "math"))
    found = work.of_shape(Fake(), SMALL, work.call_of, Ceilings(1.0, 1.0))
    by_name = {one.backend: one for one in found}
    assert by_name["flash"].seconds == by_name["math"].seconds == 1.0
    assert by_name["flash"].peak == 3 * 2**20
    assert "PyTorch has it on CUDA" in by_name["cudnn"].why


def test_no_shape_is_begun_after_the_limit(monkeypatch):
    monkeypatch.setattr(work, "ceilings", lambda device: Ceilings(1.0, 1.0))
    found = list(work.timings(Fake(), limit=-1.0, say=print))
    assert len(found) == len(SHAPES) * len(work.BACKENDS)
    assert {one.why for one in found} == {"not measured: no time was left"}


# ------------------------------------------------------------------------- correctness


def some(*settings):
    return lambda: iter(settings)


def test_the_recipes_are_all_there():
    cases = correct.cases_of("F32", correct.EVERY)
    assert {case.id.partition("@")[0] for case in cases} == set(correct.EVERY)
    assert set(correct.FEW) <= set(correct.EVERY)


def test_every_backend_is_judged_in_every_precision():
    found = list(correct.settings())
    assert len(found) == 7 * 4
    profiles = {(one.backend, one.precision): one.profile for one in found}
    assert profiles["flash", "TF32"] == "tf32"
    assert profiles["flash", "F32"] == profiles["math", "BF16"] == "strict"
    assert profiles["cudnn", "F16"] == "tensor-core"


def test_right_backends_pass_and_wrong_ones_do_not(monkeypatch):
    setting = correct.Setting("math", "F32", "strict")
    monkeypatch.setattr(correct, "settings", some(setting))
    names = ("plain", "causal-upper-left", "softcap")
    monkeypatch.setattr(correct, "EVERY", names)

    def wrong(backend):
        right = subject(backend)

        def call(*arrays, **options):
            return (right.call(*arrays, **options)[0] * 1.01,)

        return type(right)(
            call=call,
            framework="torch",
            name="wrong",
            accepts=right.accepts,
            profile="strict",
        )

    (good,) = correct.check(Fake(), subject, 1.0, print)
    (bad,) = correct.check(Fake(), wrong, 1.0, print)
    assert (good.passed, good.failed, good.left_out) == (2, {}, 1)
    assert 0 < good.used < 1
    assert set(bad.failed) == {"plain@gpu/F32", "causal-upper-left@gpu/F32"}
    assert "of the budget" in bad.failed["plain@gpu/F32"]


def test_what_a_backend_refuses_is_kept_with_its_reason(monkeypatch):
    setting = correct.Setting("cudnn", "BF16", "tensor-core")
    monkeypatch.setattr(correct, "settings", some(setting))
    monkeypatch.setattr(correct, "EVERY", ("plain",))
    (found,) = correct.check(Fake(), subject, 1.0, print)
    assert found.passed == 0
    (why,) = found.refused.values()
    assert "PyTorch has it on CUDA" in why


def test_no_case_is_begun_after_the_limit(monkeypatch):
    setting = correct.Setting("math", "F32", "strict")
    monkeypatch.setattr(correct, "settings", some(setting))
    (found,) = correct.check(Fake(), subject, -1.0, print)
    assert (found.passed, found.left_out) == (0, len(correct.EVERY))


def test_tf32_is_on_where_it_is_asked_for_and_off_again():
    before = torch.get_float32_matmul_precision()
    with correct.tf32(True):
        assert torch.get_float32_matmul_precision() == "high"
    with correct.tf32(False):
        assert torch.get_float32_matmul_precision() == "highest"
    assert torch.get_float32_matmul_precision() == before


# ---------------------------------------------------------------- the page, the command


def test_the_page_says_what_was_found():
    checked = [
        correct.Checked("flash", "BF16", "tensor-core", passed=3, used=0.5),
        correct.Checked("cudnn", "F16", "tensor-core", refused={"a": "no", "b": "no"}),
        correct.Checked("math", "F32", "strict", failed={"c": "off"}),
    ]
    timed = [
        timing.Timing("prefill", "flash", 0.002, 0.01, 5e14, 1.0, 0.6, 2**20),
        timing.Timing("prefill", "cudnn", why="not measured: no time was left"),
    ]
    found = page.document("now", {"device": "none"}, checked, timed, 1.25)
    assert json.loads(json.dumps(found)) == found
    text = "\n".join(page.lines(found))
    for words in (
        "flash    BF16       tensor-core  3       50%",
        "failed: math F32 c: off",
        "refused: cudnn F16: no\n",
        "prefill  flash    2.000  1%  500.0    1.00    60%         1",
        "prefill  cudnn    not measured: no time was left",
    ):
        assert words in text, text


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_device_it_says_so_in_one_sentence(capsys):
    assert gpu.main([]) == 0
    said = capsys.readouterr()
    assert said.out.count("\n") == 1
    assert "finds no CUDA device" in said.out


def test_the_whole_of_it_leaves_its_results_as_files(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(torch, "set_default_device", lambda device: None)
    monkeypatch.setattr(clock, "Cuda", Fake)
    monkeypatch.setattr(work, "machine", lambda: {"device": "none"})
    monkeypatch.setattr(work, "ceilings", lambda device: Ceilings(1e9, 1e9))
    monkeypatch.setattr(work, "SHAPES", (SMALL,))
    monkeypatch.setattr(work, "BACKENDS", ("math", "efficient"))
    setting = correct.Setting("math", "F32", "strict")
    monkeypatch.setattr(correct, "settings", some(setting))
    monkeypatch.setattr(correct, "EVERY", ("plain",))
    assert gpu._measure(tmp_path / "out", 60.0) == 0
    found = json.loads((tmp_path / "out" / "gpu.json").read_text("utf-8"))
    assert found["schema"] == "attncheck-gpu/1"
    assert [one["passed"] for one in found["correctness"]] == [1]
    assert [one["backend"] for one in found["timing"]] == ["math", "efficient"]
    text = (tmp_path / "out" / "gpu.txt").read_text("utf-8")
    assert text == capsys.readouterr().out


BARE = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names}:
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Absent())
import attncheck.gpu.correct, attncheck.gpu.page, attncheck.gpu.work
import attncheck.__main__
sys.argv = ["attncheck", "gpu"]
attncheck.__main__.main()
"""


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_it_needs_neither_an_install_nor_the_judges_packages(tmp_path):
    names = ("typer", "rich", "jinja2", "platformdirs", "filelock", "psutil", "jax")
    ended = subprocess.run(
        [sys.executable, "-c", BARE.format(names=names)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    assert "finds no CUDA device" in ended.stdout

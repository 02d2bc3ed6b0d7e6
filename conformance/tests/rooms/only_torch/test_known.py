"""Known failures of PyTorch's compiler on the CPU: the judge finds them and lives on.

What is wrong is so in the version that constraints.txt pins.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from attncheck.case import Case
from attncheck.collect import collect
from attncheck.exchange import read_results
from attncheck.frameworks import torch as adapter
from attncheck.judging import Judge
from attncheck.subject import Subject
from attncheck.verdict import judge
from attncheck.worker import run_case

from . import compiled_programs

POSITIONS_FIRST = {"q": "b i n d", "k": "b j h d", "v": "b j h e"}
"""How a model that has not moved its heads yet keeps them in memory."""

pytestmark = [
    # Inductor's own imports use what torch deprecates.
    pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@pytest.fixture(autouse=True)
def compiler(monkeypatch):
    monkeypatch.setenv(adapter.COMPILE, "1")
    if why := adapter.no_compiler():
        pytest.skip(f"not run: {why}")


def square(*names, **options):
    """A case of which all axes are 4."""
    rng = np.random.default_rng(0)
    shape = (4, 4, 4, 4)
    inputs = {name: rng.normal(size=shape).astype(np.float32) for name in names}
    wants = ("output",)
    return Case("square", (), "", "F32", inputs, wants=wants, **options)


def verdicts(call, case, *accepts):
    """Of the call as it is, and compiled."""
    subject = Subject(
        call=call, framework="torch", name="known", accepts=frozenset(accepts)
    )
    found, judged = Judge(), []
    for one in (case, replace(case, compiled=True)):
        bounds = found.budget(one, "strict").bounds
        result = run_case(subject, one, {})
        judged.append(judge(one, found.expected(one), bounds, result))
    return judged


def test_a_permuted_key_is_wrong_once_compiled():
    case = square("q", "k", "v", strides=POSITIONS_FIRST)
    eager, compiled = verdicts(compiled_programs.permuted, case)
    assert eager.status == "pass", eager
    assert compiled.status == "fail", compiled


def test_a_scale_that_is_a_tensor_cannot_be_compiled():
    case = square("q", "k", "v", "bias")
    eager, compiled = verdicts(compiled_programs.tensor_scale, case, "bias")
    assert eager.status == "pass", eager
    assert compiled.status == "not applicable", compiled
    assert "cannot be compiled" in compiled.message
    assert "argument 'scale'" in compiled.message


def test_the_process_that_a_compiled_score_mod_ends_costs_one_case(tmp_path):
    cases = [square("q", "k", "v", "bias"), square("q", "k", "v")]
    cases = [replace(case, id=f"case-{n}") for n, case in enumerate(cases)]
    target = f"{Path(compiled_programs.__file__)}:chained"
    collect(target, cases, tmp_path, jobs=1, timeout=400.0)
    crashed, done = (read_results(tmp_path, cases)[case.id] for case in cases)
    assert crashed.status == "crash", crashed
    assert done.status == "done", done

"""Pictures of errors: which failures, and what their cells say."""

import numpy as np
import pytest

from attncheck.case import Case
from attncheck.exchange import Result
from attncheck.heat import CELLS, PICTURES, heat, telling
from attncheck.judging import Folder, Judge
from attncheck.verdict import Finding, Verdict, Worst


def attention_case(name, clauses=("causal",), dtype="F32", i=4, j=5):
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, 2, n, 3)).astype("f4") for n in (i, j, j))
    inputs = {"q": q, "k": k, "v": v}
    return Case(name, clauses, "Why.", dtype, inputs, wants=("output",))


def failure(name, clauses=("causal",), result="output", **case):
    index = {"b": 0, "n": 1, "i": 2, "e": 0}
    worst = Worst(index, 1.0, 0.0, 9.0)
    finding = Finding(result, "fail", 9.0, worst)
    return Verdict(attention_case(name, clauses, **case), "fail", "", (finding,))


def test_cells_are_the_elements_at_the_worst_one():
    used = np.arange(24.0).reshape(1, 2, 3, 4) / 32
    picture = heat("output", {"b": 0, "n": 1, "i": 2, "e": 3}, used)
    assert (picture.rows, picture.columns, picture.sizes) == ("i", "e", (3, 4))
    assert picture.at == {"b": 0, "n": 1}
    np.testing.assert_allclose(picture.values, used[0, 1], rtol=0.1)


@pytest.mark.parametrize("size", [1, CELLS, CELLS + 1, 100, 1000])
def test_a_larger_matrix_is_drawn_by_its_worst_elements(size):
    used = np.zeros((1, size, 3))
    used[0, size - 1, 1] = 5.0
    picture = heat("lse", {"b": 0, "n": size - 1, "i": 1}, used)
    cells = np.array(picture.values)
    assert cells.shape[0] <= CELLS
    assert (picture.sizes, cells.shape[1]) == ((size, 3), 3)
    assert cells[-1].tolist() == [0.0, 5.0, 0.0]
    assert cells.sum() == 5.0


def test_rounding_never_makes_a_failure_legal():
    used = np.array([[np.nextafter(1, 2), 1.0, 0.99999, np.inf]])
    assert heat("dq", {"j": 0, "d": 0}, used).values == [[1.1, 1.0, 1.0, np.inf]]


def test_the_simplest_of_each_kind_is_drawn_and_the_largest_of_each_clause():
    failures = [
        failure("large", i=8),
        failure("larger", i=9),
        failure("small", i=3),
        failure("other", ("window",), i=5),
        failure("gradient", result="dq", i=5),
        Verdict(attention_case("gone"), "crash", "SIGSEGV"),
    ]
    drawn = [verdict.case.id for verdict in telling(failures)]
    assert drawn == ["small", "gradient", "larger", "other"]


def test_not_everything_is_drawn():
    failures = [failure(str(n), (f"clause-{n}",)) for n in range(99)]
    assert len(telling(failures)) == PICTURES


def test_the_judge_draws_what_fails_where_it_fails():
    case = attention_case("mine", i=4, j=5)
    judge = Judge()
    output = judge.expected(case).output.astype("f4")
    output[0, 1, 2, 0] += 1
    result = Result("mine", "done", "", {"output": output})
    run = judge.run(Folder([case], {"mine": result}, {"name": "mine"}))
    picture = run.heats["mine"]
    over = np.argwhere(np.array(picture.values) > 1).tolist()
    assert (picture.at, over) == ({"b": 0, "n": 1}, [[2, 0]])


def test_the_judge_draws_nothing_of_what_passes():
    case = attention_case("mine")
    judge = Judge()
    output = judge.expected(case).output.astype("f4")
    result = Result("mine", "done", "", {"output": output})
    run = judge.run(Folder([case], {"mine": result}, {"name": "mine"}))
    assert (run.conforms, run.heats) == (True, {})

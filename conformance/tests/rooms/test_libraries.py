"""Libraries are called as they want to be: ordinary attention comes out right.

Of those that are installed in the session of a room.
"""

import numpy as np
import pytest

from attncheck.board import BOARD
from attncheck.judging import Judge
from attncheck.suite.fit import Takes, cases_for
from attncheck.target import load
from attncheck.worker import run_case

PLAIN = ("ungrouped", "causal-square", "padding", "bias-full")
"""Recipes in which every query has a key, and every number is finite."""

LEAST = {"torch": {"torch:mha", "torch:sdpa-math"}, "jax": {"jax:xla"}}
"""Room → what comes with its framework."""

SLOW = ("pallas:", "torch:flex")
"""Begin the names of what takes seconds a case."""


def of_room(name):
    """The libraries' subjects in the arrays of a room."""
    names = [n for n, one in BOARD.items() if not one.missing]
    made = [load(name) for name in names if not name.startswith(SLOW)]
    return {one.name: one for one in made if one.framework == name}


def fitted(subject):
    """Recipe → its case in float32, in a shape that the library takes."""
    ours = subject.conventions
    takes = Takes(ours.heads is not None, ours.value_width == "any")
    found = cases_for(takes, "forward")
    return {case.id.partition("/")[0].partition("@")[0]: case for case in found}


def test_ordinary_attention_by_a_library_is_what_the_definition_says(room):
    if room.name not in LEAST:
        pytest.skip(f"no library of the board has {room.name} arrays alone")
    subjects = of_room(room.name)
    assert LEAST[room.name] <= subjects.keys()
    for subject in subjects.values():
        cases, done = fitted(subject), 0
        for recipe in PLAIN:
            result = run_case(subject, cases[recipe], {})
            assert result.status in ("done", "refused", "not applicable"), result
            if result.status == "done":
                want = Judge().expected(cases[recipe])
                for name, array in result.arrays.items():
                    error = np.abs(array - getattr(want, name)).max()
                    assert error < 1e-4, (subject.name, recipe, name)
                done += 1
        refuses_all = subject.name in ("torch:sdpa-efficient", "torch:sdpa-cudnn")
        assert bool(done) != refuses_all, subject.name

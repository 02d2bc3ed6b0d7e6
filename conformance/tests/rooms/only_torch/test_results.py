"""Results that are no tensors of their own, where the arguments are, are errors."""

import pytest

from attncheck.subject import Subject
from attncheck.suite import cases
from attncheck.worker import run_case

(SQUARE,) = (case for case in cases(dtypes=("F32",)) if case.id == "coincidence/F32")
"""Its output has the shape of q."""


def outcome(call):
    subject = Subject(call=call, framework="torch", name="mine", accepts=frozenset())
    result = run_case(subject, SQUARE, {})
    return result.status, result.message


SHARED = "ValueError: `output` shares its memory with the argument `q`"
WRONG = {
    "elsewhere": (
        lambda q, k, v: q.to("meta"),
        "ValueError: `output` is on meta, but the arguments are on cpu",
    ),
    "argument": (lambda q, k, v: q, SHARED),
    "view": (lambda q, k, v: q.transpose(1, 2)[..., 1:], SHARED),
    "sparse": (lambda q, k, v: q.to_sparse(), "TypeError: its results cannot be read"),
}


@pytest.mark.parametrize(("call", "says"), WRONG.values(), ids=WRONG)
def test_what_is_no_tensor_of_its_own_is_an_error_that_says_what(call, says):
    status, message = outcome(call)
    assert status == "error"
    assert message.startswith(says)


def test_a_copy_is_a_tensor_of_its_own():
    assert outcome(lambda q, k, v: q.clone()) == ("done", "")

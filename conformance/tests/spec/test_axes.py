"""One letter, one meaning."""

import pytest

from attnref.spec import AXES
from attnref.spec.axes import MAY_BE_EMPTY


def test_the_letters_are_those_of_the_spec():
    assert set(AXES) == set("bnhgijdecmrap")


def test_no_two_letters_mean_the_same():
    assert len(set(AXES.values())) == len(AXES)


def test_the_table_cannot_be_changed():
    with pytest.raises(TypeError):
        AXES["z"] = "anything"


def test_only_batch_queries_and_keys_may_be_missing():
    assert set("bij") == MAY_BE_EMPTY
    assert set(AXES) >= MAY_BE_EMPTY

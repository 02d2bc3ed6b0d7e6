"""What an implementation may declare, and that the spec is the default."""

import math
from dataclasses import FrozenInstanceError, fields

import pytest

from attnref.spec import SPEC, Conventions


def test_the_default_is_the_spec():
    assert Conventions() == SPEC
    assert SPEC.differences() == {}


def test_the_spec_is_the_axiom():
    assert SPEC.mask_true == "attend"
    assert SPEC.fill == -math.inf
    assert SPEC.empty_row == SPEC.empty_row_bias == "zero"
    assert SPEC.lse_empty == -math.inf
    assert SPEC.nan_blocked_k == SPEC.nan_blocked_v == "hidden"
    assert SPEC.nan_visible == "shown"


def test_differences_are_named_with_both_values():
    other = Conventions(causal="lower-right", fill=-1e4, lse=None, layout="b i n d")
    assert other.differences() == {
        "layout": ("b i n d", "b n i d"),
        "causal": ("lower-right", "upper-left"),
        "fill": (-1e4, -math.inf),
        "lse": (None, "e"),
    }


@pytest.mark.parametrize(
    ("name", "value", "choices"),
    [
        ("mask_true", "keep", "'attend', 'block', None"),
        ("causal", None, "'upper-left', 'lower-right'"),
        ("empty_row", "zeros", "'zero', 'mean', 'nan', 'refuse'"),
        ("lse", 2.0, "'e', 2, None"),
        ("lse", 10, "'e', 2, None"),
        ("fill", "-inf", "a float"),
        ("fill", True, "a float"),
        ("layout", None, "a str"),
        ("weight_layout", 3, "a str, None"),
        ("dropout_rescale", 1, "a bool"),
        ("sinks", None, "a bool"),
    ],
)
def test_an_unknown_value_is_refused_with_the_choices_named(name, value, choices):
    with pytest.raises(ValueError, match=r"^convention ") as error:
        Conventions(**{name: value})
    assert str(error.value) == f"convention `{name}` is one of {choices}, not {value!r}"


def test_an_unknown_field_is_refused():
    with pytest.raises(TypeError, match="mask_false"):
        Conventions(mask_false="attend")


def test_positions_are_refused():
    with pytest.raises(TypeError):
        Conventions("b n i d")


def test_a_value_is_frozen_and_hashable():
    with pytest.raises(FrozenInstanceError):
        SPEC.fill = 0.0
    assert len({SPEC, Conventions(), Conventions(sinks=True)}) == 2


@pytest.mark.parametrize("name", [f.name for f in fields(Conventions)])
def test_no_field_takes_anything(name):
    with pytest.raises(ValueError, match=f"`{name}`"):
        Conventions(**{name: object()})

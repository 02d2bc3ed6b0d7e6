"""The words of errors, on arrays that are nothing but a shape and a dtype."""

from typing import NamedTuple

import pytest

from attnref.spec.checks import bind_axes, check_arrays, check_attention, dtype_name


class Array(NamedTuple):
    shape: tuple
    dtype: str = "float32"


@pytest.mark.parametrize(
    ("dtype", "name"),
    [("float32", "float32"), ("torch.bfloat16", "bfloat16"), ("bool", "bool")],
)
def test_a_dtype_has_one_name_in_every_framework(dtype, name):
    assert dtype_name(Array((), dtype)) == name


def test_axes_are_read_off_the_arrays():
    arrays = {
        "q": (Array((2, 3, 5, 7)), "b n i d"),
        "k": (Array((2, 1, 0, 7)), "b h j d"),
    }
    assert bind_axes(arrays) == {"b": 2, "n": 3, "i": 5, "d": 7, "h": 1, "j": 0}


def test_the_example_of_the_grammar():
    q, k = Array((2, 8, 10, 64)), Array((2, 8, 12, 32))
    with pytest.raises(ValueError, match=r"^`k` must have") as error:
        bind_axes({"q": (q, "b n i d"), "k": (k, "b h j d")})
    assert str(error.value) == (
        "`k` must have query/key width d = 64 like `q`, but has 32 "
        "(q: b n i d = 2 8 10 64, k: b h j d = 2 8 12 32)"
    )


def test_a_letter_may_disagree_within_one_array():
    with pytest.raises(ValueError, match="like `w`, but has 3"):
        bind_axes({"w": (Array((2, 3)), "c c")})


def test_absent_arrays_are_not_looked_at():
    check_arrays(Array, {"q": Array(()), "bias": None})


def test_every_dtype_is_named_when_they_differ():
    arrays = {"q": Array(()), "k": Array((), "float16")}
    with pytest.raises(TypeError) as error:
        check_arrays(Array, arrays)
    assert str(error.value) == (
        "all inputs must share one dtype, but are q: float32, k: float16"
    )


def test_sizes_come_back_with_the_group():
    q, k, v = Array((2, 6, 5, 4)), Array((2, 3, 7, 4)), Array((2, 3, 7, 8))
    assert check_attention(Array, q, k, v) == {
        "b": 2, "n": 6, "i": 5, "d": 4, "h": 3, "j": 7, "e": 8, "g": 2,
    }  # fmt: skip

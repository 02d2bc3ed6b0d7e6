"""An array lies in memory as its layout says, and holds the same values."""

import numpy as np
import pytest

from attncheck import frameworks
from attncheck.case import DTYPES, Case
from attncheck.exchange import ExchangeError, read_cases, write_cases
from attncheck.layout import check, laid_out

SHAPE = (2, 3, 4, 5)
ORDERS = {
    None: (60, 20, 5, 1),
    "b n i d": (60, 20, 5, 1),
    "b i n d": (60, 5, 15, 1),
    "b n d i": (60, 20, 1, 4),
    "b i 3 n d": (180, 5, 45, 1),
    "b n i d 2": (120, 40, 10, 2),
    "b i d": (20, 0, 5, 1),
    "": (0, 0, 0, 0),
}
"""Layout → strides in elements, by hand."""


def drawn(order: str | None, dtype: np.dtype) -> np.ndarray:
    """Values that do not vary along the axes that the layout leaves out."""
    kept = "bnid" if order is None else order
    part = [n if axis in kept else 1 for axis, n in zip("bnid", SHAPE, strict=True)]
    values = np.random.default_rng(0).integers(-9, 9, part).astype(dtype)
    return np.array(np.broadcast_to(values, SHAPE))


@pytest.mark.parametrize("dtype", [*DTYPES.values(), np.dtype(bool)], ids=str)
@pytest.mark.parametrize(("order", "strides"), ORDERS.items(), ids=map(repr, ORDERS))
def test_a_copy_has_the_strides_of_its_layout_and_the_same_bits(order, strides, dtype):
    array = drawn(order, dtype)
    copy = laid_out(array, "bnid", order)
    assert tuple(s // copy.itemsize for s in copy.strides) == strides
    assert (copy.dtype, copy.tobytes()) == (array.dtype, array.tobytes())
    assert not np.shares_memory(copy, array)


@pytest.mark.parametrize("name", frameworks.installed())
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", ORDERS, ids=map(repr, ORDERS))
def test_a_framework_gets_the_bits_and_where_it_has_them_the_strides(
    name, dtype, order
):
    framework = frameworks.adapter(name)
    array = drawn(order, DTYPES[dtype])
    with framework.precision(dtype):
        native = framework.to_native(laid_out(array, "bnid", order))
        assert framework.to_numpy(native).tobytes() == array.tobytes()
    if name == "torch":
        assert native.stride() == ORDERS[order]
    if name == "numpy":
        assert native.strides == tuple(n * array.itemsize for n in ORDERS[order])


def test_what_lies_between_is_nan():
    array = laid_out(np.zeros((2, 3)), "ij", "i 2 j")
    memory = np.lib.stride_tricks.as_strided(array, (12,), (8,))
    assert np.isnan(memory.reshape(2, 2, 3)[:, 1]).all()


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
@pytest.mark.parametrize("order", ["j i", "i 2 j", ""])
def test_an_empty_array_may_have_any_layout(shape, order):
    array = np.zeros(shape)
    check("x", array, "ij", order)
    assert laid_out(array, "ij", order).shape == shape


REFUSED = {
    "unknown axis": ("b n i x", "made of the axes b n i d"),
    "twice": ("b n i i", "each at most once"),
    "no letters": ("bnid", "made of the axes b n i d"),
    "varies": ("b i d", "`q` is expanded along n, where it differs"),
}


@pytest.mark.parametrize(("order", "says"), REFUSED.values(), ids=REFUSED)
def test_a_layout_that_cannot_be_is_refused(order, says):
    array = np.arange(120.0).reshape(SHAPE)
    with pytest.raises(ValueError, match=says):
        check("q", array, "bnid", order)


def case(strides) -> Case:
    q, v = np.ones((1, 2, 3, 4), np.float32), np.ones((1, 2, 5, 4), np.float32)
    inputs, wants = {"q": q, "k": v, "v": v}, ("output",)
    return Case("a/F32", (), "A reason.", "F32", inputs, wants=wants, strides=strides)


def test_a_layout_of_no_input_is_refused():
    with pytest.raises(ValueError, match="a layout is given of `bias`"):
        case({"bias": "i j"})


def test_layouts_are_kept_in_files_and_are_part_of_the_hash(tmp_path):
    before = case({"q": "b i n d", "k": ""})
    write_cases(tmp_path, [before])
    (after,) = read_cases(tmp_path)
    assert after.strides == before.strides
    assert after.sha256 == before.sha256 != case({}).sha256


def test_a_file_with_a_layout_that_cannot_be_is_refused_with_its_place(tmp_path):
    write_cases(tmp_path, [case({"q": "b i n d"})])
    file = tmp_path / "cases.jsonl"
    file.write_text(file.read_text("utf-8").replace("b i n d", "b i n x"), "utf-8")
    with pytest.raises(ExchangeError, match=r"cases\.jsonl:1: the layout of `q`"):
        read_cases(tmp_path)

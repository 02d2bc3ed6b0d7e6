"""The conventions of `jax.nn.dot_product_attention` on a CPU, as they are measured."""

import pytest

from attncheck.diff import diff
from attncheck.fingerprint import fingerprint
from attncheck.report import fingerprint_summary
from attnref.spec import Conventions

from ..evidence import document, fingerprint_in, values


@pytest.fixture(scope="module")
def found():
    return fingerprint("jax.nn:dot_product_attention")


def test_its_keywords_are_recognised(found):
    assert found.calling.keywords == {
        "mask": "mask",
        "bias": "bias",
        "causal": "is_causal",
        "window": "local_window_size",
        "scale": "scale",
        "lse": "return_residual",
    }


def test_its_conventions(found):
    largest = 3.4028235e38
    assert found.conventions == Conventions(
        layout="b i n d",
        fill=float(f"{-0.7 * largest:.6g}"),
        empty_row="mean",
        empty_row_bias="nan",
        softcap=None,
        value_width="same",
        lse_empty=float(f"{-0.7 * largest:.6g}"),
        lse_dtype="input",
        softmax_dtype="float32",
        float64="float32",
        nan_blocked_v="leaks",
        weights=None,
    )


def test_what_it_does_not_take_or_return_is_not_measured(found):
    unmeasured = {name for name, one in found.readings.items() if not one.measured}
    assert unmeasured == {"weights_heads", "dropout_rescale"}


def test_its_precision(found):
    profiles = {dtype: one.value for dtype, one in found.profiles.items()}
    assert profiles == {
        "F64": None,  # computed in float32
        "F32": "strict",
        "BF16": "tensor-core",
        "F16": "tensor-core",
    }


def test_the_pages_show_what_is_measured(found):
    stored, here = document()["b"], fingerprint_summary(found)
    for part in ("conventions", "profiles"):
        assert values(here[part]) == values(stored[part])
    assert here["calling"] == stored["calling"]


def test_code_makes_a_call_of_it_mean_what_it_means_to_torch(found):
    torch = fingerprint_in(document()["a"])

    def measure(target, adapter):
        return fingerprint(target, framework="jax", keywords=adapter.keywords)

    between = diff(found, torch, measure)
    assert between.adapter is not None, between.no_adapter
    adapted = {one.field for one in between.differences if one.adapted}
    assert adapted == {"layout", "value_width", "mask_float", "empty_row"} | {
        "empty_row_bias"
    }
    why_not = {one.field: one.why_not for one in between.differences}
    assert why_not["float64"] == "digits are lost inside"
    assert why_not["nan_blocked_k"] == "nothing to imitate"
    assert between.left_out == ["dropout_rate"]

"""The conventions of `jax.nn.dot_product_attention` on a CPU, as they are measured."""

import pytest

from attncheck.fingerprint import fingerprint
from attnref.spec import Conventions


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

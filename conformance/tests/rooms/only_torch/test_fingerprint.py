"""The conventions of `scaled_dot_product_attention` on a CPU, as they are measured."""

import math

import pytest

from attncheck.diff import diff
from attncheck.fingerprint import fingerprint
from attncheck.report import fingerprint_summary
from attnref.spec import Conventions

from ..evidence import document, fingerprint_in, values


@pytest.fixture(scope="module")
def found():
    return fingerprint("torch.nn.functional:scaled_dot_product_attention")


def test_its_keywords_are_read_from_its_docstring(found):
    assert found.calling.keywords == {
        "mask": "attn_mask",
        "causal": "is_causal",
        "scale": "scale",
        "dropout_rate": "dropout_p",
        "grouped": "enable_gqa",
    }
    assert found.calling.arrays == ("query", "key", "value")


def test_its_conventions(found):
    assert found.conventions == Conventions(
        mask_float="add",
        window=None,
        fill=-math.inf,
        softcap=None,
        lse=None,
        nan_blocked_k="leaks",
        nan_blocked_v="leaks",
        nan_visible="hidden",
        weights=None,
    )


def test_what_it_does_not_return_is_not_measured(found):
    unmeasured = {name for name, one in found.readings.items() if not one.measured}
    assert unmeasured == {"lse_empty", "lse_dtype", "weights_heads"}


def test_what_depends_on_the_path_is_shown(found):
    """The flash backend takes a mask with the flag, math, for other widths, does not;
    and it applies the mask before a scale of 0 or less.
    """
    assert "another width: RuntimeError" in found.readings["mask_and_causal"].shown
    for name in ("scale_zero", "scale_negative"):
        assert "with the causal flag: NaN" in found.readings[name].shown


def test_its_precision(found):
    profiles = {dtype: one.value for dtype, one in found.profiles.items()}
    assert profiles == {
        "F64": "strict",
        "F32": "strict",
        "BF16": "tensor-core",
        "F16": "tensor-core",
    }


def test_the_pages_show_what_is_measured(found):
    stored, here = document()["a"], fingerprint_summary(found)
    for part in ("conventions", "profiles"):
        assert values(here[part]) == values(stored[part])
    assert here["calling"] == stored["calling"]


def test_code_makes_a_call_of_it_mean_what_it_means_to_jax(found, tmp_path):
    """The code that the pages show, run: it does all that it is shown to do."""
    stored = document()
    file = tmp_path / "adapter.py"
    file.write_text(stored["adapter"]["source"], "utf-8")
    judged = fingerprint(f"{file}:{stored['adapter']['name']}", framework="torch")
    here, there = (
        values(fingerprint_summary(judged)["conventions"]),
        values(stored["b"]["conventions"]),
    )
    adapted = [row["field"] for row in stored["differences"] if row["adapted"]]
    assert {"layout", "empty_row", "nan_blocked_k", "window"} <= set(adapted)
    assert {field: here[field] for field in adapted} == {
        field: there[field] for field in adapted
    }
    assert diff(found, fingerprint_in(stored["b"]), lambda *_: judged).adapter

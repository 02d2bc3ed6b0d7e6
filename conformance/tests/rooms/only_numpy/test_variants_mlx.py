"""Rotary positions, sinks and slopes are MLX's, where it is installed."""

from importlib.util import find_spec

import numpy as np
import pytest

from attnref.numpy import variants
from attnref.spec import alibi_slopes, causal

from ..variant_calls import SIZES, UNITS, draw, normal

pytestmark = pytest.mark.skipif(
    find_spec("mlx") is None, reason="mlx is not installed: pip install 'mlx[cpu]'"
)
ALLOWED = UNITS * 2.0**-24


@pytest.mark.parametrize(("width", "offset", "base"), [(6, 0, 10000), (4, 9, 500)])
@pytest.mark.parametrize("pairing", ["halves", "interleaved"])
def test_rotary_positions(width, offset, base, pairing):
    import mlx.core as mx

    x = normal(0, "b", "n", "i", "d", dtype="F32")
    options = {"traditional": pairing == "interleaved", "base": base, "scale": 1.0}
    want = np.array(mx.fast.rope(mx.array(x), width, offset=offset, **options))
    positions = np.arange(SIZES["i"]) + offset
    got = variants.rotate(x, positions, base=base, width=width, pairing=pairing)
    assert abs(got - want).max() <= ALLOWED


def test_sinks():
    import mlx.core as mx

    sizes = SIZES | {"i": 5, "e": 6}
    inputs = draw(sizes, "F32")
    sinks = normal(1, "n", dtype="F32")
    q, k, v, s = (mx.array(x) for x in (*inputs.values(), sinks))
    call = mx.fast.scaled_dot_product_attention
    want = np.array(call(q, k, v, scale=6**-0.5, mask="causal", sinks=s))
    got, _ = variants.sink_attention(**inputs, sinks=sinks, mask=causal())
    assert abs(got - want).max() <= ALLOWED


@pytest.mark.parametrize("n", range(1, 65))
def test_slopes(n):
    from mlx.nn import ALiBi

    want = np.array(ALiBi.create_alibi_slope(n)).reshape(-1)
    np.testing.assert_allclose(alibi_slopes(n), want, rtol=(n + 2) * 2.0**-23)

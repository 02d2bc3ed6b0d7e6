"""Arrays for approximations of attention, and whether a room is near the definition."""

from functools import partial

import numpy as np

from attncheck.budget import half_ulp
from attncheck.case import DTYPES

UNIT = {"F64": 2.0**-53, "F32": 2.0**-24, "BF16": 2.0**-24, "F16": 2.0**-24}
"""The unit roundoff of the accumulation type."""

SIZES = {"b": 2, "h": 2, "g": 2, "i": 6, "j": 10, "d": 4, "e": 3}


def draw(dtype, *, seed=0, **changed):
    """q, k and v of normal numbers."""
    size = SIZES | changed
    size["n"] = size["h"] * size["g"]
    rng = np.random.default_rng(seed)
    return [
        rng.normal(size=[size[x] for x in axes]).astype(DTYPES[dtype])
        for axes in ("bnid", "bhjd", "bhje")
    ]


def normal(dtype, *shape, seed=1):
    return np.random.default_rng(seed).normal(size=shape).astype(DTYPES[dtype])


def called(room, function, dtype, arrays, **options):
    """What the function makes of arrays, as NumPy arrays; None stays None."""
    with room.framework.precision(dtype):
        native = [room.array(x) for x in arrays]
        keywords = {
            name: room.array(x) if isinstance(x, np.ndarray) else x
            for name, x in options.items()
        }
        found = function(*native, **keywords)
        found = found if isinstance(found, tuple) else (found,)
        return [room.numpy(x) for x in found]


def share(got, want, bound, dtype):
    """The greatest share of what is allowed that is used; exact where nothing is.

    In float64 the definition rounds as much as the room does.
    """
    bound = 2 * bound if dtype == "F64" else bound
    assert np.isfinite(bound).all(), "nothing can be said of this case"
    wide = got.astype(np.float64)
    same = got == want
    with np.errstate(invalid="ignore"):  # −∞ − −∞, which `same` has seen
        used = abs(wide - want) / (bound + half_ulp(abs(want) + bound, got.dtype))
    return np.where(same, 0, used).max(initial=0)


def assert_near(found, want, dtype):
    """Output and log of the denominator lie within the bound."""
    assert found[0].dtype == DTYPES[dtype]
    assert found[0].shape == want.output.shape
    assert share(found[0], want.output, want.bound, dtype) <= 1
    if want.lse is not None:
        wide = np.float64 if dtype == "F64" else np.float32
        assert found[1].dtype == wide
        assert share(found[1], want.lse, want.lse_bound, dtype) <= 1


def assert_far(found, want, dtype):
    """The output does not lie within the bound: a fault is found."""
    assert share(found[0], want.output, want.bound, dtype) > 1


def unit(function, dtype):
    """A definition, for the accumulation type of a storage type."""
    return partial(function, u=UNIT[dtype])

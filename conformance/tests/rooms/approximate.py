"""Calls of approximations, and whether what a room makes of them is right."""

import numpy as np

from attncheck.budget import PROFILES, budget
from attncheck.case import DTYPES, Case
from attncheck.definition import expected
from attncheck.operations import OPERATIONS
from attncheck.subject import options
from attncheck.verdict import compare

SIZES = {"b": 2, "h": 2, "g": 2, "i": 6, "j": 10, "d": 4, "e": 3}


def draw(dtype, *, seed=0, **changed):
    """q, k and v of normal numbers, by name."""
    size = SIZES | changed
    size["n"] = size["h"] * size["g"]
    rng = np.random.default_rng(seed)
    return {
        name: rng.normal(size=[size[x] for x in axes]).astype(DTYPES[dtype])
        for name, axes in {"q": "bnid", "k": "bhjd", "v": "bhje"}.items()
    }


def normal(dtype, *shape, seed=1):
    return np.random.default_rng(seed).normal(size=shape).astype(DTYPES[dtype])


def call(name, dtype, inputs, *, scale=None, **settings):
    """A call of `name`_attention, as a case of the judge."""
    op = f"{name}_attention"
    case = Case("made", (), "", dtype, inputs, scale=scale, op=op, settings=settings)
    OPERATIONS[op].check(case)
    return case


def run(room, function, case, **instead):
    """What the function makes of a call; keywords take the place of its own."""
    own = options(case) | {k: x for k, x in case.inputs.items() if k not in "qkv"}
    return called(
        room, function, case.dtype, *(case.inputs[x] for x in "qkv"), **(own | instead)
    )


def called(room, function, dtype, *arrays, **options):
    """The function's results as NumPy arrays."""
    with room.framework.precision(dtype):
        native = [room.array(x) for x in arrays]
        keywords = {
            name: room.array(x) if isinstance(x, np.ndarray) else x
            for name, x in options.items()
        }
        found = function(*native, **keywords)
        found = found if isinstance(found, tuple) else (found,)
        return [room.numpy(x) for x in found]


def assert_right(found, case):
    """Every result is within the strict budget of the call."""
    want = expected(case)
    bounds = budget(case, want, PROFILES["strict"])
    names = OPERATIONS[case.op].returns
    for name, array in zip(names, found, strict=True):
        assert np.isfinite(bounds[name]).all()
        finding = compare(case, name, array, getattr(want, name), bounds[name])
        assert finding.status == "pass", finding

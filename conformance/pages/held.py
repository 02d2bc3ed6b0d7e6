"""How much of its bound every room's approximation uses, against the definition."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from attncheck import approximations, frameworks
from attncheck.approximations import Approximation
from attncheck.budget import half_ulp
from attncheck.budget.rounding import unit_roundoff
from attncheck.case import DTYPES

SHAPES = {"q": (2, 4, 16, 8), "k": (2, 2, 16, 8), "v": (2, 2, 16, 8)}
FEATURES, RANK = 32, 4


def measure() -> list[dict[str, Any]]:
    """A row for each room and approximation: the greatest share in every type."""
    return [row for room in frameworks.NAMES for row in shares(room)]


def shares(room: str, dtypes: Sequence[str] = tuple(DTYPES)) -> list[dict[str, Any]]:
    """The rows of one room.

    Raises:
        AssertionError: it is not within its bound.
    """
    rows: dict[str, dict[str, Any]] = {}
    for dtype in dtypes:
        for name, used in _used(room, dtype).items():
            rows.setdefault(name, {"room": room, "function": name})[dtype] = used
    return list(rows.values())


def _used(room: str, dtype: str) -> dict[str, float]:
    framework = frameworks.adapter(room)
    module = import_module(f"attnref.{room}.variants")
    arrays, found = _arrays(dtype), {}
    wide = DTYPES["F64" if dtype == "F64" else "F32"]
    u = unit_roundoff(np.dtype(wide))
    qkv = [arrays[x] for x in "qkv"]
    for name, (define, given, options) in _calls(arrays).items():
        want = define(*qkv, u=u, **given)
        with framework.precision(dtype):
            native = {k: framework.to_native(x) for k, x in arrays.items()}
            keywords = {k: native.get(k, x) for k, x in options.items()}
            result = getattr(module, name)(*(native[x] for x in "qkv"), **keywords)
            output = result[0] if isinstance(result, tuple) else result
            found[name] = _share(framework.to_numpy(output), want, dtype)
    return found


def _calls(arrays: Mapping[str, np.ndarray]) -> dict[str, tuple]:
    """Function → its definition, what that is given, and what the function is."""
    draws, w_e, w_f = (arrays[x] for x in ("draws", "w_e", "w_f"))
    seen = np.tri(16, dtype=bool)
    return {
        "linear_attention": (approximations.linear, {"seen": seen}, {"causal": True}),
        "performer_attention": (
            approximations.performer,
            {"draws": draws},
            {"draws": draws},
        ),
        "linformer_attention": (
            approximations.linformer,
            {"w_e": w_e, "w_f": w_f},
            {"w_e": w_e, "w_f": w_f},
        ),
        "nystrom_attention": (
            approximations.nystrom,
            {"landmarks": RANK},
            {"landmarks": RANK},
        ),
    }


def _arrays(dtype: str) -> dict[str, np.ndarray]:
    """Normal numbers, of which every quarter of queries and keys stands out."""
    rng = np.random.default_rng(0)
    shapes = SHAPES | {"draws": (FEATURES, 8), "w_e": (16, RANK), "w_f": (16, RANK)}
    drawn = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    for name in "qk":
        drawn[name] += 3 * np.repeat(np.eye(RANK, 8), 16 // RANK, axis=0)
    return {name: x.astype(DTYPES[dtype]) for name, x in drawn.items()}


def _share(got: np.ndarray, want: Approximation, dtype: str) -> float:
    """In float64 the definition rounds as much as the room does."""
    bound = want.bound * (2 if dtype == "F64" else 1)
    room = bound + half_ulp(np.abs(want.output) + bound, got.dtype)
    used = float((np.abs(got.astype(np.float64) - want.output) / room).max())
    assert used <= 1, used
    return used

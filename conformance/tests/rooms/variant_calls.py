"""A variant of attention by its definition, row by row in float64; and its calls.

The definition is written in loops over queries and keys, and shares nothing with the
rooms.  What a variant changes comes as functions of one query and one key.  Its numbers
are complex: the imaginary part of f(x + i·t) / t is the derivative of an analytic f,
exact but for rounding when t is tiny, as nothing is subtracted.

Source of the derivative: Squire and Trapp, Using complex variables to estimate
derivatives of real functions (SIAM Review 40, 1998).
"""

import cmath
from importlib import import_module

import numpy as np

from attncheck.case import DTYPES

from .calls import UNIT

SIZES = {"b": 2, "h": 3, "g": 2, "i": 4, "j": 5, "d": 6, "e": 3}
N = SIZES["h"] * SIZES["g"]

UNITS = 10_000
"""By how many units of rounding two computations differ at most, on such sizes.

By the standard model (`calls.tolerance`) an output is within 2·R·(1 + 4·L) units of the
largest value, with R the roundings on the longest way, here under 100, and L the
largest sum of a logit's terms, here under 10: 8,200.  A wrong formula is off by a part
of 1, 10⁹ times as much in float64.
"""

TINY = 1e-30
"""A step along the imaginary axis: the error of a derivative is its square."""


def normal(seed, *axes, sizes=SIZES, dtype="F64", **more):
    """Normal numbers of an array with these axes."""
    size = sizes | {"n": sizes["h"] * sizes["g"]} | more
    drawn = np.random.default_rng(seed).normal(size=[size[axis] for axis in axes])
    return drawn.astype(DTYPES[dtype])


def draw(sizes=SIZES, dtype="F64", seed=0):
    """q, k and v, by name."""
    axes = {"q": "bnid", "k": "bhjd", "v": "bhje"}
    return {
        name: normal((seed, place), *letters, sizes=sizes, dtype=dtype)
        for place, (name, letters) in enumerate(axes.items())
    }


def as_complex(inputs):
    """Every array in complex numbers."""
    return {name: array.astype(complex) for name, array in inputs.items()}


def dot(x, y):
    """The sum of products of two rows of numbers."""
    return sum(a * b for a, b in zip(x, y, strict=True))


def plain_score(x, b, n, h, i, j):
    """q·k, of one query and one key."""
    return dot(x["q"][b, n, i], x["k"][b, h, j])


def plain_value(x, b, n, h, i, j):
    """The value of a key, whichever the query."""
    return x["v"][b, h, j]


def defined(
    x,
    *,
    score=plain_score,
    value=plain_value,
    bias=lambda x, b, n, i, j: 0,
    sink=lambda x, n: None,
    scale=None,
    softcap=None,
    mask=None,
    dropout_rate=0,
    dropout_keep=None,
):
    """Output and log-sum-exp of a variant, by rows over the keys that exist.

    `x` has the arrays by name, in complex numbers; x["bias"] counts where it is.
    """
    b_, n_, i_, d = x["q"].shape
    h_, j_, e = x["v"].shape[1:]
    full = (b_, n_, i_, j_)
    scale = d**-0.5 if scale is None else scale
    mask = np.broadcast_to(True if mask is None else mask, full)
    keep = np.broadcast_to(True if dropout_keep is None else dropout_keep, full)
    own = np.broadcast_to(x.get("bias", np.zeros((1,) * 4)), full)
    output = np.zeros((b_, n_, i_, e), complex)
    lse = np.full((b_, n_, i_), complex(-np.inf))
    for b, n, i in np.ndindex(b_, n_, i_):
        h = n // (n_ // h_)
        exps = {}
        for j in range(j_):
            if not mask[b, n, i, j]:
                continue
            logit = scale * score(x, b, n, h, i, j)
            if softcap is not None:
                logit = softcap * cmath.tanh(logit / softcap)
            exps[j] = cmath.exp(logit + bias(x, b, n, i, j) + own[b, n, i, j])
        total = sum(exps.values())
        if (logit := sink(x, n)) is not None:
            total += cmath.exp(logit)
        if total:
            lse[b, n, i] = cmath.log(total)
        for j, part in exps.items():
            if part and keep[b, n, i, j]:
                weight = part / total / (1 - dropout_rate)
                output[b, n, i] += weight * np.array(value(x, b, n, h, i, j))
    return output, lse


def module(room):
    """The room's variants."""
    return import_module(f"attnref.{room.name}.variants")


def run(room, name, inputs, dtype="F64", **options):
    """Output and log-sum-exp of a variant of the room, as NumPy's arrays.

    `inputs` are arrays by name, q, k and v first; of `options` arrays become the
    room's.
    """
    with room.framework.precision(dtype):
        arrays = {k: room.array(x) for k, x in inputs.items()}
        found = getattr(module(room), name)(**arrays, **native(room, options))
        return tuple(map(room.numpy, found))


def native(room, options):
    """Options, the room's arrays where there are arrays."""
    return {
        k: room.array(x) if isinstance(x, np.ndarray) else x for k, x in options.items()
    }


def gradients(room, name, inputs, d_out, d_lse, dtype="F64", **options):
    """The gradients of a variant, by name: NumPy's own, or the framework's."""
    with room.framework.precision(dtype):
        arrays = {k: room.array(x) for k, x in inputs.items()}
        options = native(room, options)
        d_out, d_lse = room.array(d_out), room.array(d_lse)
        if room.name == "numpy":
            vjp = getattr(module(room), f"{name}_vjp")
            return vjp(d_out, **arrays, d_lse=d_lse, **options)

        def call(*given):
            named = dict(zip(arrays, given, strict=True))
            return getattr(module(room), name)(**named, **options)

        found = room.framework.vjp(call, tuple(arrays.values()), (d_out, d_lse))
        return dict(zip(arrays, map(room.numpy, found), strict=True))


def incoming(inputs, seed=99):
    """d_out and d_lse, for the results of these inputs."""
    b, n, i, _ = inputs["q"].shape
    rng, dtype = np.random.default_rng(seed), inputs["q"].dtype
    wide = np.float64 if dtype == np.float64 else np.float32
    d_out = rng.normal(size=(b, n, i, inputs["v"].shape[3])).astype(dtype)
    return d_out, rng.normal(size=(b, n, i)).astype(wide)


def assert_near(got, want, size, dtype="F64"):
    """Within `UNITS` of `size`; where a number is infinite, equal to it."""
    assert got.shape == want.shape
    allowed = UNITS * UNIT[dtype] * size
    wrong = (got != want) & ~(
        abs(got - np.where(np.isfinite(want), want, 0)) <= allowed
    )
    assert not wrong.any(), (np.argwhere(wrong)[0], got[wrong][0], want[wrong][0])


def assert_is_defined(room, name, inputs, options=None, *, dtype="F64", **changes):
    """A variant's results and gradients are those of its definition.

    `options` go to the room and, but for the mask's kind, to the definition; `changes`
    are the functions that make the definition the variant's.
    """
    call = options or {}
    shared = ("scale", "softcap", "mask", "dropout_rate", "dropout_keep")
    rules = {k: call[k] for k in shared if k in call} | changes
    output, lse = (x.real for x in defined(as_complex(inputs), **rules))
    got = run(room, name, inputs, dtype, **call)
    assert got[0].dtype == inputs["q"].dtype
    assert_near(got[0], output, max(abs(inputs["v"]).max(initial=0), 1), dtype)
    assert_near(got[1], lse, 10, dtype)
    if dtype == "F64":
        assert_gradients_are_defined(room, name, inputs, call, rules)


def assert_gradients_are_defined(room, name, inputs, call, rules):
    """Every gradient, along a random direction, is the definition's derivative."""
    d_out, d_lse = incoming(inputs)
    found = gradients(room, name, inputs, d_out, d_lse, **call)
    assert found.keys() == inputs.keys()

    def objective(x):
        output, lse = defined(x, **rules)
        rows = np.where(np.isfinite(lse), lse, 0)
        return (d_out * output).sum() + (d_lse * rows).sum()

    assert_derivatives(found, inputs, objective)


def assert_derivatives(found, inputs, objective):
    """Every gradient, along a random direction, is the derivative of an objective."""
    x = as_complex(inputs)
    for place, (key, array) in enumerate(inputs.items()):
        assert found[key].shape == array.shape
        assert found[key].dtype == array.dtype
        way = np.random.default_rng(place).normal(size=array.shape)
        want = objective(x | {key: x[key] + 1j * TINY * way}).imag / TINY
        got = (found[key] * way).sum()
        allowed = UNITS * 2.0**-53 * abs(way).sum() * max(1, abs(found[key]).max())
        assert abs(got - want) <= allowed, (key, got, want)


def assert_rounded_once(room, name, inputs, **options):
    """16-bit results are those of float32, rounded."""
    for dtype in ("F16", "BF16"):
        half = {k: x.astype(DTYPES[dtype]) for k, x in inputs.items()}
        wide = {k: x.astype(np.float32) for k, x in half.items()}
        got, lse = run(room, name, half, dtype, **options)
        want, want_lse = run(room, name, wide, "F32", **options)
        assert (got == want.astype(DTYPES[dtype])).all()
        assert lse.dtype == np.float32
        assert (lse == want_lse).all()
        d_out, d_lse = incoming(half)
        gradient = gradients(room, name, half, d_out, d_lse, dtype, **options)
        wide_out = d_out.astype(np.float32)
        exact = gradients(room, name, wide, wide_out, d_lse, "F32", **options)
        for key, array in gradient.items():
            assert array.dtype == DTYPES[dtype]
            assert (array == exact[key].astype(DTYPES[dtype])).all(), (dtype, key)


def every_call(dtype="F32"):
    """One call of every variant: name → inputs by name, and options."""

    def drawn(seed, *axes, **more):
        return normal(seed, *axes, dtype=dtype, **more)

    tables = {"key_table": drawn(1, "r", "d", r=5)}
    tables |= {"value_table": drawn(2, "r", "e", r=5)}
    weights = {"w_q": drawn(3, "n", "d", "a", a=4), "w_k": drawn(4, "h", "d", "a", a=4)}
    own = {
        "rotary_attention": ({}, {"pairing": "interleaved", "width": 4}),
        "shaw_attention": (tables, {}),
        "t5_attention": ({"table": drawn(5, "r", "n", r=8)}, {"max_distance": 9}),
        "alibi_attention": ({}, {}),
        "sink_attention": ({"sinks": drawn(6, "n")}, {}),
        "additive_attention": (weights | {"w_s": drawn(7, "n", "a", a=4)}, {}),
        "cosine_attention": ({}, {}),
    }
    return {
        name: (draw(dtype=dtype) | more, options)
        for name, (more, options) in own.items()
    }


PLACED = ("rotary_attention", "shaw_attention", "t5_attention", "alibi_attention")
"""Those that take an offset."""

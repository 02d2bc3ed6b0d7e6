"""All validation, with its wording: the same words in every room.

Arrays are only looked at (`shape`, `dtype`), so this serves any framework, under its
tracers too.  Wrong input raises ValueError or TypeError and names the axis, the sizes
and, for the common slips, the right call.
"""

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any

from attnref.spec import patterns
from attnref.spec.axes import AXES, MAY_BE_EMPTY
from attnref.spec.masks import Mask, causal, padding, prefix, segments, window

Array = Any
Sizes = dict[str, int]

_PREDICATES = (causal, window, prefix, padding, segments)

FLOATS = ("float64", "float32", "bfloat16", "float16")

OPTIONAL = frozenset(
    {"bias", "context", "b_q", "b_k", "b_v", "b_o"}
    | {"value_table", "slopes", "temperature"}
)
"""Arguments that may be None."""


def check_attention(
    array_type: type,
    q: Array,
    k: Array,
    v: Array,
    *,
    mask: Any = None,
    bias: Array | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    dropout_rate: float = 0.0,
    dropout_keep: Array | None = None,
    parameters: Mapping[str, tuple[Array, str]] | None = None,
) -> Sizes:
    """Validates the arguments of `attention`; returns axis letter → size.

    `parameters` are the arrays of a variant, name → (array, axes), which share the
    dtype of q and letters with it; those in `OPTIONAL` may be None.
    """
    named = {
        "q": (q, patterns.QUERY),
        "k": (k, patterns.KEY),
        "v": (v, patterns.VALUE),
        **(parameters or {}),
    }
    arrays = {name: array for name, (array, _) in named.items()}
    check_arrays(array_type, arrays | {"bias": bias})
    sizes = bind_axes({k: pair for k, pair in named.items() if pair[0] is not None})
    sizes["g"] = _group(sizes["n"], sizes["h"])
    check_any_mask(mask, sizes, array_type)
    if bias is not None:
        _check_broadcast("bias", bias, sizes)
    _check_options(scale, softcap)
    _check_dropout(dropout_rate, dropout_keep, sizes, array_type)
    return sizes


def check_arrays(array_type: type, arrays: Mapping[str, Array | None]) -> None:
    """Every array is one of this framework, floating, and of one and the same dtype."""
    dtypes = {}
    for name, array in arrays.items():
        if array is None and name in OPTIONAL:
            continue
        check_type(name, array, array_type)
        dtypes[name] = dtype_name(array)
    for name, dtype in dtypes.items():
        if name == "bias" and dtype == "bool":
            raise TypeError(
                "`bias` is added to the logits and must be floating, but is bool; "
                "pass a boolean array as mask= (True = may attend)"
            )
        if dtype not in FLOATS:
            raise TypeError(
                f"`{name}` must be one of {', '.join(FLOATS)}, but is {dtype}"
            )
    if len(set(dtypes.values())) > 1:
        words = ", ".join(f"{name}: {dtype}" for name, dtype in dtypes.items())
        raise TypeError(f"all inputs must share one dtype, but are {words}")


def check_type(name: str, array: Any, array_type: type) -> None:
    """`array` is one of this framework's own arrays."""
    if not isinstance(array, array_type):
        want, got = _type_words(array_type), _type_words(type(array))
        raise TypeError(f"`{name}` must be a {want}, but is a {got}")


def bind_axes(arrays: Mapping[str, tuple[Array, str]]) -> Sizes:
    """Reads the axis sizes off `name → (array, axes)`, each letter one size.

    Raises ValueError where an array has another number of axes, where two arrays
    disagree on a letter, and where an axis that may not be empty has size 0.
    """
    sizes: Sizes = {}
    owner: dict[str, str] = {}
    for name, (array, axes) in arrays.items():
        letters, shape = axes.split(), tuple(array.shape)
        if len(shape) != len(letters):
            raise ValueError(
                f"`{name}` must have {len(letters)} axes {axes}, but has shape {shape}"
            )
        for letter, size in zip(letters, shape, strict=True):
            if sizes.setdefault(letter, size) != size:
                first = owner[letter]
                raise ValueError(
                    f"`{name}` must have {AXES[letter]} {letter} = {sizes[letter]} "
                    f"like `{first}`, but has {size} "
                    f"({_shape_words(first, arrays)}, {_shape_words(name, arrays)})"
                )
            owner.setdefault(letter, name)
            if size == 0 and letter not in MAY_BE_EMPTY:
                raise ValueError(
                    f"`{name}` must have {AXES[letter]} {letter} ≥ 1, but has 0 "
                    f"({_shape_words(name, arrays)})"
                )
    return sizes


def check_any_mask(mask: Any, sizes: Sizes, array_type: type) -> None:
    """A mask of any kind; what a callable answers is checked when it is asked."""
    if any(mask is predicate for predicate in _PREDICATES):
        raise TypeError(
            f"`mask` is the function {mask.__name__}: call it, as in "
            f"mask={mask.__name__}(…)"
        )
    if mask is not None and not callable(mask):
        check_mask("mask", mask, sizes, array_type)


def check_mask(name: str, mask: Any, sizes: Sizes, array_type: type) -> None:
    """A mask, or `dropout_keep`: boolean, 4-D, each axis of b n i j full or 1."""
    check_type(name, mask, array_type)
    dtype = dtype_name(mask)
    if dtype != "bool":
        slip = (
            "an additive mask is a bias: pass it as bias="
            if dtype in FLOATS
            else f"write {name} != 0 if nonzero means that"
        )
        meaning = "True = may attend" if name == "mask" else "True = kept"
        raise TypeError(f"`{name}` must be boolean ({meaning}), but is {dtype}; {slip}")
    _check_broadcast(name, mask, sizes)


def check_gradients(
    array_type: type,
    d_out: Array,
    d_lse: Array | None,
    sizes: Sizes,
    dtype: str,
) -> None:
    """Incoming gradients: `d_out` like the output, `d_lse` like the log-sum-exp.

    `dtype` is the name of the inputs' dtype.  The log-sum-exp, and so its gradient, is
    in the accumulation type.
    """
    wants = {"d_out": (d_out, patterns.OUTPUT, dtype)}
    if d_lse is not None:
        wide = "float64" if dtype == "float64" else "float32"
        wants["d_lse"] = (d_lse, patterns.LSE, wide)
    for name, (array, axes, want) in wants.items():
        check_type(name, array, array_type)
        shape = tuple(sizes[axis] for axis in axes.split())
        if tuple(array.shape) != shape:
            raise ValueError(
                f"`{name}` must have axes {axes} = {_sizes_words(shape)}, "
                f"but has shape {tuple(array.shape)}"
            )
        if dtype_name(array) != want:
            raise TypeError(f"`{name}` must be {want}, but is {dtype_name(array)}")


def check_scale(scale: float | None) -> None:
    """A scale is a finite number, or None."""
    if scale is not None and not is_finite(scale, "scale"):
        raise ValueError(f"`scale` must be finite, but is {scale}")


def check_blocks(**sizes: Any) -> None:
    """Sizes of blocks, by the names of their arguments: ints of at least 1."""
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ValueError(f"`{name}` must be an int of at least 1, but is {size!r}")


def check_ring(mask: Any, sizes: Sizes, shards: int, balanced: bool) -> None:
    """A sequence, of which `sizes` has whole lengths, can be dealt to `shards` devices.

    Raises:
        TypeError: the mask is no predicate: an array would be as large as the matrix.
        ValueError: the shards, or their halves where balanced, would differ in length.
    """
    if mask is not None and not isinstance(mask, Mask):
        raise TypeError(
            "`mask` of a ring must be a predicate over the whole sequence, such as "
            f"attnref.spec.causal(), or None, but is a {type(mask).__name__}"
        )
    parts, kind = (2 * shards, "half shards") if balanced else (shards, "shards")
    for axis in "ij":
        if sizes[axis] % parts or not sizes[axis]:
            raise ValueError(
                f"{AXES[axis]} {axis} = {sizes[axis]} must be a multiple of "
                f"{parts} {kind}, and not 0; add padding, and mask it"
            )
    if mask is not None:
        mask.check(sizes)


def check_parts(array_type: type, outputs: Any, lses: Any) -> None:
    """Outputs and log-sum-exps of parts: as many of each, all of the same axes."""
    if not len(outputs) or len(outputs) != len(lses):
        raise ValueError(
            "`merge_parts` takes an output and a log-sum-exp of each part, at least "
            f"one, but got {len(outputs)} and {len(lses)}"
        )
    check_arrays(array_type, {f"outputs[{p}]": x for p, x in enumerate(outputs)})
    axes = {f"outputs[{p}]": (x, patterns.OUTPUT) for p, x in enumerate(outputs)}
    axes |= {f"lses[{p}]": (x, patterns.LSE) for p, x in enumerate(lses)}
    bind_axes(axes)
    wide = "float64" if dtype_name(outputs[0]) == "float64" else "float32"
    for place, lse in enumerate(lses):
        check_type(f"lses[{place}]", lse, array_type)
        if dtype_name(lse) != wide:
            raise TypeError(f"`lses[{place}]` must be {wide}, but is {dtype_name(lse)}")


def check_multi_head(
    array_type: type,
    params: Any,
    x: Array,
    context: Array | None,
    bias: Array | None,
) -> Sizes:
    """Validates weights and inputs of `multi_head_attention`; returns the sizes."""
    arrays = {"x": x, "context": context} | params._asdict() | {"bias": bias}
    check_arrays(array_type, arrays)
    cross = context is not None
    named = {
        "x": (x, "b i c"),
        "context": (context, "b j m"),
        "w_q": (params.w_q, "c n d"),
        "w_k": (params.w_k, "m h d" if cross else "c h d"),
        "w_v": (params.w_v, "m h e" if cross else "c h e"),
        "w_o": (params.w_o, "n e c"),
        "b_q": (params.b_q, "n d"),
        "b_k": (params.b_k, "h d"),
        "b_v": (params.b_v, "h e"),
        "b_o": (params.b_o, "c"),
    }
    sizes = bind_axes({k: pair for k, pair in named.items() if pair[0] is not None})
    sizes["g"] = _group(sizes["n"], sizes["h"])
    return sizes


def dtype_name(array: Array) -> str:
    """`float32`, `bfloat16`, `bool`, … for an array of any framework."""
    return str(array.dtype).rpartition(".")[2]


def _group(n: int, h: int) -> int:
    if n % h:
        raise ValueError(
            f"`q` has query heads n = {n}, which key/value heads h = {h} do not divide"
        )
    return n // h


def _check_broadcast(name: str, array: Array, sizes: Sizes) -> None:
    full = tuple(sizes[axis] for axis in patterns.LOGITS.split())
    shape = tuple(array.shape)
    want = f"`{name}` must have 4 axes b n i j = {_sizes_words(full)}, each full or 1"
    if len(shape) != 4:
        raise ValueError(f"{want}, but has shape {shape}{_right_call(name, shape)}")
    for axis, size, length in zip(patterns.LOGITS.split(), shape, full, strict=True):
        if size not in (1, length):
            raise ValueError(
                f"{want}, but has {AXES[axis]} {axis} = {size} in shape {shape}"
            )


def _right_call(name: str, shape: tuple[int, ...]) -> str:
    if len(shape) == 2:
        return (
            f"; for axes (i, j) write {name}[None, None], "
            f"for axes (b, j), such as padding, {name}[:, None, None, :]"
        )
    if len(shape) == 3:
        return (
            f"; for axes (b, i, j) write {name}[:, None], "
            f"for axes (n, i, j) {name}[None]"
        )
    return ""


def _check_options(scale: float | None, softcap: float | None) -> None:
    check_scale(scale)
    if softcap is not None and not (is_finite(softcap, "softcap") and softcap > 0):
        raise ValueError(f"`softcap` must be finite and above 0, but is {softcap}")


def _check_dropout(rate: float, keep: Any, sizes: Sizes, array_type: type) -> None:
    if not (is_finite(rate, "dropout_rate") and 0 <= rate < 1):
        raise ValueError(f"`dropout_rate` must be in [0, 1), but is {rate}")
    if rate > 0 and keep is None:
        raise ValueError(
            f"`dropout_rate` = {rate} needs `dropout_keep`, a boolean of axes b n i j: "
            "the spec draws no random numbers, so that every framework drops the same "
            "weights"
        )
    if keep is not None:
        check_mask("dropout_keep", keep, sizes, array_type)
        if rate == 0:
            raise ValueError("`dropout_keep` needs a `dropout_rate` above 0")


def is_finite(value: Any, name: str) -> bool:
    """Whether a Python number is finite; anything else is a TypeError."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(
            f"`{name}` must be a Python number, but is {type(value).__name__}"
        )
    # Not math.isfinite: under torch.compile a number may be symbolic.
    return -math.inf < value < math.inf  # type: ignore[operator]


def _type_words(kind: type) -> str:
    """`torch.Tensor`: the package and the last name, wherever it is defined."""
    package = kind.__module__.partition(".")[0]
    return f"{package}.{kind.__name__.rpartition('.')[2]}"


def _shape_words(name: str, arrays: Mapping[str, tuple[Array, str]]) -> str:
    array, axes = arrays[name]
    return f"{name}: {axes} = {_sizes_words(tuple(array.shape))}"


def _sizes_words(sizes: tuple[int, ...]) -> str:
    return " ".join(map(str, sizes))

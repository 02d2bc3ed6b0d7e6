"""Mask predicates: which query may attend to which key, as frozen data.

A predicate answers index grids `(b, n, i, j)` (`n` the query head) with a boolean
array, True = may attend.  Predicates are combined with `&`, `|` and `~`.  They hold no
framework's code: the arithmetic is that of the grids they are given, so the same
predicate serves NumPy, PyTorch (FlexAttention's `mask_mod` too) and JAX.

Carried arrays (lengths, segment ids, offsets per batch element) are integers of any
framework or plain sequences; `bind(asarray)` moves them to the framework at hand.
"""

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import reduce
from numbers import Integral
from typing import Any, Literal, Self

Array = Any
"""An array of any framework."""

Extent = Literal["empty", "full", "partial"]
"""How much of a block is visible."""


class Mask:
    """A predicate over `(b, n, i, j)`; see the functions of this module."""

    def __call__(self, b: Array, n: Array, i: Array, j: Array) -> Array:
        """Whether query `i` of head `n` may attend to key `j`, for index grids."""
        raise NotImplementedError

    def bind(self, asarray: Callable[[Any], Array]) -> Self:
        """This predicate with every carried array passed through `asarray`."""
        bound: dict[str, Any] = {
            name: part.bind(asarray) for name, part in self._parts().items()
        }
        bound |= {name: asarray(value) for name, _, value in self._arrays()}
        return replace(self, **bound)  # type: ignore[type-var]

    def check(self, sizes: dict[str, int]) -> None:
        """Raises ValueError where a carried array does not fit the axis sizes.

        Axes that attention has not, such as x, have any size.
        """
        for part in self._parts().values():
            part.check(sizes)
        for name, axes, value in self._arrays():
            each = zip(axes.split(), _shape(value), strict=True)
            want = tuple(sizes.get(axis, size) for axis, size in each)
            if _shape(value) != want:
                raise ValueError(
                    f"`{name}` of the mask must have axes {axes} = {_words(want)}, "
                    f"but has shape {_shape(value)}"
                )

    def _parts(self) -> "dict[str, Mask]":
        """The predicates that this one combines, by field name."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        return {name: part for name, part in values.items() if isinstance(part, Mask)}

    def _arrays(self) -> list[tuple[str, str, Array]]:
        """The carried arrays: (field name, axes, value); plain ints are not carried."""
        return [
            (f.name, f.metadata["axes"], getattr(self, f.name))
            for f in fields(self)  # type: ignore[arg-type]
            if "axes" in f.metadata and not isinstance(getattr(self, f.name), int)
        ]

    def block(self, i0: int, i1: int, j0: int, j1: int) -> Extent:
        """How much of queries `i0 … i1 − 1` × keys `j0 … j1 − 1` is visible.

        "empty" and "full" are certain, for every batch element and head.  "partial"
        also stands for "not known": values under a JAX trace, ids, plain combinations.
        """
        raise NotImplementedError

    def __and__(self, other: "Mask") -> "Mask":
        return _All(self, other) if isinstance(other, Mask) else NotImplemented

    def __or__(self, other: "Mask") -> "Mask":
        return _Any(self, other) if isinstance(other, Mask) else NotImplemented

    def __invert__(self) -> "Mask":
        return _Not(self)

    def __bool__(self) -> bool:
        raise TypeError(
            "a mask predicate has no truth value: `and`, `or` and `not` would silently "
            "drop one side; combine predicates with `&`, `|` and `~`"
        )


def causal(offset: Any = 0) -> Mask:
    """Key `j` is visible to query `i` iff `j ≤ i + offset`.

    Offset 0 aligns the upper-left corners, `len_k − len_q` the lower-right ones.  An
    int, or one per batch element, shape `(b,)`.
    """
    return _Causal(_integers("causal", "offset", offset, "b", or_int=True))


def window(left: int | None, right: int | None, offset: Any = 0) -> Mask:
    """Keys from `i + offset − left` to `i + offset + right`, both ends inclusive.

    `left` and `right` are ints of at least 0, or None for no bound on that side;
    `offset` is as in `causal`.
    """
    for name, end in (("left", left), ("right", right)):
        if end is not None and not (_is_int(end) and end >= 0):
            raise ValueError(
                f"`window` takes {name} ≥ 0 or None (no bound), but got {end!r}"
            )
    left, right = (end if end is None else operator.index(end) for end in (left, right))
    return _Window(left, right, _integers("window", "offset", offset, "b", or_int=True))


def prefix(n: Any) -> Mask:
    """The first `n` keys are visible to every query.

    An int, or one per batch element, shape `(b,)`.  `causal() | prefix(n)` is the mask
    of a prefix language model.
    """
    return _Prefix(_integers("prefix", "n", n, "b", or_int=True))


def padding(lengths: Any) -> Mask:
    """Batch element `b` has `lengths[b]` keys; later ones are padding.

    `lengths` has shape `(b,)`.
    """
    return _Padding(_integers("padding", "lengths", lengths, "b"))


def segments(q_ids: Any, k_ids: Any) -> Mask:
    """Queries see the keys of their own segment: `q_ids[b, i] == k_ids[b, j]`.

    `q_ids` has shape `(b, i)` and `k_ids` has shape `(b, j)`.
    """
    return _Segments(
        _integers("segments", "q_ids", q_ids, "b i"),
        _integers("segments", "k_ids", k_ids, "b j"),
    )


def window_of(mask: Any) -> tuple[int | None, int | None, Any] | None:
    """`left`, `right` and `offset` of a window, or of a causal mask, which is one.

    None of any other mask.  It is for kernels that take a window, and no predicate.
    """
    if isinstance(mask, _Causal):
        return None, 0, mask.offset
    return (mask.left, mask.right, mask.offset) if isinstance(mask, _Window) else None


def shifted(mask: Mask | None, rows: Any, keys: Any) -> Mask | None:
    """A mask of a whole sequence, for the part whose first query and key these are."""
    return None if mask is None else _Shifted(mask, rows, keys)


def extent(mask: Any, rows: slice, keys: slice) -> Extent:
    """How much of a block of queries and keys a mask, of any kind, leaves visible.

    Without a mask all of it; of an array, or of a plain callable, nothing is known.
    """
    if mask is None:
        return "full"
    if not isinstance(mask, Mask):
        return "partial"
    return mask.block(rows.start, rows.stop, keys.start, keys.stop)


@dataclass(frozen=True)
class _Causal(Mask):
    offset: Any = field(metadata={"axes": "b"})

    def __call__(self, b, n, i, j):
        return j <= i + _at(self.offset, b)

    def block(self, i0, i1, j0, j1):
        low, high = _bounds(self.offset)
        return _extent(
            empty=high is not None and j0 > i1 - 1 + high,
            full=low is not None and j1 - 1 <= i0 + low,
        )


@dataclass(frozen=True)
class _Window(Mask):
    left: int | None
    right: int | None
    offset: Any = field(metadata={"axes": "b"})

    def __call__(self, b, n, i, j):
        centre = i + _at(self.offset, b)
        inside = [j >= centre - self.left] if self.left is not None else []
        inside += [j <= centre + self.right] if self.right is not None else []
        # No bound on either side: true everywhere, as a grid.
        return reduce(operator.and_, inside) if inside else (i >= 0) & (j >= 0)

    def block(self, i0, i1, j0, j1):
        low, high = _bounds(self.offset)
        if low is None or high is None:
            return "partial"
        left, right = self.left, self.right
        return _extent(
            empty=(left is not None and j1 - 1 < i0 + low - left)
            or (right is not None and j0 > i1 - 1 + high + right),
            full=(left is None or j0 >= i1 - 1 + high - left)
            and (right is None or j1 - 1 <= i0 + low + right),
        )


@dataclass(frozen=True)
class _Prefix(Mask):
    n: Any = field(metadata={"axes": "b"})

    def __call__(self, b, n, i, j):
        return j < _at(self.n, b)

    def block(self, i0, i1, j0, j1):
        return _first_keys(self.n, j0, j1)


@dataclass(frozen=True)
class _Padding(Mask):
    lengths: Any = field(metadata={"axes": "b"})

    def __call__(self, b, n, i, j):
        return j < _at(self.lengths, b)

    def block(self, i0, i1, j0, j1):
        return _first_keys(self.lengths, j0, j1)


@dataclass(frozen=True)
class _Segments(Mask):
    q_ids: Any = field(metadata={"axes": "b i"})
    k_ids: Any = field(metadata={"axes": "b j"})

    def __call__(self, b, n, i, j):
        return self.q_ids[b, i] == self.k_ids[b, j]

    def block(self, i0, i1, j0, j1):
        ranges = [_ranges(self.q_ids, i0, i1), _ranges(self.k_ids, j0, j1)]
        if None in ranges:
            return "partial"
        pairs = list(zip(*ranges, strict=True))
        return _extent(
            empty=all(q[1] < k[0] or k[1] < q[0] for q, k in pairs),
            full=all(q == k and q[0] == q[1] for q, k in pairs),
        )


@dataclass(frozen=True)
class _All(Mask):
    left: Mask
    right: Mask

    def __call__(self, b, n, i, j):
        return self.left(b, n, i, j) & self.right(b, n, i, j)

    def block(self, i0, i1, j0, j1):
        extents = {m.block(i0, i1, j0, j1) for m in (self.left, self.right)}
        return _extent(empty="empty" in extents, full=extents == {"full"})


@dataclass(frozen=True)
class _Any(Mask):
    left: Mask
    right: Mask

    def __call__(self, b, n, i, j):
        return self.left(b, n, i, j) | self.right(b, n, i, j)

    def block(self, i0, i1, j0, j1):
        extents = {m.block(i0, i1, j0, j1) for m in (self.left, self.right)}
        return _extent(empty=extents == {"empty"}, full="full" in extents)


@dataclass(frozen=True)
class _Not(Mask):
    mask: Mask

    def __call__(self, b, n, i, j):
        return ~self.mask(b, n, i, j)

    def block(self, i0, i1, j0, j1):
        extent = self.mask.block(i0, i1, j0, j1)
        return _extent(empty=extent == "full", full=extent == "empty")


@dataclass(frozen=True)
class _Shifted(Mask):
    mask: Mask
    rows: Any
    keys: Any

    def __call__(self, b, n, i, j):
        return self.mask(b, n, i + self.rows, j + self.keys)

    def block(self, i0, i1, j0, j1):
        rows, keys = self.rows, self.keys
        return self.mask.block(i0 + rows, i1 + rows, j0 + keys, j1 + keys)


def _at(value: Any, b: Array) -> Any:
    """A carried value at batch index `b`; a plain int is the same for all."""
    return value if isinstance(value, int) else value[b]


def _first_keys(count: Any, j0: int, j1: int) -> Extent:
    low, high = _bounds(count)
    return _extent(
        empty=high is not None and j0 >= high, full=low is not None and j1 <= low
    )


def _extent(*, empty: bool, full: bool) -> Extent:
    return "empty" if empty else "full" if full else "partial"


def _bounds(value: Any) -> tuple[int, int] | tuple[None, None]:
    """Least and greatest of a carried value, or Nones where they cannot be known."""
    if isinstance(value, int):
        return value, value
    try:
        flat = value if isinstance(value, tuple) else value.reshape(-1).tolist()
        known = [operator.index(entry) for entry in flat]
        return min(known), max(known)
    except (TypeError, ValueError, RuntimeError):  # traced, or no batch at all
        return None, None


def _ranges(ids: Any, start: int, stop: int) -> list[tuple[int, int]] | None:
    """Least and greatest id of some positions, one a batch element, where known."""
    try:
        if isinstance(ids, tuple):
            rows = [row[start:stop] for row in ids]
        else:
            rows = ids[:, start:stop].tolist()
        return [(min(row), max(row)) for row in rows]
    except (TypeError, ValueError, RuntimeError):  # traced
        return None


def _integers(
    owner: str, name: str, value: Any, axes: str, *, or_int: bool = False
) -> Any:
    """`value` as an int, a (nested) tuple of ints or an integer array, checked."""
    if or_int and _is_int(value):
        return operator.index(value)
    want = ("an int or " if or_int else "") + f"integers of axes {axes}"
    dtype = str(getattr(value, "dtype", "")).rpartition(".")[2]
    if dtype:
        right_type = dtype.startswith(("int", "uint"))
    else:
        right_type = isinstance(value, Sequence)
        value = _nested_tuple(value) if right_type else value
    if not right_type or len(_shape(value)) != len(axes.split()):
        raise TypeError(f"`{owner}` takes {name} as {want}, but got {value!r}")
    return value


def _nested_tuple(values: Sequence) -> tuple:
    def entry(value: Any) -> Any:
        if _is_int(value):
            return operator.index(value)
        if isinstance(value, Sequence) and not isinstance(value, str):
            return _nested_tuple(value)
        raise TypeError(
            f"a mask's lengths, ids and offsets are integers, not {value!r}"
        )

    return tuple(map(entry, values))


def _shape(value: Any) -> tuple[int, ...]:
    if not isinstance(value, tuple):
        return tuple(value.shape)
    inner = {_shape(v) if isinstance(v, tuple) else () for v in value}
    if len(inner) > 1:
        raise ValueError(f"rows of different lengths in {value!r}")
    return (len(value), *(inner.pop() if inner else ()))


def _is_int(value: Any) -> bool:
    """An int, or a scalar registered as one (NumPy's), but not a bool."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def _words(sizes: tuple[int, ...]) -> str:
    return " ".join(map(str, sizes))

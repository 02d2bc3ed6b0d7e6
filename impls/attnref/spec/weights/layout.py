"""Where a library keeps the parameters of multi-head attention, and the way there.

A layout has one entry for each parameter: a name, and the axes of the array that has
that name, in the spec's letters.  Axes in parentheses are one axis, the outer letter
first: `(n d) c` is the weight of a linear layer, whose heads lie one after the other.
Parameters with the same name are packed: they lie side by side, in the order of the
entries, along the axis in parentheses.
"""

import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from attnref.spec.axes import AXES
from attnref.spec.checks import bind_axes

Array = Any
"""An array of any framework."""

State = Mapping[str, Array]
"""Name → array, as a file or a `state_dict()` has them."""

PARAMETERS = MappingProxyType(
    {
        "w_q": "c n d",
        "w_k": "m h d",
        "w_v": "m h e",
        "w_o": "n e c",
        "b_q": "n d",
        "b_k": "h d",
        "b_v": "h e",
        "b_o": "c",
    }
)
"""Parameter → its axes in `MultiHeadParams`."""

_FOLDED = re.compile(r"\((\w) (\w)\)")


class Entry(NamedTuple):
    """Where one parameter is."""

    name: str
    """The name of its array, after the prefix."""
    axes: str
    """The axes of the array; of a packed one, those of this parameter's part."""


@dataclass(frozen=True)
class Layout:
    """How a library keeps the parameters of multi-head attention."""

    name: str
    of: str
    """What has this layout, such as `torch.nn.MultiheadAttention`."""
    entries: Mapping[str, Entry]
    """Parameter → where it is; a parameter that is left out has no place."""
    equal: tuple[str, ...] = ()
    """What the library takes to be equal, such as `n = h` or `c = n d`."""
    optional: tuple[str, ...] = ()
    """Biases that are there or missing together, such as `b_q b_k b_v`."""
    beside: tuple[str, ...] = ()
    """Names that may lie beside the entries and are no part of the attention."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Name → what it does that `MultiHeadParams` cannot hold."""
    settings: Mapping[str, tuple[Any, str]] = field(default_factory=dict)
    """Attribute of the library's module that no array shows → what it must be, and
    what else it does."""
    pairing: str | None = None
    """How the model that has the layout pairs components for rotary positions."""

    def __post_init__(self) -> None:
        for name, parts in self.arrays.items():
            groups = {g for g in self.optional if parts.keys() & set(g.split())}
            if len(groups) > 1 or any(
                not parts.keys() <= set(g.split()) for g in groups
            ):
                raise ValueError(
                    f"`{name}` holds {', '.join(parts)}, which `optional` must have "
                    "together or not at all"
                )

    @property
    def arrays(self) -> dict[str, dict[str, str]]:
        """Name of an array → parameter → its axes there."""
        found: dict[str, dict[str, str]] = {}
        for parameter, entry in self.entries.items():
            found.setdefault(entry.name, {})[parameter] = entry.axes
        return found


def load(
    layout: Layout,
    state: State,
    *,
    heads: int | None = None,
    kv_heads: int | None = None,
    width: int | None = None,
    prefix: str = "",
) -> dict[str, Array]:
    """The parameters of one attention, by the names of `MultiHeadParams`.

    Args:
        state: name → array.
        heads: n, for a layout that keeps heads and their width as one axis.
        kv_heads: h; None: n.
        width: d, where q, k and v are packed and values have another width; None: the
            same.
        prefix: what stands before the layout's names, separator included, such as
            `encoder.layer.0.attention.`; what does not begin so is not looked at.

    A bias that the state may lack, and does, is left out of the result.

    Raises:
        ValueError: an array is missing, or is more than multi-head attention; a width
            does not split into the heads; or sizes do not fit together.
    """
    below = {
        k.removeprefix(prefix): x for k, x in state.items() if k.startswith(prefix)
    }
    _check_names(layout, below, prefix)
    _check_complete(
        layout, _held(layout, below), lambda p: prefix + layout.entries[p].name
    )
    given = {"n": heads, "h": heads if kv_heads is None else kv_heads}
    known, params = given | {"d": width}, dict[str, Array]()
    for name, parts in layout.arrays.items():
        if name in below:
            params |= _taken(below[name], prefix + name, parts, known)
            known |= _widths(params)
    sizes = _check_sizes(layout, params)
    for letter, count in given.items():
        if count not in (None, sizes[letter]):
            raise ValueError(
                f"{letter} = {count} {AXES[letter]} were asked for, but the arrays "
                f"have {sizes[letter]}"
            )
    return {name: params[name] for name in PARAMETERS if name in params}


def dump(
    layout: Layout, params: Mapping[str, Array | None], *, prefix: str = ""
) -> dict[str, Array]:
    """The arrays of the library, by its names: what `load` takes back.

    Args:
        params: arrays by the names of `MultiHeadParams`, such as its `_asdict()`.
        prefix: what is put before the layout's names, separator included.

    Raises:
        ValueError: a parameter is missing or has no place in the layout, or sizes
            differ that the library takes to be equal.
    """
    given = {name: array for name, array in params.items() if array is not None}
    for name in given:
        if name not in layout.entries:
            raise ValueError(f"layout `{layout.name}` has no place for `{name}`")
    _check_complete(layout, given.keys(), lambda parameter: parameter)
    _check_sizes(layout, given)
    return {
        prefix + name: _joined([given[p] for p in parts], parts)
        for name, parts in layout.arrays.items()
        if given.keys() >= parts.keys()
    }


def check_module(layout: Layout, module: Any) -> None:
    """Refuses a module that does more than its arrays show.

    Raises:
        ValueError: an attribute of the module has another value than the layout needs.
    """
    for name, (value, why) in layout.settings.items():
        if getattr(module, name, value) != value:
            raise ValueError(
                f"{layout.of} with `{name}` = {getattr(module, name)} {why}"
            )


# ----------------------------------------------------------------------- one array


def _taken(
    array: Array, name: str, parts: Mapping[str, str], sizes: Mapping[str, int | None]
) -> dict[str, Array]:
    """The parameters that an array holds."""
    from einops import rearrange, unpack  # the site reads layouts where there is none

    first = next(iter(parts.values()))
    axes = re.findall(r"\(.+?\)|\w", first)
    if len(array.shape) != len(axes):
        shape = tuple(array.shape)
        raise ValueError(f"`{name}` must have axes {first}, but has shape {shape}")
    folded = [axis.startswith("(") for axis in axes]
    if not any(folded):
        return {p: rearrange(array, _pattern(p, axes)) for p, axes in parts.items()}
    counts = {p: _heads(name, axes, sizes) for p, axes in parts.items()}
    total = array.shape[folded.index(True)]
    lengths = _lengths(name, parts, counts, total, sizes)
    cut = unpack(array, [[n] for n in lengths.values()], _FOLDED.sub("*", first))
    return {
        p: rearrange(part, _pattern(p, axes), **{_letters(axes)[0]: counts[p]})
        for (p, axes), part in zip(parts.items(), cut, strict=True)
    }


def _joined(arrays: list[Array], parts: Mapping[str, str]) -> Array:
    """The array that holds the parameters, which are given in order."""
    from einops import pack, rearrange

    stored = [
        rearrange(array, f"{PARAMETERS[p]} -> {axes}")
        for array, (p, axes) in zip(arrays, parts.items(), strict=True)
    ]
    if len(stored) == 1:
        return stored[0]
    return pack(stored, _FOLDED.sub("*", next(iter(parts.values()))))[0]


def _pattern(parameter: str, axes: str) -> str:
    return f"{axes} -> {PARAMETERS[parameter]}"


def _letters(axes: str) -> tuple[str, str]:
    """Heads and their width, which are one axis."""
    heads, width = _FOLDED.findall(axes)[0]
    return heads, width


def _heads(name: str, axes: str, sizes: Mapping[str, int | None]) -> int:
    letter, _ = _letters(axes)
    heads = sizes[letter]
    if heads is None:
        raise ValueError(f"`{name}` does not show how many heads it has: pass `heads`")
    if heads < 1:
        raise ValueError(f"there must be {letter} ≥ 1 heads, but it is {heads}")
    return heads


def _lengths(
    name: str,
    parts: Mapping[str, str],
    counts: Mapping[str, int],
    total: int,
    known: Mapping[str, int | None],
) -> dict[str, int]:
    """How much of an axis of length `total` each part takes.

    Of packed parts, those whose width is known take that; the others share what is left
    equally by head.
    """
    packed = len(parts) > 1
    widths = {
        p: known.get(_letters(axes)[1]) if packed else None for p, axes in parts.items()
    }
    left = total - sum(counts[p] * (width or 0) for p, width in widths.items())
    heads = sum(counts[p] for p, width in widths.items() if width is None)
    if left < 0 or left % (heads or left or 1) or (left and not heads):
        axes = " + ".join(f"({' '.join(_letters(axes))})" for axes in parts.values())
        fixed = {_letters(parts[p])[1]: width for p, width in widths.items() if width}
        numbers = {_letters(axes)[0]: counts[p] for p, axes in parts.items()}
        where = f" where {_words(fixed)}" if fixed else ""
        raise ValueError(
            f"`{name}` must have a width {axes} that {_words(numbers)} heads divide"
            f"{where}, but it is {total}"
        )
    return {p: counts[p] * (width or left // heads) for p, width in widths.items()}


def _widths(params: Mapping[str, Array]) -> dict[str, int]:
    """d and e, as far as weights show them."""
    shown = {"w_q": ("d", 2), "w_v": ("e", 2)}
    return {
        letter: params[name].shape[axis]
        for name, (letter, axis) in shown.items()
        if name in params
    }


# -------------------------------------------------------------------- what is refused


def _held(layout: Layout, state: State) -> set[str]:
    return {p for p, entry in layout.entries.items() if entry.name in state}


def _check_names(layout: Layout, below: State, prefix: str) -> None:
    """Every array is one of the layout's, or lies beside."""
    for name in below:
        if why := layout.refused.get(name):
            raise ValueError(f"the state has `{prefix}{name}`, which {why}")
        if name not in layout.arrays and name not in layout.beside:
            raise ValueError(
                f"the state has `{prefix}{name}`, which is no part of layout "
                f"`{layout.name}`; if it is of another layer, pass the `prefix` of this"
            )


def _check_complete(
    layout: Layout, held: Collection[str], named: Callable[[str], str]
) -> None:
    """Every parameter is there, but for biases that are missing together."""
    for parameter in layout.entries:
        if parameter in held:
            continue
        group = next((g for g in layout.optional if parameter in g.split()), parameter)
        some = [other for other in group.split() if other in held]
        if some or group not in layout.optional:
            beside = (
                f"beside `{named(some[0])}`" if some else f"of layout `{layout.name}`"
            )
            raise ValueError(f"there is no `{named(parameter)}` {beside}")


def _check_sizes(layout: Layout, params: Mapping[str, Array]) -> dict[str, int]:
    """All letters have one size each, and those that the library takes as equal are."""
    sizes = bind_axes({p: (array, PARAMETERS[p]) for p, array in params.items()})
    if sizes["n"] % sizes["h"]:
        raise ValueError(
            f"query heads n = {sizes['n']} must be a multiple of key/value heads "
            f"h = {sizes['h']}"
        )
    for rule in layout.equal:
        left, right = (
            math.prod(sizes[letter] for letter in side.split())
            for side in rule.split(" = ")
        )
        if left != right:
            letters = sorted(set(rule) - set(" ="), key=list(AXES).index)
            raise ValueError(
                f"layout `{layout.name}` has {rule} only, but the parameters have "
                f"{_words({letter: sizes[letter] for letter in letters})}"
            )
    return sizes


def _words(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{letter} = {size}" for letter, size in sizes.items())

"""How a library's function is called: its keyword for every part of a call, its axes.

A canonical call has arrays `b n i d` and parts named as in `PARTS`.  A `Calling` says
how one function names these parts and orders the axes; it is what has to be known, or
declared, before a function can be called that was not written for this judge.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from attncheck.signature import read_parameters
from attncheck.subject import SubjectError
from attncheck.suggest import near, no_such
from attnref.spec import SPEC

PARTS: Mapping[str, tuple[str, ...]] = {
    "mask": ("mask", "attn_mask", "attention_mask"),
    "bias": ("bias", "attn_bias", "attention_bias"),
    "causal": ("causal", "is_causal"),
    "window": (
        "window",
        "window_size",
        "local_window_size",
        "sliding_window",
        "sliding_window_size",
    ),
    "scale": ("scale", "sm_scale", "softmax_scale", "attn_scale", "scaling"),
    "softcap": (
        "softcap",
        "soft_cap",
        "logits_soft_cap",
        "attn_logits_soft_cap",
        "logit_cap",
        "softmax_cap",
    ),
    "sinks": ("sinks", "s_aux", "head_sink"),
    "dropout_rate": ("dropout_rate", "dropout_p"),
    "dropout_keep": ("dropout_keep",),
    "grouped": ("enable_gqa",),
    "lse": ("return_lse", "return_logsumexp", "return_softmax_lse", "return_residual"),
    "weights": (
        "return_weights",
        "return_attn_weights",
        "return_attention_scores",
        "need_weights",
    ),
}
"""Part of a call → the keywords that are known to mean it.

`mask` and `bias` are arrays over `b n i j`, `sinks` one number a query head; `window`
is (left, right) or a number of keys; `causal` is a flag, and so are `grouped` (fewer
key/value heads than query heads), `lse` and `weights` (return them too).
"""

PART_OF: Mapping[str, str] = {
    word: part for part, words in PARTS.items() for word in words
}
"""Keyword → the part of a call that it is known to mean."""

ARRAYS = ("q", "k", "v")

_PLACES = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)
_ANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True, kw_only=True)
class Calling:
    """How one function is called."""

    keywords: Mapping[str, str] = field(default_factory=dict)
    """Part, a key of `PARTS` → the function's keyword for it, in its own order."""
    layout: str = SPEC.layout
    """Axes of q, k, v and the output; an axis that is left out is looped over by the
    caller, so here it must have size 1."""
    arrays: tuple[str, ...] = ARRAYS
    """What the function calls its first three parameters."""
    keyword_only: tuple[str, ...] = ()
    """Those of its keywords that cannot be given by position."""
    full: str = ""
    """The axes of `b n i j` in which it wants masks and biases full."""
    ignored: tuple[str, ...] = ()
    """Parameters that are not known to mean a part, and stay at their defaults."""

    def takes(self, part: str) -> bool:
        """Whether the function has a keyword for the part."""
        return part in self.keywords

    def options(self, parts: Mapping[str, Any]) -> dict[str, Any]:
        """The keyword arguments that give these parts to the function."""
        return {self.keywords[part]: value for part, value in parts.items()}

    def arrange(self, array: Any) -> Any:
        """`b n i d` → the function's own axes, of any framework's array."""
        return _rearrange(array, f"{self._held('b n i d')} -> {self.layout}")

    def restore(self, array: Any) -> Any:
        """The function's own axes → `b n i d`."""
        return _rearrange(array, f"{self.layout} -> {self._held('b n i d')}")

    def arrange_logits(self, array: Any, sizes: Sequence[int], xp: ModuleType) -> Any:
        """`b n i j` → the axes of a mask or a bias: those that the layout has.

        Args:
            array: each axis full or 1.
            sizes: of `b n i j`.
            xp: the framework's module of functions of arrays.
        """
        wanted = zip("bnij", sizes, array.shape, strict=True)
        shape = tuple(size if axis in self.full else had for axis, size, had in wanted)
        if shape != tuple(array.shape):
            array = xp.broadcast_to(array, shape)
        held = self._held("b n i j", always="j")
        return _rearrange(array, f"{held} -> {held.replace('1 ', '')}")

    def _held(self, axes: str, always: str = "") -> str:
        """`axes` with 1 in place of those that the layout lacks."""
        held = {*self.layout.split(), *always}
        return " ".join(axis if axis in held else "1" for axis in axes.split())


def calling_of(function: Callable, declared: Mapping[str, str], name: str) -> Calling:
    """How `function` is called: what is declared, and what its keywords say.

    Args:
        declared: part → keyword, where the name of the keyword does not say it.
        name: of the function, for messages.

    Raises:
        SubjectError: a function that cannot be called as `f(q, k, v, …)`, a keyword
            that it does not have, or two for one part.
    """
    for part in declared:
        if part not in PARTS:
            raise SubjectError(no_such("a part of a call", part, PARTS))
    parameters = read_parameters(function)
    if parameters is None:
        return Calling(keywords=dict(declared))
    arrays = _arrays(parameters, name)
    others = [p for p in parameters if p.name not in arrays and p.kind not in _ANY]
    found = [p.name for p in others]
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        check_has(found, declared.values(), name)
    free = [word for word in found if word not in declared.values()]
    recognised = {part: _keyword(part, free, name) for part in PARTS}
    part_of = {word: part for part, word in {**recognised, **declared}.items() if word}
    ignored = [p for p in others if p.name not in part_of]
    _check_optional(ignored, name)
    return Calling(
        keywords={part_of[w]: w for w in [*found, *part_of] if w in part_of},
        arrays=arrays,
        keyword_only=tuple(p.name for p in others if p.kind is p.KEYWORD_ONLY),
        ignored=tuple(p.name for p in ignored),
    )


def check_has(found: Sequence[str], declared: Iterable[str], name: str) -> None:
    """Raises SubjectError for a declared keyword that the function does not have."""
    for word in declared:
        if word not in found:
            raise SubjectError(
                f"{name!r} has no keyword {word!r}, "
                f"but {', '.join(found) or 'none'}{near(word, found)}"
            )


def _check_optional(parameters: Sequence[inspect.Parameter], name: str) -> None:
    """Raises SubjectError for a parameter that has to be given, and is not known."""
    if needed := [p.name for p in parameters if p.default is p.empty]:
        raise SubjectError(
            f"{name!r} needs {', '.join(f'`{word}`' for word in needed)}: say which "
            f"part of a call it is, as in --map scale={needed[0]}; the parts are "
            f"{', '.join(PARTS)}"
        )


def _arrays(parameters: Sequence[inspect.Parameter], name: str) -> tuple[str, ...]:
    """What the function calls q, k and v."""
    places = [p.name for p in parameters if p.kind in _PLACES][:3]
    if len(places) == 3:
        return tuple(places)
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return ARRAYS
    raise SubjectError(
        f"{name!r} cannot be called as f(q, k, v): "
        f"its positional parameters are ({', '.join(places)})"
    )


def _keyword(part: str, found: Sequence[str], name: str) -> str | None:
    """The keyword that is known to mean the part, or None where there is none."""
    known = [word for word in PARTS[part] if word in found]
    if len(known) > 1:
        raise SubjectError(
            f"the {part} of {name!r} may be {' or '.join(known)}: "
            f"say which, as in --map {part}={known[0]}"
        )
    return known[0] if known else None


def _rearrange(array: Any, pattern: str) -> Any:
    from einops import rearrange  # where a subject runs there may be none

    return rearrange(array, pattern)

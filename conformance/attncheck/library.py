"""A library's own function as a subject: its calls translated by what is declared.

The one mechanism by which every subject of `attncheck.subjects` is called.  It brings a
call of the spec into the library's axes, keywords and sense of True, and gives what the
library requires.  It computes nothing, and it makes up for nothing: what the library
makes of the call is what is judged.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from importlib.metadata import version
from types import ModuleType
from typing import Any

import numpy as np

from attncheck.calling import Calling, calling_of
from attncheck.case import DTYPES, Case
from attncheck.subject import DEFAULT_PROFILE, Subject, options
from attnref.spec import SPEC, Conventions


@dataclass(frozen=True, kw_only=True)
class Library:
    """A library's attention function, and what it declares of itself."""

    name: str
    """`library:path`, as in `jax:xla`."""
    function: Callable
    """The library's own; what it returns begins with the output."""
    framework: str
    """The framework of its arrays: a module of `attncheck.frameworks`."""
    packages: tuple[str, ...]
    """Distributions whose versions make its own, the library's first."""
    keywords: Mapping[str, str] = field(default_factory=dict)
    """Part of a call, a key of `attncheck.calling.PARTS` → its keyword, where the name
    does not say it."""
    conventions: Conventions = SPEC
    """How it is called: layout, sense of True, what it requires and what it lacks."""
    full: str = ""
    """The axes of `b n i j` in which it wants masks and biases full."""
    multiple: int = 1
    """Of which it wants both lengths to be a multiple."""
    projects: bool = False
    """Whether q, k and v go through projections, there the identity."""
    dtypes: tuple[str, ...] = tuple(DTYPES)
    differentiable: bool = True
    """Whether its framework's autodiff gives its gradients."""
    returns: tuple[str, ...] = ("output",)
    """What its results are, in order; `lse` is asked for where it has a keyword."""
    profile: str = DEFAULT_PROFILE

    @cached_property
    def calling(self) -> Calling:
        """Its keywords and its axes."""
        found = calling_of(self.function, self.keywords, self.name)
        return replace(found, layout=self.conventions.layout, full=self.full)

    @cached_property
    def version(self) -> str:
        """`flax 0.12.8, jax 0.10.2`."""
        return ", ".join(f"{name} {version(name)}" for name in self.packages)

    def subject(self) -> Subject:
        """The function as a subject, called in the words of the spec."""
        parts = ("bias", "scale", "softcap", "dropout_keep", "dropout_rate")
        accepts = {part for part in parts if self.calling.takes(part)}
        accepts |= {"mask"} if self._masks or self.calling.takes("causal") else set()
        accepts |= {"bias"} if self._adds_masks else set()
        return Subject(
            call=self.call,
            framework=self.framework,
            name=self.name,
            accepts=frozenset(accepts),
            returns=self.returns,
            conventions=self.conventions,
            differentiable=self.differentiable,
            profile=self.profile,
            library=self,
        )

    @property
    def _adds_masks(self) -> bool:
        return self.calling.takes("mask") and self.conventions.mask_float == "add"

    @property
    def _masks(self) -> bool:
        """Whether it takes any mask, as truth values or as numbers."""
        is_boolean = self.calling.takes("mask") and self.conventions.mask_true
        return bool(is_boolean) or self._adds_masks or self.calling.takes("bias")

    def lacking(self, case: Case) -> str | None:
        """Why it cannot be asked to do the case; None where it can."""
        sizes, ours = case.sizes, self.conventions
        if case.dtype not in self.dtypes:
            return f"takes no {case.dtype}"
        if ours.heads is None and sizes["g"] > 1:
            return "has no grouped heads"
        if ours.value_width == "same" and sizes["d"] != sizes["e"]:
            return "wants values as wide as the keys"
        if sizes["i"] % self.multiple or sizes["j"] % self.multiple:
            return f"wants lengths that are multiples of {self.multiple}"
        if self.projects and not _is_finite(case):
            return "has projections, in which 0 · NaN is NaN"
        if "mask" in case.inputs and not self._masks and not self._flags(case):
            return "takes no mask, only a flag"
        if case.scale is None and ours.scale == "one" and not self._takes_scale:
            return "has no scale, neither the default one nor a keyword"
        return None

    @property
    def _takes_scale(self) -> bool:
        return self.calling.takes("scale")

    def options(self, case: Case) -> dict[str, Any]:
        """Of the case's options, a flag in place of a mask that it says exactly."""
        given, flags = options(case), self._flags(case)
        return {n: x for n, x in given.items() if n != "mask" or not flags} | flags

    def _flags(self, case: Case) -> dict[str, Any]:
        """The causal flag and the window that are the case's mask; else nothing."""
        words, sizes = case.predicate, case.sizes
        corner = sizes["j"] - sizes["i"] if self._is_lower_right else 0
        flags: dict[str, Any] = {}
        if "causal_offset" in words and words["causal_offset"] == corner:
            flags["causal"] = True
        if "window" in words and None not in words["window"] and not corner:
            flags["window"] = tuple(words["window"])
        said = len(flags) == len(words) and self.conventions.window in (None, *_ENDS)
        return flags if said and all(map(self.calling.takes, flags)) else {}

    @property
    def _is_lower_right(self) -> bool:
        return self.conventions.causal == "lower-right"

    def call(self, q: Any, k: Any, v: Any, **given: Any) -> tuple:
        """The function, called in the words of the spec.

        Raises:
            NotImplementedError: whatever the function raised: it refuses the call.
        """
        n, h, d = q.shape[1], k.shape[1], q.shape[3]
        order = self._order(n, h)
        q = q[:, order]
        given = {name: _reordered(x, order) for name, x in given.items()}
        parts = self._masked(q, (*q.shape[:3], k.shape[2]), given)
        if self._takes_scale and self.conventions.scale != "rsqrt_d":
            parts.setdefault("scale", d**-0.5)
        if self.calling.takes("grouped"):
            parts["grouped"] = n != h
        if "lse" in self.returns and self.calling.takes("lse"):
            parts["lse"] = True
        arrays = [self.calling.arrange(x) for x in (q, k, v)]
        try:
            found = self.function(*arrays, **self.calling.options(parts))
        except Exception as error:
            first = str(error).strip().partition("\n")[0]
            raise NotImplementedError(f"{type(error).__name__}: {first}") from error
        results = found if isinstance(found, tuple | list) else (found,)
        back = np.argsort(order) if isinstance(order, np.ndarray) else order
        return tuple(
            self._restored(name, array)[:, back]
            for name, array in zip(self.returns, results, strict=False)
        )

    def _order(self, n: int, h: int) -> np.ndarray | slice:
        """The query heads as the function groups them, from those of the spec."""
        if self.conventions.heads != "gh" or n == h:
            return slice(None)
        return np.arange(n).reshape(h, -1).T.ravel()

    def _restored(self, name: str, array: Any) -> Any:
        if name != "lse" or self.conventions.layout == SPEC.layout:
            return self.calling.restore(array) if name != "lse" else array
        return array.swapaxes(1, 2)  # b i n

    def _masked(self, q: Any, shape: tuple, given: Mapping[str, Any]) -> dict[str, Any]:
        """The parts of the call, mask and bias as the function wants them."""
        parts = {name: x for name, x in given.items() if name not in ("mask", "bias")}
        mask, bias = (given.get(name) for name in ("mask", "bias"))
        takes_bias = self.calling.takes("bias")
        sense = self.conventions.mask_true if self.calling.takes("mask") else None
        if mask is not None and (sense is None or not (bias is None or takes_bias)):
            mask, bias = None, self._as_bias(q, mask, bias)
        if mask is not None:
            parts["mask"] = self._arranged(mask if sense == "attend" else ~mask, shape)
        if bias is not None:
            parts["bias" if takes_bias else "mask"] = self._arranged(bias, shape)
        return parts

    def _as_bias(self, q: Any, mask: Any, bias: Any) -> Any:
        """A mask as a bias, for a function that adds what it masks with."""
        xp, is_lowest = _module(self.framework), self.conventions.fill > float("-inf")
        low = float(xp.finfo(q.dtype).min) if is_lowest else float("-inf")
        zero, low = (xp.asarray(x, dtype=q.dtype) for x in (0.0, low))
        return xp.where(mask, zero if bias is None else bias, low)

    def _arranged(self, array: Any, shape: tuple) -> Any:
        """A mask or a bias in the function's axes."""
        return self.calling.arrange_logits(array, shape, _module(self.framework))


def _reordered(x: Any, order: np.ndarray | slice) -> Any:
    """An option with its query heads in another order, if it has some."""
    has_heads = getattr(x, "ndim", 0) == 4 and x.shape[1] > 1
    return x[:, order] if has_heads else x


def _is_finite(case: Case) -> bool:
    """Whether nothing that goes through projections, gradients included, is NaN or ∞.

    A bias of −∞ is no such thing.
    """
    bias = case.inputs.get("bias", np.zeros(1)).astype(np.float64)
    if not (bias < np.inf).all():
        return False
    arrays = (
        case.inputs[name] for name in ("q", "k", "v", "d_out") if name in case.inputs
    )
    return all(np.isfinite(array.astype(np.float64)).all() for array in arrays)


_ENDS = ("inclusive",)
"""The windows whose ends are the spec's."""


def _module(framework: str) -> ModuleType:
    """The module with a framework's functions of arrays."""
    return import_module({"jax": "jax.numpy"}.get(framework, framework))

"""What an operation is: its inputs, its options, and how it becomes plain attention."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from attncheck.case import Case
    from attncheck.formulas import Arithmetic

Array = Any
"""Numbers of some arithmetic: see `attncheck.formulas`."""

Results = Mapping[str, Array]
"""Result → numbers of some arithmetic."""


class Setting(NamedTuple):
    """An option that an operation has beside those of attention."""

    is_right: Callable[[Any], bool]
    words: str
    """What it must be."""


@dataclass(frozen=True)
class Reduced:
    """A call of plain attention that gives what an operation gives."""

    case: "Case"
    """The call, its arrays the nearest in float64."""
    operands: Mapping[str, Array]
    """q, k, v and, where there is one, the bias at full size, in the arithmetic; and
    d_out, where it is not what the operation is given."""
    back: Callable[[Results], "dict[str, Array] | Reduced"]
    """From the results of plain attention to those of the operation: what it returns,
    and where they are given the gradients of its own inputs; or to the next call."""


@dataclass(frozen=True)
class Operation:
    """One function that is attention but for some steps.

    `reduce(case, numbers)` makes of a case a call of plain attention, in any
    arithmetic, or the first of several.  In float64 it is the definition, in pairs what
    float64 cases must give, in balls the proof of both, and in `budget.bounded` the
    bound of the errors that its own roundings bring into the operands, and into the
    gradients on the way back.
    """

    name: str
    """That of the function in the rooms."""
    title: str
    """What to call it in a sentence: `rotary attention`."""
    reduce: Callable[["Case", "Arithmetic"], Reduced]
    operands: tuple[str, ...] = ("q", "k", "v")
    """What it has of the inputs of attention, or of multi-head attention."""
    required: Mapping[str, str] = field(default_factory=dict)
    """Its own inputs → their axes."""
    optional: Mapping[str, str] = field(default_factory=dict)
    """Likewise, of those that may be absent."""
    settings: Mapping[str, Setting] = field(default_factory=dict)
    """Its own options."""
    without: tuple[str, ...] = ()
    """The options and further inputs of attention that it does not take."""
    returns: Mapping[str, str] = field(
        default_factory=lambda: {"output": "bnie", "lse": "bni"}
    )
    """What it returns → its axes, in order."""
    refuses: Callable[["Case"], str] = lambda case: ""
    """Why inputs and options that are right each are no call; else nothing."""

    def results(
        self,
        case: "Case",
        numbers: "Arithmetic",
        attention: Callable[[Reduced], Results],
    ) -> dict[str, Array]:
        """What it gives, its calls of plain attention made by `attention`."""
        found: dict[str, Array] | Reduced = self.reduce(case, numbers)
        while isinstance(found, Reduced):
            found = found.back(attention(found))
        return found

    @property
    def differentiable(self) -> bool:
        """Whether its gradients are judged."""
        return "d_out" not in self.without

    @property
    def axes(self) -> dict[str, str]:
        """The axes of its own inputs, of what it returns, and of that gradient."""
        own = {**self.required, **self.optional}
        return {**own, **self.returns, "d_out": self.returns["output"]}

    def check(self, case: "Case") -> None:
        """Refuses options that it does not have, or that are none together.

        Raises:
            ValueError: which, and what it must be.
        """
        for name in ("scale", "softcap"):
            if name in self.without and getattr(case, name) is not None:
                raise ValueError(f"{self.name} takes no `{name}`")
        for name, value in case.settings.items():
            if name not in self.settings:
                raise ValueError(f"{self.name} takes no `{name}`")
            if not self.settings[name].is_right(value):
                raise ValueError(f"`{name}` must be {self.settings[name].words}")
        if why := self.refuses(case):
            raise ValueError(why)


def plain(case: "Case", numbers: "Arithmetic", **changes: Any) -> "Case":
    """The case as one of plain attention.

    Args:
        changes: inputs and options that differ; None: an input that it has not.
            Numbers of the arithmetic become the nearest in float64.
    """
    inputs = dict(case.inputs)
    own = {name for name in changes if name not in ("scale", "softcap")}
    for name in own:
        array = changes[name]
        inputs[name] = array if _is_plain(array) else numbers.nearest(array)
    inputs = {name: x for name, x in inputs.items() if name in PLAIN and x is not None}
    options = {name: changes[name] for name in changes if name not in own}
    options.setdefault("scale", case.scale_value)
    return replace(
        case, op="attention", inputs=inputs, settings={}, strides={}, **options
    )


RETURNED = ("output", "lse", "dq", "dk", "dv", "dbias")
"""The results of plain attention from which those of an operation are made."""

PLAIN = ("q", "k", "v", "mask", "bias", "dropout_keep", "d_out", "d_lse")
"""The inputs of plain attention."""


def _is_plain(array: Array) -> bool:
    return array is None or (isinstance(array, np.ndarray) and array.dtype != object)


def own(case: "Case", name: str) -> np.ndarray:
    """An input in float64."""
    return case.inputs[name].astype(np.float64)


def full(case: "Case", name: str, absent: float | bool = 0.0) -> np.ndarray:
    """A mask or a bias at full size, `b n i j`."""
    array = case.inputs.get(name, np.full((1, 1, 1, 1), absent))
    if array.dtype != bool:
        array = array.astype(np.float64)
    return np.broadcast_to(array, tuple(case.sizes[axis] for axis in "bnij"))


def added(numbers: "Arithmetic", bias: np.ndarray, more: Array) -> Array:
    """A bias and something finite; infinities, which say all, stay what they are.

    As a sum of two terms, because the logit may be added to either of them first.
    """
    infinite = np.isinf(bias)
    finite = numbers.number(np.where(infinite, 0.0, bias))
    terms = beside(numbers, finite[..., None], more[..., None])
    return numbers.where(infinite, bias, summed(numbers, terms, [-1])[..., 0])


def summed(
    numbers: "Arithmetic", array: Array, axes: Sequence[int], *, more: int = 0
) -> Array:
    """The sums over some axes, kept as 1.

    Args:
        more: of further terms, where what is summed goes into other sums.
    """
    for axis in axes:
        ones = numbers.number(np.ones((array.shape[axis], 1)))
        total = numbers.product(array.swapaxes(axis, -1), ones, more)
        array = total.swapaxes(axis, -1)
    return array


def summed_to_bias(case: "Case", numbers: "Arithmetic", array: Array) -> Array:
    """`b n i j` summed over the axes along which the case's bias is 1."""
    shape = case.inputs["bias"].shape
    axes = [at for at, size in enumerate(shape) if size != array.shape[at]]
    return summed(numbers, array, axes)


def beside(numbers: "Arithmetic", x: Array, y: Array) -> Array:
    """(x, y), along the last axis."""
    first, width = x.shape[-1], x.shape[-1] + y.shape[-1]
    place = np.arange(width)
    x, y = x[..., np.minimum(place, first - 1)], y[..., np.maximum(place - first, 0)]
    return numbers.where(place < first, x, y)


def places(case: "Case") -> np.ndarray:
    """Where each query stands, `b i` or, for all batch elements alike, `1 i`."""
    offset = np.asarray(case.settings.get("offset", 0)).reshape(-1, 1)
    return np.arange(case.sizes["i"]) + offset


def is_number(x: Any) -> bool:
    """As JSON has them."""
    return isinstance(x, int | float) and not isinstance(x, bool)


def is_integer(x: Any) -> bool:
    """As JSON schemas have it: 2.0 is one."""
    return is_number(x) and x == int(x)


OFFSET = Setting(
    lambda x: (
        is_integer(x) or (isinstance(x, list) and x != [] and all(map(is_integer, x)))
    ),
    "an integer, or a list of one for each batch element",
)

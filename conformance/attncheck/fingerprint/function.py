"""The function under the probes: canonical NumPy arrays in, NumPy arrays out."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations, product
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from attncheck.calling import Calling
from attncheck.case import DTYPES
from attncheck.fingerprint.reading import NotMeasured

Array = np.ndarray

LAYOUTS = ("b n i d", "b i n d", "i b n d", "n i d", "i n d", "i d")
"""The orders of axes that are tried, in this order."""

SIZES = {"b": 2, "n": 3, "i": 5, "j": 7, "d": 11}
"""All different and prime: no order of axes can be taken for another."""


class Refused(Exception):  # noqa: N818 — what a function may do
    """The function raised, or returned nothing that could be the output."""


class Place(NamedTuple):
    """Where one of the arrays that a function returns stands, and its axes."""

    number: int | None
    """None: it is all that is returned."""
    axes: str


@dataclass
class Function:
    """A function, and what is known of it so far."""

    call: Callable
    framework: ModuleType
    calling: Calling
    returns: Sequence[str] = ()
    """Names of what it returns, where they are declared."""
    known: dict[str, Any] = field(default_factory=dict)
    """Field of `Conventions` → value, of the fields that are measured."""
    _places: dict[tuple, Place | None] = field(default_factory=dict)

    def takes(self, part: str) -> bool:
        """Whether the function has a keyword for the part of a call."""
        return self.calling.takes(part)

    def need(self, field_name: str) -> Any:
        """The measured value of a field.

        Raises:
            NotMeasured: it has none.
        """
        if field_name not in self.known:
            raise NotMeasured(f"needs the {field_name}, which was not measured")
        return self.known[field_name]

    def output(self, q: Array, k: Array, v: Array, **options: Any) -> Array:
        """The output in float64; all else as for `attend`."""
        return self.attend(q, k, v, **options).astype(np.float64)

    def attend(self, q: Array, k: Array, v: Array, **options: Any) -> Array:
        """The output as it comes, but for the order of its axes: `b n i e`.

        Args:
            q: `b n i d`, and k and v `b h j d`, `b h j e`, in any float type.
            options: `dtype`, a key of `DTYPES`, and the parts of the call.

        Raises:
            Refused: the function raised, or its output has a wrong shape.
            NotMeasured: it is not known how to call it.
        """
        function = self._laid_out()
        place = function._place("output", options)
        if place is None:
            raise NotMeasured("what it returns could not be told apart")
        got = function.returned(q, k, v, **options)[place.number or 0]
        shape = "nothing" if got is None else got.shape
        try:
            out = function.calling.restore(got)
        except Exception as error:
            raise Refused(f"the output has the shape {shape}") from error
        if out.shape != (*q.shape[:-1], v.shape[-1]):
            raise Refused(f"the output has the shape {shape}")
        return out

    def other(
        self, name: str, q: Array, k: Array, v: Array, **options: Any
    ) -> tuple[Array, str]:
        """The `lse` or the `weights` as they come, and their axes.

        Raises:
            Refused, NotMeasured: as for `output`, or none are returned.
        """
        function = self._laid_out()
        options = self._asking(name) | options
        place = function._place(name, options)
        if place is None:
            raise NotMeasured(f"returns no {name}")
        got = function.returned(q, k, v, **options)[place.number or 0]
        if got is None or got.ndim != len(place.axes.split()):
            raise Refused(f"the {name} have another shape here")
        return got, place.axes

    def gives(self, name: str) -> bool:
        """Whether the function returns the `lse` or the `weights`, when asked to."""
        return self._laid_out()._place(name, self._asking(name)) is not None

    def places(self, name: str) -> dict[str, Any]:
        """Where a result and the output stand when the result is asked for."""
        function, asking = self._laid_out(), self._asking(name)
        one, output = (function._place(n, asking) for n in (name, "output"))
        assert one is not None  # who asks knows that it is returned
        return {
            "number": one.number,
            "axes": one.axes,
            "output": output and output.number,
        }

    def _asking(self, name: str) -> dict[str, bool]:
        """The parts of a call that make the function return a result."""
        return {name: True} if self.takes(name) else {}

    def weights(self, logits: Array, **options: Any) -> Array:
        """The weights that the function gives to rows of logits, both `i j`.

        The default scale makes these logits from the scores, and V = identity reads the
        weights out.
        """
        return self.output(*self.giving(logits), **options)[0, 0]

    def giving(self, logits: Array) -> tuple[Array, Array, Array]:
        """q, k and v that have these logits, `i j`; k and v are the identity."""
        keys = logits.shape[1]
        eye = np.eye(keys)[None, None]
        return logits[None, None] / self.default_scale(keys), eye, eye

    def default_scale(self, width: int) -> float:
        """What scores are multiplied by where the caller gives no scale.

        Raises:
            NotMeasured: it is not known.
        """
        return 1.0 if self.need("scale") == "one" else width**-0.5

    def seeing(self, seen: Array) -> dict[str, Any]:
        """The parts of a call that let each query see these keys, `i j`, and no others.

        Raises:
            NotMeasured: neither a boolean mask nor the causal flag can do that.
        """
        if self.takes("mask") and self.known.get("mask_true") is not None:
            attend = self.known["mask_true"] == "attend"
            return {"mask": (seen if attend else ~seen)[None, None]}
        if "causal" in self.known:
            i, j = seen.shape
            offset = {"upper-left": 0, "lower-right": j - i}[self.known["causal"]]
            flag = np.tri(i, j, offset, dtype=bool)
            if np.array_equal(seen, flag):
                return {"causal": True}
        raise NotMeasured("takes no boolean mask that is understood")

    def biased(self, bias: Array) -> dict[str, Any]:
        """The part of a call that adds a bias, `i j`.

        Raises:
            NotMeasured: the function takes none.
        """
        if self.takes("bias"):
            return {"bias": bias[None, None]}
        if self.known.get("mask_float") == "add":
            return {"mask": bias[None, None]}
        raise NotMeasured("takes no bias")

    def returned(
        self, q: Array, k: Array, v: Array, *, dtype: str = "F32", **parts: Any
    ) -> list[Array | None]:
        """What the function returns, as it comes; None for what is no array.

        Raises:
            Refused: the function raised.
        """
        parts = self._completed(q, k, parts)
        storage = DTYPES[dtype]
        with (
            self.framework.precision(dtype),
            np.errstate(all="ignore"),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            try:
                arrays = [
                    self._native(self.calling.arrange(x).astype(storage))
                    for x in (q, k, v)
                ]
                sizes = (*q.shape[:3], k.shape[2])
                options = {
                    part: self._part(value, sizes, storage)
                    for part, value in parts.items()
                }
                found = self.call(*arrays, **self.calling.options(options))
                return [self._numpy(one) for one in _listed(found)]
            except (Exception, SystemExit) as error:
                first = str(error).strip().partition("\n")[0]
                raise Refused(f"{type(error).__name__}: {first}") from error

    def find_output(self, layout: str) -> Place:
        """Where the output is if q, k, v and the output have this layout.

        Where q = 0, all keys weigh the same, so it is the mean of the values.

        Raises:
            Refused: the function raised, or returned no such array.
        """
        function = replace(self, calling=replace(self.calling, layout=layout))
        try:
            place = function._search("output", {})
        except Refused:
            if not self.takes("scale"):
                raise
            place = function._search("output", {"scale": 1.0})  # it may be required
        if place is None:
            raise Refused("the output is not the mean of the values where q = 0")
        return place

    def _laid_out(self) -> "Function":
        """This function, called in its own layout."""
        layout = self.need("layout")
        return replace(self, calling=replace(self.calling, layout=layout))

    def _place(self, name: str, options: Mapping[str, Any]) -> Place | None:
        """Where a result stands, found once for each set of flags."""
        flags = {"lse": True, "weights": True, "scale": 1.0}
        flags = {part: value for part, value in flags.items() if part in options}
        key = (name, *flags)
        if key not in self._places:
            self._places[key] = self._search(name, flags)
        return self._places[key]

    def _search(self, name: str, parts: Mapping[str, Any]) -> Place | None:
        """The first returned array whose shape and values are those of the result."""
        layout = self.calling.layout
        q, k, v = _uniform(layout)
        arrays = self.returned(q, k, v, **parts)
        held = [axis for axis in ("b", "n", "i") if axis in layout]
        mean = np.broadcast_to(v.mean(2, keepdims=True), q.shape)
        wanted = {
            "output": {layout: self.calling.arrange(mean)},
            "lse": dict.fromkeys(_orders(held)),
            "weights": dict.fromkeys(_weight_orders(held), 1 / SIZES["j"]),
        }[name]
        declared = [self.returns.index(name)] if name in self.returns else None
        numbers = declared or range(len(arrays))
        for number, (order, want) in product(numbers, wanted.items()):
            if _is_it(arrays[number], order, want):
                return Place(number if len(arrays) > 1 else None, order)
        return None

    def _completed(self, q: Array, k: Array, parts: Mapping[str, Any]) -> dict:
        """The parts with those that the function needs anyway."""
        needed: dict[str, Any] = {}
        if self.known.get("scale") == "required":
            needed["scale"] = float(q.shape[-1] ** -0.5)
        if self.takes("causal"):
            needed["causal"] = False
        if self.takes("grouped") and q.shape[1] != k.shape[1]:
            needed["grouped"] = True
        return needed | dict(parts)

    def _part(self, value: Any, sizes: Sequence[int], storage: np.dtype) -> Any:
        array = value
        if not isinstance(value, np.ndarray):
            return value
        if value.ndim == 4:
            array = self.calling.arrange_logits(value, sizes, np)
        return self._native(array if array.dtype == bool else array.astype(storage))

    def _native(self, array: Array) -> Any:
        return self.framework.to_native(np.ascontiguousarray(array))

    def _numpy(self, value: Any) -> Array | None:
        if not self.framework.is_native(value):
            return None
        return np.asarray(self.framework.to_numpy(value))


def _uniform(layout: str) -> tuple[Array, Array, Array]:
    """q = 0, and any k and v, as large in the axes of a layout as it allows."""
    rng = np.random.default_rng(0)
    b, n, i, j, d = (SIZES[a] if a in layout or a == "j" else 1 for a in "bnijd")
    return np.zeros((b, n, i, d)), *rng.standard_normal((2, b, n, j, d))


def _orders(axes: Sequence[str]) -> list[str]:
    return [" ".join(order) for order in permutations(axes)]


def _weight_orders(held: Sequence[str]) -> list[str]:
    """The axes that weights may have, per head or averaged over the heads."""
    averaged = [axis for axis in held if axis != "n"]
    return [*_orders([*held, "j"]), *_orders([*averaged, "j"])]


def _is_it(array: Array | None, order: str, want: Any) -> bool:
    """Whether an array has these axes and, where they are known, these values."""
    if array is None or array.shape != tuple(SIZES[axis] for axis in order.split()):
        return False
    return want is None or np.allclose(array.astype(np.float64), want, atol=1e-3)


def _listed(found: Any) -> list[Any]:
    """What was returned, one by one."""
    if isinstance(found, Mapping):
        return list(found.values())
    return list(found) if isinstance(found, tuple | list) else [found]

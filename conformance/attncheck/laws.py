"""Laws: how the results of related calls are related, whatever the right result is.

A law derives cases from a case.  They are ordinary cases, judged one by one as all are;
beside that, their results are compared with those of the case that they come from.
Equal bit for bit is more than the budget asks for, so it is reported, not demanded; a
difference beyond what the budgets of both allow breaks the law.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from attncheck.budget import half_ulp, output_dtype
from attncheck.case import Case
from attncheck.definition import Expected, visible
from attncheck.exchange import Result

LARGE = 2.0**20
"""A bias beside which float32 keeps few bits of a score."""

EDITED = 1.5
"""What stands at blocked places instead; a number of every storage type."""


class Side(NamedTuple):
    """A case, what it must give and how exactly, and what it gave."""

    case: Case
    want: Expected
    bounds: Mapping[str, np.ndarray]
    arrays: Mapping[str, np.ndarray]

    def room(self, name: str) -> np.ndarray:
        """How far a legal result may lie from the expected one, rounding included."""
        bound = self.bounds[name]
        with np.errstate(all="ignore"):
            magnitude = np.abs(getattr(self.want, name)) + bound
            return bound + half_ulp(magnitude, output_dtype(self.case, name))


class Pair(NamedTuple):
    """Two arrays that are equal but for rounding, and how far apart that may be."""

    name: str
    got: np.ndarray
    other: np.ndarray
    room: np.ndarray


class Law(NamedTuple):
    """A relation between the results of a case and of cases that derive from it."""

    name: str
    sentence: str
    why: str
    """The mistake that it is there to catch."""
    applies: Callable[[Case], bool]
    derive: Callable[[Case], Sequence[Case]]
    relate: Callable[[Side, Sequence[Side]], Iterable[Pair]]
    bases: tuple[str, ...]
    """The recipes whose cases it derives from in the smoke set."""
    everywhere: bool = True
    """In the full set it derives from every case to which it applies."""


@dataclass(frozen=True)
class Holding:
    """How a law holds for one subject."""

    law: str
    sentence: str
    bitwise: int = 0
    """How often the results are equal bit for bit, but for the sign of 0."""
    within: int = 0
    """How often they differ, by no more than the budgets allow."""
    broken: tuple[str, ...] = ()
    """The derived cases, and the results, that break it."""
    not_judged: int = 0
    """How often a result that it speaks of is missing."""
    why: str = ""
    """Why there is none of them, where the subject's results say so."""


def derived(cases: Iterable[Case], *, everywhere: bool) -> list[Case]:
    """The cases that the laws derive from some of the cases, or from all they can."""
    return [
        twin
        for case in cases
        for law in LAWS
        if ((everywhere and law.everywhere) or _recipe(case) in law.bases)
        and law.applies(case)
        for twin in law.derive(case)
    ]


def check(
    cases: Sequence[Case],
    results: Mapping[str, Result],
    expected: Callable[[Case], Expected],
    bounds: Callable[[Case], Mapping[str, np.ndarray]],
) -> list[Holding]:
    """How every law holds whose cases are among `cases`, in the order of `LAWS`."""
    by_id = {case.id: case for case in cases}
    groups: dict[str, dict[str, list[Case]]] = {}
    for case in cases:
        if case.law:
            groups.setdefault(case.law, {}).setdefault(case.twin, []).append(case)

    def side(id: str) -> Side | None:
        case, result = by_id.get(id), results.get(id)
        if case is None or result is None or result.status != "done":
            return None
        want = expected(case)
        arrays = {  # one of a wrong shape fails its own case
            name: array
            for name, array in result.arrays.items()
            if array.shape == getattr(want, name).shape
        }
        return Side(case, want, bounds(case), arrays)

    def why(ids: Iterable[str]) -> str:
        missing = (results[id] for id in ids if id in results)
        return next((one.message for one in missing if one.status != "done"), "")

    found = []
    for law in (law for law in LAWS if law.name in groups):
        outcomes = {
            parts[0].id: _outcome(law, side(twin), [side(part.id) for part in parts])
            if _are_derived(law, by_id.get(twin), parts)
            else "not judged"
            for twin, parts in groups[law.name].items()
        }
        ids = (c.id for parts in groups[law.name].values() for c in parts)
        found.append(_holding(law, outcomes, why(ids)))
    return found


def _are_derived(law: Law, case: Case | None, parts: Sequence[Case]) -> bool:
    """Whether these are the cases, all of them, that the law derives from `case`."""
    if case is None or not law.applies(case):
        return False
    derived = sorted(twin.sha256 for twin in law.derive(case))
    return derived == sorted(part.sha256 for part in parts)


def _outcome(law: Law, whole: Side | None, parts: Sequence[Side | None]) -> str:
    """`bitwise`, `within`, `not judged`, or the name of the result that breaks it."""
    sides = [side for side in (whole, *parts) if side is not None]
    if len(sides) <= len(parts):
        return "not judged"
    pairs = list(law.relate(sides[0], sides[1:]))
    if not pairs:
        return "not judged"
    if all(np.array_equal(x, y, equal_nan=True) for _, x, y, _ in pairs):
        return "bitwise"
    return next((pair.name for pair in pairs if not _close(pair)), "within")


def _close(pair: Pair) -> bool:
    if pair.got.shape != pair.other.shape:
        return False
    with np.errstate(all="ignore"):
        near = np.abs(pair.got - pair.other) <= pair.room
    same = (pair.got == pair.other) | (np.isnan(pair.got) & np.isnan(pair.other))
    return bool((near | same).all())


def _holding(law: Law, outcomes: Mapping[str, str], why: str) -> Holding:
    said = list(outcomes.values())
    known = ("bitwise", "within", "not judged")
    broken = tuple(f"{id} {name}" for id, name in outcomes.items() if name not in known)
    bitwise, within, missing = (said.count(word) for word in known)
    why = why if missing == len(said) else ""
    return Holding(law.name, law.sentence, bitwise, within, broken, missing, why)


def _recipe(case: Case) -> str:
    return case.id.rpartition("/")[0]


def _twin(law: str, why: str, case: Case, part: str = "", **changes: Any) -> Case:
    """A case derived from `case`, whose predicate and memory are its own."""
    name = f"law-{law}/{_recipe(case)}{part and '-' + part}/{case.dtype}"
    changes = {"predicate": {}, "strides": {}} | changes
    return replace(case, id=name, law=law, twin=case.id, clauses=(), why=why, **changes)


def _indexed(case: Case, axis: str, index: np.ndarray) -> dict[str, np.ndarray]:
    """The inputs, of which those that vary along an axis are taken at `index`."""
    taken = dict(case.inputs)
    for name, array in case.inputs.items():
        place = case.axes(name).find(axis)
        if place >= 0 and array.shape[place] == case.sizes[axis]:
            taken[name] = array.take(index, place)
    return taken


def _compared(
    whole: Side,
    part: Side,
    place: Callable[[str, np.ndarray], np.ndarray | None] = lambda name, array: array,
) -> Iterator[Pair]:
    """Results that both sides have, those of the whole moved to where the part's are.

    Args:
        place: makes of an array of the whole that of the part; None where there is no
            such.  A blocked key has no score, and none is compared.
    """
    for name in (name for name in part.arrays if name in whole.arrays):
        arrays = whole.arrays[name].astype(np.float64), whole.room(name)
        here = [place(name, array) for array in arrays]
        got, room = part.arrays[name].astype(np.float64), part.room(name)
        if here[0] is None or here[1] is None:
            continue
        if name in ("scores", "logits") and got.shape == part.want.visible.shape:
            got, here[0] = (np.where(part.want.visible, x, 0) for x in (got, here[0]))
        yield Pair(name, got, here[0], room + here[1])


def _is_attention(case: Case) -> bool:
    return case.op == "attention"


def _is_finite(case: Case) -> bool:
    arrays = [a for a in case.inputs.values() if a.dtype != bool]
    return all(np.isfinite(array.astype(np.float64)).all() for array in arrays)


def _can_be_split(case: Case) -> bool:
    """Whether scores still count in a part of the keys that has only the lowest."""
    if not _is_attention(case) or case.sizes["j"] < 2 or not _is_finite(case):
        return False
    bias = case.inputs.get("bias", np.zeros(1)).astype(np.float64)
    return bool((np.abs(bias) < LARGE).all())


# Run twice.


def _again(case: Case) -> list[Case]:
    return [_twin(*REPEAT, case, predicate=case.predicate, strides=case.strides)]


def _compiled(case: Case) -> list[Case]:
    predicate, strides = case.predicate, case.strides
    twin = _twin(*COMPILED, case, predicate=predicate, strides=strides, compiled=True)
    return [twin]


def _same(whole: Side, parts: Sequence[Side]) -> Iterator[Pair]:
    return _compared(whole, parts[0])


# Keys in another order.


def _order(keys: int) -> np.ndarray:
    """The keys backwards, from one in the middle on."""
    return np.roll(np.arange(keys)[::-1], keys // 3)


def _permuted(case: Case) -> list[Case]:
    order = _order(case.sizes["j"])
    return [_twin(*PERMUTE, case, inputs=_indexed(case, "j", order))]


def _reordered(whole: Side, parts: Sequence[Side]) -> Iterator[Pair]:
    keys = whole.case.sizes["j"]

    def place(name: str, array: np.ndarray) -> np.ndarray:
        axis = whole.case.axes(name).find("j")
        if axis < 0 or array.shape[axis] != keys:  # dbias may be broadcast
            return array
        return array.take(_order(keys), axis)

    return _compared(whole, parts[0], place)


# Keys in two parts.


def _halves(case: Case) -> list[Case]:
    keys = np.arange(case.sizes["j"])
    parts = {"first": keys[: keys.size // 2], "last": keys[keys.size // 2 :]}
    wants = ("output", "lse")
    return [
        _twin(*SPLIT, case, part, inputs=_indexed(case, "j", index), wants=wants)
        for part, index in parts.items()
    ]


def _merged(whole: Side, parts: Sequence[Side]) -> Iterator[Pair]:
    r"""lse = ln Σ e^{lse_k} and o = Σ w_k o_k with w_k = e^{lse_k − lse}.

    Where every lse_k is off by at most ε, so is lse, and w_k by a factor e^{±2ε}: with
    |o_k| off by B_k, o is by at most (e^{2ε} − 1) Σ w_k |o_k| + Σ w_k B_k.  The merge's
    own roundings are a few of float64 in every exponent.
    """
    if not all({"output", "lse"} <= set(side.arrays) for side in (whole, *parts)):
        return
    merged = np.logaddexp(*(_float64(part, "lse") for part in parts))
    error = _lse_error(parts)
    growth = np.exp(2 * error)[..., None]
    output, room = np.zeros(1), whole.room("output")
    for part in parts:
        values = _float64(part, "output")
        output = output + _share(_float64(part, "lse"), merged) * values
        off = (growth - 1) * np.abs(values) + growth * part.room("output")
        room = room + _share(part.want.lse, whole.want.lse) * off
    yield Pair("lse", _float64(whole, "lse"), merged, whole.room("lse") + error)
    yield Pair("output", _float64(whole, "output"), output, room)


def _float64(side: Side, name: str) -> np.ndarray:
    return side.arrays[name].astype(np.float64)


def _share(lse: np.ndarray, total: np.ndarray) -> np.ndarray:
    """The weight of a part in its row, `b n i 1`; 0 where the row is empty."""
    with np.errstate(invalid="ignore"):
        weight = np.exp(lse - total)
    return np.where(np.isnan(weight), 0.0, weight)[..., None]


def _lse_error(parts: Sequence[Side]) -> np.ndarray:
    """How far any part's log-sum-exp may be off, the merge's roundings of it added."""
    rounding = 4 * np.finfo(np.float64).eps
    magnitude = sum(_finite(np.abs(_float64(part, "lse"))) for part in parts)
    room = np.max([_finite(part.room("lse")) for part in parts], axis=0)
    return room + rounding * (1 + magnitude)


def _finite(array: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(array), array, 0.0)


# Blocked entries edited.


def _unseen(case: Case) -> np.ndarray:
    """Keys that are blocked for every query of their key/value head, `b h j`."""
    seen, sizes = visible(case), case.sizes
    shape = sizes["b"], sizes["h"], sizes["g"] * sizes["i"], sizes["j"]
    return np.logical_not(np.any(seen.reshape(shape), axis=2))


def _has_unseen(case: Case) -> bool:
    return _is_attention(case) and bool(_unseen(case).any())


def _edited(case: Case) -> list[Case]:
    inputs, unseen = dict(case.inputs), _unseen(case)[..., None]
    for name in ("k", "v"):
        number = inputs[name].dtype.type(EDITED)
        inputs[name] = np.where(unseen, number, inputs[name])
    if "bias" in inputs and inputs["bias"].shape == visible(case).shape:
        number = inputs["bias"].dtype.type(EDITED)
        inputs["bias"] = np.where(visible(case), inputs["bias"], number)
    return [_twin(*EDIT, case, inputs=inputs, predicate=case.predicate)]


# One element of a batch.


def _last_alone(case: Case) -> list[Case]:
    last = np.array([case.sizes["b"] - 1])
    return [_twin(*ALONE, case, inputs=_indexed(case, "b", last))]


def _alone(whole: Side, parts: Sequence[Side]) -> Iterator[Pair]:
    batch = whole.case.sizes["b"]

    def place(name: str, array: np.ndarray) -> np.ndarray | None:
        return array[-1:] if array.shape[0] == batch else None

    return _compared(whole, parts[0], place)


# Values that are all 1.


def _of_ones(case: Case) -> list[Case]:
    inputs = {**case.inputs, "v": np.ones_like(case.inputs["v"])}
    return [_twin(*ONES, case, inputs=inputs, predicate=case.predicate)]


def _ones(whole: Side, parts: Sequence[Side]) -> Iterator[Pair]:
    (part,) = parts
    if "output" in part.arrays:
        one = np.where(part.want.lse == -np.inf, 0.0, 1.0)[..., None]
        got = part.arrays["output"].astype(np.float64)
        yield Pair("output", got, np.broadcast_to(one, got.shape), part.room("output"))


REPEAT = ("repeat", "Something is read that the call before it, or no one, wrote.")
COMPILED = ("compiled", "A branch on values is frozen, or a constant folded, by jit.")
PERMUTE = ("permute-keys", "A key is told by its place, where nothing says its place.")
SPLIT = ("split-keys", "Parts that are computed apart cannot be put together.")
EDIT = ("edit-blocked", "What a blocked key holds leaves a trace below the budget.")
ALONE = ("alone", "A batch element reads another's, or depends on their number.")
ONES = ("ones", "The weights are not normalised by their own sum.")
"""The names of the laws, and why there are their cases."""

LAWS = (
    Law(
        REPEAT[0],
        "A case that is run twice gives the same.",
        REPEAT[1],
        lambda case: True,
        _again,
        _same,
        ("plain", "long", "softcap"),
    ),
    Law(
        PERMUTE[0],
        "Keys, values, mask and bias in another order change nothing.",
        PERMUTE[1],
        lambda case: _is_attention(case) and case.sizes["j"] > 1,
        _permuted,
        _reordered,
        ("plain", "bias-full", "mask-random", "long"),
    ),
    Law(
        SPLIT[0],
        "Two halves of the keys, merged by their log-sum-exps, are the whole.",
        SPLIT[1],
        _can_be_split,
        _halves,
        _merged,
        ("coincidence", "causal-square"),
    ),
    Law(
        EDIT[0],
        "Keys, values and biases that are blocked may be any.",
        EDIT[1],
        _has_unseen,
        _edited,
        _same,
        ("padding", "blocked-value-nan", "padding-long"),
    ),
    Law(
        ALONE[0],
        "A batch element alone gives what it gives in the batch.",
        ALONE[1],
        lambda case: _is_attention(case) and case.sizes["b"] > 1,
        _last_alone,
        _alone,
        ("decode",),
    ),
    Law(
        ONES[0],
        "Values of 1 give 1, and an empty row 0.",
        ONES[1],
        lambda case: _is_attention(case) and _is_finite(case) and not case.dropout_rate,
        _of_ones,
        _ones,
        ("plain", "softcap-causal", "empty-rows"),
    ),
    Law(
        COMPILED[0],
        "A call through the framework's compiler gives what it gives without.",
        COMPILED[1],
        lambda case: True,
        _compiled,
        _same,
        ("softcap-causal",),
        everywhere=False,
    ),
)

"""From a failing case to a small one that fails in the same way.

Small cases are cut from the failing one, run all at once, and judged; the smallest that
fails in the same result is kept, and then made plainer.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, product
from typing import Any

import numpy as np

from attncheck.case import FORWARD, Case, check_inputs
from attncheck.explain import Evidence
from attncheck.verdict import Finding, Run, Verdict

Places = Mapping[str, Sequence[int]]
"""Axis letter → the places that are kept."""

Judged = Callable[[Sequence[Case]], Mapping[str, Evidence]]
"""Runs the subject on cases and judges them: id → what is known of a case."""

KEYS = (1, 2, 3, 4, 8, 17)
"""The first so many keys: a few, and one more than a block of 16."""

WIDTHS = (1, 2)


@dataclass(frozen=True, eq=False)
class Minimal:
    """A small case that fails, and how."""

    case: Case
    origin: str
    """The case that it was cut from."""
    finding: Finding
    got: np.ndarray
    want: np.ndarray
    target: str
    """What fails, as it was named to the judge."""

    @property
    def scores(self) -> int:
        """How many scores it has, of all heads."""
        return _scores(self.case)


def shrink(run: Run, judged: Judged, target: str) -> Minimal | None:
    """The smallest case found that fails as the simplest failing case does.

    None where no failing case is one that can be cut.

    Args:
        target: the subject, as it was named to the judge.
    """
    start = _simplest(run)
    if start is None or start.first_failure is None:
        return None
    name, origin = start.first_failure.name, start.case
    best = _narrowed(origin, name, "minimal/0")
    worst = start.first_failure.worst.index if start.first_failure.worst else {}
    found: Minimal | None = None
    for step in (_slices, _plainer):
        candidates = sorted(filter(_is_call, step(best, worst)), key=_cost)
        known = judged(candidates)
        for case in candidates:
            one = known.get(case.id)
            first = one.verdict.first_failure if one else None
            if one and first and first.name == name and first.worst:
                want = getattr(one.want, name)
                best = case
                found = Minimal(case, origin.id, first, one.got[name], want, target)
                break
    return found


def _is_call(case: Case) -> bool:
    """Whether what is left is a call still: some options speak of sizes."""
    try:
        check_inputs(case)
    except ValueError:
        return False
    return True


def _simplest(run: Run) -> Verdict | None:
    """The smallest case that fails by a number, not by its shape, and by no law."""
    failing = [
        verdict
        for verdict in run.verdicts
        if verdict.status == "fail"
        and verdict.first_failure is not None
        and verdict.first_failure.worst is not None
        and not verdict.case.law
        and verdict.waived is None
    ]
    return min(failing, key=lambda verdict: _cost(verdict.case), default=None)


def _narrowed(case: Case, name: str, id: str) -> Case:
    """The case, but for what its result `name` does not need."""
    inputs = dict(case.inputs)
    if name in FORWARD:
        inputs.pop("d_out", None)
        inputs.pop("d_lse", None)
    kept = {n: order for n, order in case.strides.items() if n in inputs}
    return replace(case, id=id, inputs=inputs, wants=(name,), strides=kept)


def _slices(case: Case, worst: Mapping[str, int]) -> Iterator[Case]:
    """Fewer elements, heads, queries, keys and channels, in every combination.

    Of what is only one, it is the one that was furthest out.
    """
    sizes = case.sizes
    is_self = case.op == "multi_head_attention" and "context" not in case.inputs
    whole = {axis: range(sizes[axis]) for axis in "cm" if axis in sizes}
    whole["e"] = range(sizes["e"] if "x" in case.inputs else 1)
    h, g = divmod(worst.get("n", worst.get("h", 0) * sizes["g"]), sizes["g"])
    choices = product(
        _first(sizes["h"], (2,), h)[:2],
        _first(sizes["g"], (2,), g)[:2],
        _first(sizes["i"], (1, 2, 4), 0 if is_self else worst.get("i", 0)),
        [range(0)] if is_self else _first(sizes["j"], KEYS),
        [range(sizes["d"])] if case.settings else _first(sizes["d"], WIDTHS),
    )
    for number, (h_, g_, i, j, d) in enumerate(choices):
        heads = [head * sizes["g"] + place for head in h_ for place in g_]
        kept: Places = {"b": [worst.get("b", 0)], "h": h_, "n": heads, "i": i, "d": d}
        id = f"minimal/{number + 1}"
        yield _cut(case, {**whole, **kept, "j": i if is_self else j}, id)


def _first(
    size: int, counts: Sequence[int], worst: int | None = None
) -> list[Sequence[int]]:
    """The worst one, if it is given; the first so many; all."""
    single: list[Sequence[int]] = [] if worst is None else [[worst]]
    return [*single, *(range(n) for n in counts if n < size), range(size)]


def _cut(case: Case, places: Places, id: str) -> Case:
    """The case with only these places of its axes."""
    inputs = {}
    for name, array in case.inputs.items():
        for axis, letter in enumerate(case.axes(name)):
            if array.shape[axis] > 1 and letter in places:
                array = array.take(list(places[letter]), axis)
        inputs[name] = array
    # A slice of a larger array in memory is no longer one of its own.
    strides = {
        name: " ".join(word for word in order.split() if not word.isdigit())
        for name, order in case.strides.items()
    }
    settings = {
        name: [x[at] for at in places["b"]] if isinstance(x, list) else x
        for name, x in case.settings.items()
    }
    return replace(
        case,
        id=id,
        inputs=inputs,
        strides=strides,
        predicate=_shifted(case.predicate, places["i"][0]),
        settings=settings,
    )


def _shifted(predicate: Mapping[str, Any], first: int) -> dict[str, Any]:
    """What the mask is in words if the queries begin later; nothing if none says it."""
    if first == 0:
        return dict(predicate)
    if set(predicate) != {"causal_offset"}:
        return {}
    return {"causal_offset": predicate["causal_offset"] + first}


def _plainer(case: Case, worst: Mapping[str, int]) -> Iterator[Case]:
    """Without what can be left out, in every combination, and in round numbers."""
    droppable = [n for n in ("mask", "bias", "d_lse") if n in case.inputs]
    droppable += ["dropout"] if "dropout_keep" in case.inputs else []
    droppable += [n for n in ("softcap", "scale") if getattr(case, n) is not None]
    droppable += ["strides"] if case.strides else []
    subsets = chain.from_iterable(
        combinations(droppable, count) for count in range(len(droppable), -1, -1)
    )
    for number, (dropped, digits) in enumerate(product(subsets, (0, 1, None))):
        plain = _without(case, dropped)
        yield replace(
            plain,
            id=f"minimal/{number + 1}",
            inputs={n: _rounded(array, digits) for n, array in plain.inputs.items()},
        )


def _without(case: Case, dropped: Sequence[str]) -> Case:
    gone = {*dropped, *(["dropout_keep"] if "dropout" in dropped else [])}
    changes: dict = {"inputs": {n: a for n, a in case.inputs.items() if n not in gone}}
    if "mask" in gone:
        changes["predicate"] = {}
    if "dropout" in gone:
        changes["dropout_rate"] = 0.0
    changes |= {name: None for name in ("softcap", "scale") if name in gone}
    strides = {} if "strides" in gone else case.strides
    changes["strides"] = {n: o for n, o in strides.items() if n in changes["inputs"]}
    return replace(case, **changes)


def _rounded(array: np.ndarray, digits: int | None) -> np.ndarray:
    if digits is None or array.dtype == bool:
        return array
    with np.errstate(all="ignore"):
        plain = np.round(array.astype(np.float64), digits) + 0.0  # no −0
        return plain.astype(array.dtype)


def _scores(case: Case) -> int:
    sizes = case.sizes
    return sizes["b"] * sizes["n"] * sizes["i"] * sizes["j"]


def _cost(case: Case) -> tuple[int, int, int]:
    """Scores, then arrays, then digits: what a reader has to look through."""
    numbers = sum(array.size for array in case.inputs.values())
    digits = sum(len(str(x)) for a in case.inputs.values() for x in a.ravel()[:64])
    return _scores(case), numbers, digits

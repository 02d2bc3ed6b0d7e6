"""The judge inside your own tests: your tensors in, an AssertionError or nothing out.

What must come is computed in blocks of queries, so that long inputs fit in memory;
`rows` samples some queries where even that takes too long.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from attncheck.budget import (
    PROFILES,
    Profile,
    as_shares,
    budget,
    half_ulp,
    is_void,
    output_dtype,
    parts,
)
from attncheck.case import DTYPES, FORWARD, GRADIENTS, Case
from attncheck.definition import Expected, expected
from attncheck.explain import Evidence
from attncheck.frameworks import as_numpy
from attncheck.mistakes import named
from attncheck.report.summary import finding_record
from attncheck.report.words import element, shares
from attncheck.suggest import no_such
from attncheck.verdict import Finding, Verdict, compare
from attnref.spec import Mask, patterns
from attnref.spec.checks import check_attention, check_gradients, check_mask

BLOCK = 2**20
"""Scores in a block of queries; some tens of float64 arrays of this size are held."""

SEARCHED = 2**15
"""Scores of which every known mistake is tried: that takes a second or two.  Of a
larger call it is a part, and what explains that is tried on the whole."""

Arrays = dict[str, np.ndarray]


def assert_attention(
    got: Any,
    q: Any,
    k: Any,
    v: Any,
    *,
    mask: Any = None,
    bias: Any = None,
    scale: float | None = None,
    softcap: float | None = None,
    dropout_rate: float = 0.0,
    dropout_keep: Any = None,
    lse: Any = None,
    grads: Sequence[Any] = (),
    d_out: Any = None,
    d_lse: Any = None,
    profile: str | Profile = "tensor-core",
    rows: Sequence[int] | None = None,
) -> None:
    """Raises AssertionError unless `got` is attention of the arguments that follow it.

    Args:
        got: the output to judge, `b n i e`, in the dtype of q.
        q: and the rest of the call, as in `attention` of the rooms: arrays of NumPy,
            PyTorch or JAX, on any device; a mask may be a predicate.
        lse: the log-sum-exp to judge too, `b n i`, in the accumulation type.
        grads: the gradients to judge too, (dq, dk, dv) or (dq, dk, dv, dbias); None in
            place of one that is not judged.
        d_out: the gradient of the output that they belong to.
        d_lse: that of the log-sum-exp, if it has one.
        profile: the precision to judge by: a key of `PROFILES`, or a `Profile`.
        rows: judge these queries only.  Every query adds to dk, dv and a broadcast
            dbias, so those cannot be judged then.

    The message names each result, its worst element, the error in ulps and the share of
    the budget that it uses; of one that differs, also what the budget there is made of.
    It ends with the mistake that gives just these results, if a known one does.

    Raises:
        TypeError, ValueError: arguments that are no call of attention, or of which
            nothing can be said: scores too large for the accumulator, say.
    """
    optional = {"bias": bias, "dropout_keep": dropout_keep}
    optional |= {"d_out": d_out, "d_lse": d_lse}
    options = {"scale": scale, "softcap": softcap, "dropout_rate": dropout_rate}
    given = {"q": q, "k": k, "v": v}
    call = _Call.read(given, mask, optional, options, profile, rows)
    if got is None:
        raise TypeError("there is no output to judge: `got` is None")
    results = {"output": got, "lse": lse}
    results |= dict(zip(GRADIENTS, grads, strict=False))
    arrays = {name: as_numpy(x) for name, x in results.items() if x is not None}
    call.check(arrays)
    wants, bounds = call.allowed(judged=tuple(arrays))
    findings = call.findings(arrays, wants, bounds, call.rows)
    if any(finding.status == "fail" for finding in findings):
        lines = [as_line(call.explained(finding)) for finding in findings]
        lines += call.mistakes(arrays, findings)
        raise AssertionError("\n  ".join(["attention differs:", *lines]))


def tolerance(
    q: Any,
    k: Any,
    v: Any,
    *,
    mask: Any = None,
    bias: Any = None,
    scale: float | None = None,
    softcap: float | None = None,
    dropout_rate: float = 0.0,
    dropout_keep: Any = None,
    d_out: Any = None,
    d_lse: Any = None,
    profile: str | Profile = "tensor-core",
    rows: Sequence[int] | None = None,
) -> Arrays:
    """How far each element of each result may lie from the definition's.

    The arguments are those of `assert_attention`.

    Returns:
        float64 arrays by name: `output`, `lse`, and with d_out the gradients.  The
        rounding to the result's own type is counted in.
    """
    optional = {"bias": bias, "dropout_keep": dropout_keep}
    optional |= {"d_out": d_out, "d_lse": d_lse}
    options = {"scale": scale, "softcap": softcap, "dropout_rate": dropout_rate}
    given = {"q": q, "k": k, "v": v}
    call = _Call.read(given, mask, optional, options, profile, rows)
    wants, bounds = call.allowed()
    case = call.case(call.rows[:1])
    return {
        name: bound + half_ulp(np.abs(wants[name]) + bound, output_dtype(case, name))
        for name, bound in bounds.items()
    }


@dataclass(frozen=True)
class _Call:
    """The caller's arrays in NumPy; a mask that is a predicate stays one."""

    arrays: Arrays
    mask: Any
    options: Mapping[str, Any]
    sizes: Mapping[str, int]
    profile: Profile
    rows: np.ndarray
    """The queries that are judged."""

    @classmethod
    def read(
        cls,
        qkv: Mapping[str, Any],
        mask: Any,
        optional: Mapping[str, Any],
        options: Mapping[str, Any],
        profile: str | Profile,
        rows: Sequence[int] | None,
    ) -> "_Call":
        """Raises TypeError or ValueError for what is no call of attention."""
        given = dict(qkv) | {name: x for name, x in optional.items() if x is not None}
        arrays = {name: as_numpy(array) for name, array in given.items()}
        mask = mask if mask is None or callable(mask) else as_numpy(mask)
        keywords: dict[str, Any] = {"mask": mask, **options}
        keywords |= {name: arrays.get(name) for name in ("bias", "dropout_keep")}
        inputs = (arrays[name] for name in "qkv")
        sizes = check_attention(np.ndarray, *inputs, **keywords)
        if optional["d_out"] is not None:
            gradients = arrays["d_out"], arrays.get("d_lse")
            check_gradients(np.ndarray, *gradients, sizes, arrays["q"].dtype.name)
        every = np.arange(sizes["i"])
        chosen = every if rows is None else every[list(rows)]
        return cls(arrays, mask, options, sizes, as_profile(profile), chosen)

    def check(self, results: Arrays) -> None:
        """Raises ValueError for results that cannot be judged in this call."""
        gradients = [name for name in results if name in GRADIENTS]
        if gradients and "d_out" not in self.arrays:
            raise ValueError("`grads` needs `d_out`, the gradient that they belong to")
        summed = [name for name in gradients if self.is_summed(name)]
        if summed and len(self.rows) < self.sizes["i"]:
            raise ValueError(
                f"every query adds to {', '.join(summed)}: with `rows` they cannot be "
                "judged, so put None in their place"
            )

    def is_summed(self, name: str) -> bool:
        """Whether every query adds to the result, instead of having its own part."""
        bias = self.arrays.get("bias")
        return name in ("dk", "dv") or (
            name == "dbias" and bias is not None and bias.shape[2] == 1
        )

    def findings(
        self, results: Arrays, wants: Arrays, bounds: Arrays, rows: np.ndarray
    ) -> list[Finding]:
        """What is found about each result of some queries."""
        case = self.case(rows[:1])
        return [
            compare(case, n, self._chosen(n, x, rows), wants[n], bounds[n])
            for n, x in results.items()
        ]

    def _chosen(self, name: str, result: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """The part of a result that is judged; one of a wrong shape, whole."""
        has_rows = result.ndim > 2 and result.shape[2] == self.sizes["i"]
        return result[:, :, rows] if has_rows and not self.is_summed(name) else result

    def mistakes(self, results: Arrays, findings: Sequence[Finding]) -> list[str]:
        """The known mistakes that explain what was found, in the lines of a message."""
        worst = {f.name: f.worst for f in findings if f.status == "fail"}
        if None in worst.values():  # one has another shape or type
            return []
        if forward := [n for n in FORWARD if worst.get(n)]:  # gradients tell no more
            results = {n: x for n, x in results.items() if n in FORWARD}
            worst = {n: worst[n] for n in forward}
        row, count = self._scores(self.rows[:1]), len(self.rows)
        if row * count <= SEARCHED:
            return named([self._evidence(results, self.rows)])
        places = [x.index["i"] for n, x in worst.items() if x and not self.is_summed(n)]
        if not places or row > SEARCHED or len(self._blocks) > 1:
            return ["no mistake is looked for in so large a call: judge a smaller one"]
        size = SEARCHED // row
        first = min(places[0], count - size)
        part = self._evidence(results, self.rows[first : first + size])
        return named([part, self._evidence(results, self.rows)])

    def _evidence(self, results: Arrays, rows: np.ndarray) -> Evidence:
        """What came of some queries, with what must come."""
        case, want, bounds = self._derived(rows)
        is_part = len(rows) < len(self.rows)
        inputs = dict(case.inputs)
        if not set(results) & set(GRADIENTS):  # they take most of the time
            inputs = {n: x for n, x in inputs.items() if n not in ("d_out", "d_lse")}
        case = replace(case, id="part" if is_part else "whole", inputs=inputs)
        some = {n: x for n, x in results.items() if not (is_part and self.is_summed(n))}
        wants = {name: getattr(want, name) for name in some}
        found = tuple(self.findings(some, wants, bounds, rows))
        failing = any(finding.status == "fail" for finding in found)
        verdict = Verdict(case, "fail" if failing else "pass", findings=found)
        got = {name: self._chosen(name, x, rows) for name, x in some.items()}
        return Evidence(verdict, got, want, bounds)

    def case(self, rows: np.ndarray) -> Case:
        """The call of some queries alone."""
        q = self.arrays["q"]
        inputs = {
            name: x if name in "kv" or x.shape[2] == 1 < q.shape[2] else x[:, :, rows]
            for name, x in self.arrays.items()
        }
        if self.mask is not None:
            inputs["mask"] = as_mask(self.mask, self.sizes, rows)
        dtype = next(name for name, dtype in DTYPES.items() if dtype == q.dtype)
        return Case("call", (), "", dtype, inputs, **self.options)

    def allowed(self, judged: Sequence[str] = ()) -> tuple[Arrays, Arrays]:
        """What must come, and how far off it may be, by the name of the result.

        Raises:
            ValueError: nothing can be said of the results that are `judged`.
        """
        blocks = [self._block(rows, judged) for rows in self._blocks]
        wants, bounds = ([block[side] for block in blocks] for side in (0, 1))
        return self._joined(wants), self._joined(bounds)

    def explained(self, finding: Finding) -> Finding:
        """The finding with the query as the caller counts it, a failing one with the
        split of the budget at its worst element.
        """
        if finding.worst is None:
            return finding
        index, split = dict(finding.worst.index), finding.split
        if finding.status == "fail":
            dtype = output_dtype(self.case(self.rows[:1]), finding.name)
            found = self._parts(finding.name, index)
            split = as_shares(found, finding.worst.expected, dtype)
        if not self.is_summed(finding.name):
            index["i"] = int(self.rows[index["i"]])
        return replace(finding, worst=replace(finding.worst, index=index), split=split)

    def _parts(self, name: str, index: Mapping[str, int]) -> dict[str, float]:
        """The parts of the bound of one element, of all blocks that add to it."""
        start, total = 0, Counter[str]()
        for rows in self._blocks:
            place = dict(index)
            if not self.is_summed(name):
                place["i"] -= start
            if 0 <= place.get("i", 0) < len(rows):
                case, want, _ = self._derived(rows)
                at, queries = tuple(place.values()), self.sizes["i"]
                total.update(parts(case, want, self.profile, name, at, queries=queries))
            start += len(rows)
        return dict(total)

    def _scores(self, rows: np.ndarray) -> int:
        """How many scores these queries have."""
        return self.sizes["b"] * self.sizes["n"] * self.sizes["j"] * len(rows)

    @cached_property
    def _blocks(self) -> list[np.ndarray]:
        """The queries of each block."""
        return np.array_split(self.rows, max(1, -(-self._scores(self.rows) // BLOCK)))

    def _derived(self, rows: np.ndarray) -> tuple[Case, Expected, Arrays]:
        """The call of some queries, what must come, and how far off it may be; of all
        in one block it is derived once.
        """
        return self._whole if len(rows) == len(self.rows) else self._derive(rows)

    @cached_property
    def _whole(self) -> tuple[Case, Expected, Arrays]:
        return self._derive(self.rows)

    def _derive(self, rows: np.ndarray) -> tuple[Case, Expected, Arrays]:
        case = self.case(rows)
        want = expected(case)
        return case, want, budget(case, want, self.profile, queries=self.sizes["i"])

    def _block(self, rows: np.ndarray, judged: Sequence[str]) -> tuple[Arrays, Arrays]:
        case, want, bound = self._derived(rows)
        said = {name: bound[name] for name in {"output", *judged} if name in bound}
        if judged and (reason := is_void(case, want, said)):
            raise ValueError(f"this call cannot be judged: {reason}")
        names = [name for name in ("output", "lse", *GRADIENTS) if name in bound]
        return {n: getattr(want, n) for n in names}, {n: bound[n] for n in names}

    def _joined(self, blocks: Sequence[Arrays]) -> Arrays:
        return {
            name: np.sum([block[name] for block in blocks], axis=0)
            if self.is_summed(name)
            else np.concatenate([block[name] for block in blocks], axis=2)
            for name in blocks[0]
        }


def as_mask(mask: Any, sizes: Mapping[str, int], rows: np.ndarray) -> np.ndarray:
    """The mask of some queries as an array; a predicate is asked."""
    if not callable(mask):
        check_mask("mask", mask, dict(sizes), np.ndarray)
        return mask if mask.shape[2] == 1 else mask[:, :, rows]
    if isinstance(mask, Mask):
        mask.check(dict(sizes))
        mask = mask.bind(_carried)
    axes = [np.arange(sizes[axis]) for axis in patterns.LOGITS.split()]
    axes[2] = rows
    array = mask(*np.ix_(*axes))
    check_mask("mask", array, dict(sizes) | {"i": len(rows)}, np.ndarray)
    return array


def _carried(values: Any) -> np.ndarray:
    """What a predicate carries, as NumPy."""
    return np.asarray(values) if isinstance(values, tuple) else as_numpy(values)


def as_profile(profile: str | Profile) -> Profile:
    """The profile of that name."""
    if isinstance(profile, Profile):
        return profile
    if profile not in PROFILES:
        raise ValueError(no_such("profile", profile, PROFILES))
    return PROFILES[profile]


def as_line(finding: Finding) -> str:
    """What is found about one result, as a line of a message."""
    if finding.message:
        return f"`{finding.name}` {finding.message}"
    if finding.worst is None:
        return f"{finding.name}: {finding.status}"
    line = f"{finding.status}: {element(finding_record(finding))}"
    where = f"\n    the budget there: {shares(finding.split)}" if finding.split else ""
    return line + where

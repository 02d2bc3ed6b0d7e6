"""The judge inside your own tests: your tensors in, an AssertionError or nothing out.

What must come is computed in blocks of queries, so that long inputs fit in memory;
`rows` samples some queries where even that takes too long.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
from attncheck.case import DTYPES, GRADIENTS, Case
from attncheck.definition import expected
from attncheck.frameworks import as_numpy
from attncheck.report.summary import finding_record
from attncheck.report.words import element, shares
from attncheck.suggest import no_such
from attncheck.verdict import Finding, compare
from attnref.spec import Mask, patterns
from attnref.spec.checks import check_attention, check_gradients, check_mask

BLOCK = 2**20
"""Scores in a block of queries; some tens of float64 arrays of this size are held."""

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
    case = call.case(call.rows[:1])
    findings = [
        compare(case, name, call.chosen(name, array), wants[name], bounds[name])
        for name, array in arrays.items()
    ]
    if any(finding.status == "fail" for finding in findings):
        lines = [as_line(call.explained(finding)) for finding in findings]
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

    def chosen(self, name: str, result: np.ndarray) -> np.ndarray:
        """The part of a result that is judged; one of a wrong shape, whole."""
        has_rows = result.ndim > 2 and result.shape[2] == self.sizes["i"]
        return (
            result[:, :, self.rows] if has_rows and not self.is_summed(name) else result
        )

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
        blocks = [self._block(self.case(rows), judged) for rows in self._blocks()]
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
        for rows in self._blocks():
            place = dict(index)
            if not self.is_summed(name):
                place["i"] -= start
            if 0 <= place.get("i", 0) < len(rows):
                case, at = self.case(rows), tuple(place.values())
                queries = self.sizes["i"]
                total.update(
                    parts(case, expected(case), self.profile, name, at, queries=queries)
                )
            start += len(rows)
        return dict(total)

    def _blocks(self) -> Iterator[np.ndarray]:
        """The queries of each block."""
        scores = self.sizes["b"] * self.sizes["n"] * self.sizes["j"] * len(self.rows)
        yield from np.array_split(self.rows, max(1, -(-scores // BLOCK)))

    def _block(self, case: Case, judged: Sequence[str]) -> tuple[Arrays, Arrays]:
        want = expected(case)
        bound = budget(case, want, self.profile, queries=self.sizes["i"])
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

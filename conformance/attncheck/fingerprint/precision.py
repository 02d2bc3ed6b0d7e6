"""The strictest precision profile that holds, for each storage type.

A few cases in which the profiles differ, judged within the derived budget: the first
profile under which all of them pass.
"""

from collections.abc import Iterator

import numpy as np

from attncheck.budget import PROFILES, derive, is_void
from attncheck.case import DTYPES, Case
from attncheck.definition import expected
from attncheck.fingerprint.function import Array, Function, Refused
from attncheck.fingerprint.reading import NotMeasured, Seen
from attncheck.verdict import Finding, compare


def profile(f: Function, dtype: str) -> Seen:
    """The first profile, strictest first, under which every case passes.

    Raises:
        NotMeasured: the function refuses the type.
    """
    try:
        outputs = [(case, _attend(f, case)) for case in cases(f, dtype)]
    except Refused as error:
        raise NotMeasured(f"refused: {error}") from None
    judged = [(case, expected(case), got) for case, got in outputs]
    worst = Finding("output", "not judged")
    for name, rules in PROFILES.items():
        if rules.operands and DTYPES[dtype].itemsize == 2:
            continue  # what 16 bits hold is exact in TF32
        findings = []
        for case, want, got in judged:
            bounds = derive(case, want, rules).bounds
            if not is_void(case, want, bounds):
                bound = bounds["output"]
                findings.append(compare(case, "output", got, want.output, bound))
        worst = max(findings, key=lambda finding: finding.used, default=worst)
        if findings and all(finding.status == "pass" for finding in findings):
            shown = f"{len(findings)} cases use at most {worst.used:.2g} of the budget"
            return Seen(value=name, shown=shown)
    shown = worst.message or f"{worst.used:.2g} of the loosest budget"
    return Seen(value=None, shown=f"no profile holds: {shown}")


def cases(f: Function, dtype: str) -> Iterator[Case]:
    """Cases that the function's conventions leave as the spec has them."""
    yield _case(dtype, *_twins(), why="the last digits of the weights decide")
    rng = np.random.default_rng(4)
    grouped = f.known.get("heads") is not None
    b, n, h = (2 if "b" in f.need("layout") else 1), 4, 2
    n, h = (n, h) if grouped else (2, 2) if "n" in f.need("layout") else (1, 1)
    e = 7 if f.known.get("value_width") == "any" else 5
    sizes = {"q": (b, n, 6, 5), "k": (b, h, 11, 5), "v": (b, h, 11, e)}
    arrays = [rng.standard_normal(shape) for shape in sizes.values()]
    yield _case(dtype, *arrays, why="heads and widths")
    if f.known.get("mask_true") is not None:
        seen = rng.random((1, 1, 6, 11)) < 0.6
        seen[..., 0] = True
        yield _case(dtype, *arrays, why="a mask", mask=seen)
    if f.known.get("bias") == "after_scale":
        bias = rng.standard_normal((1, 1, 6, 11))
        yield _case(dtype, *arrays, why="a bias", bias=bias)


def _twins() -> tuple[Array, Array, Array]:
    """Every key has a twin that is nearly like it, with the negative of its value.

    So the output is small beside its terms, and what a profile rounds is seen in it.
    Logits are in the tens, so that their rounding is seen too.
    """
    rng = np.random.default_rng(3)
    q = 3 * rng.standard_normal((1, 1, 8, 16))
    k = 2 * rng.standard_normal((1, 1, 12, 16))
    v = 1 + rng.random((1, 1, 12, 16))
    near = k + 2.0**-4 * rng.choice([-1, 1], k.shape)
    return q, np.concatenate([k, near], 2), np.concatenate([v, -v], 2)


def _case(dtype: str, q: Array, k: Array, v: Array, *, why: str, **more: Array) -> Case:
    stored = {
        name: array if array.dtype == bool else array.astype(DTYPES[dtype])
        for name, array in {"q": q, "k": k, "v": v, **more}.items()
    }
    return Case("fingerprint", (), why, dtype, stored, wants=("output",))


def _attend(f: Function, case: Case) -> Array:
    """The function's output, in its own type, for a case in the words of the spec."""
    parts: dict = {}
    if "mask" in case.inputs:
        parts |= f.seeing(case.inputs["mask"][0, 0])
    if "bias" in case.inputs:
        parts |= f.biased(case.inputs["bias"][0, 0].astype(np.float64))
    q, k, v = (case.inputs[name].astype(np.float64) for name in "qkv")
    order = np.arange(q.shape[1])
    if f.known.get("heads") == "gh":
        order = order.reshape(k.shape[1], -1).T.ravel()
    out = f.attend(q[:, order], k, v, dtype=case.dtype, **parts)
    return out[:, np.argsort(order)]

"""Certification: proof that the expected values are good enough to judge by.

Arb's balls enclose the true results of a case, rigorously, by formulas that share no
code with the definition (`attncheck.formulas`).  An expected value is good enough if it
lies for certain within a thousandth of the bound that the judge allows around it before
rounding, under the strictest profile; where that bound is 0, only the truth is.  Those
of float64 cases are rounded to float64 themselves, so they may be half a unit in the
last place off beside.

    python -m attncheck.certify [--set smoke|full] [--case 'causal*'] [--out FILE]

writes the evidence.  It needs python-flint; nothing else does.
"""

import argparse
import hashlib
import json
import platform
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from attncheck import formulas
from attncheck.budget import PROFILES, budget, half_ulp
from attncheck.case import Case
from attncheck.choose import matches
from attncheck.definition import expected
from attncheck.suite import SETS, cases, operation_cases

BITS = 128
"""Of the midpoints of balls."""

LIMIT = 1e-3
"""The share of its bound by which an expected value may be off."""

SCHEMA = "attncheck-certification/1"


class Balls:
    """Arb's arithmetic for `formulas`: NumPy arrays of balls."""

    exp, log, tanh = np.exp, np.log, np.tanh
    sqrt, cos, sin = np.sqrt, np.cos, np.sin
    """Which call the methods of the balls."""

    def number(self, value: Any) -> np.ndarray:
        """Balls of radius 0 around float64 numbers; balls as they are."""
        array = np.asarray(value)
        return array if array.dtype == object else np.asarray(_ball(array))

    def product(self, a: np.ndarray, b: np.ndarray, more: int) -> np.ndarray:
        """a @ b."""
        return a @ b

    def inverse(self, x: np.ndarray) -> np.ndarray:
        """By elimination; NaN where a matrix may have no inverse."""
        from flint import arb, arb_mat

        found = np.full_like(x, arb("nan"))
        for place in np.ndindex(x.shape[:-2]):
            with suppress(ZeroDivisionError):
                found[place] = np.array(arb_mat(x[place].tolist()).inv().tolist())
        return found

    def nearest(self, value: np.ndarray) -> np.ndarray:
        """Midpoints."""
        return value.astype(np.float64)

    def where(self, condition: np.ndarray, yes: Any, no: Any) -> np.ndarray:
        """As of arrays."""
        return np.where(condition, self.number(yes), self.number(no))


@partial(np.frompyfunc, nin=1, nout=1)
def _ball(value: float) -> Any:
    from flint import arb

    if np.isinf(value):
        return arb.pos_inf() if value > 0 else arb.neg_inf()
    return arb(value)


def enclose(case: Case) -> dict[str, np.ndarray]:
    """Result → balls that hold the true values of a case, in the shape of `Expected`.

    Where the axiom wants NaN or an infinity, they are that.
    """
    from flint import ctx

    with ctx.workprec(BITS), np.errstate(all="ignore"):
        return formulas.results(case, Balls())


class Proof(NamedTuple):
    """What is proven about one result of a case."""

    share: float
    """Upper bound of |expected − true| over the judge's bound.

    ∞ if the two differ where the bound is 0, or where one of them is not a number; 0
    where any number passes, because the bound is ∞.
    """
    elements: int

    @property
    def holds(self) -> bool:
        """Whether the expected values are good enough."""
        return self.share <= LIMIT


def certify(case: Case) -> dict[str, Proof]:
    """Result → what is proven about it, of those that the case wants."""
    want, true = expected(case), enclose(case)
    bounds = budget(case, want, PROFILES["strict"])
    return {
        name: _proof(case, getattr(want, name), true[name], bounds[name])
        for name in case.wants
    }


def _proof(
    case: Case, values: np.ndarray, balls: np.ndarray, bound: np.ndarray
) -> Proof:
    error = np.asarray(_distance(balls, values)).astype(np.float64)
    if case.dtype == "F64":
        error = np.maximum(error - half_ulp(values, values.dtype), 0.0)
    share = np.full(error.shape, np.inf)
    np.divide(error, bound, out=share, where=(bound > 0) & np.isfinite(error))
    share[(error == 0) | (np.isinf(bound) & np.isfinite(values))] = 0.0
    return Proof(float(share.max(initial=0.0)), error.size)


@partial(np.frompyfunc, nin=2, nout=1)
def _distance(ball: Any, value: float) -> float:
    """Upper bound of the distance to any number of the ball."""
    from flint import arb

    ball = arb(ball)  # an empty sum is the integer 0
    if ball.is_finite() and np.isfinite(value):
        bound = float((ball - arb(value)).abs_upper())
        return np.nextafter(bound, np.inf) if bound else 0.0
    same = ball.is_nan() if np.isnan(value) else ball == _ball(value)
    return 0.0 if same else np.inf


def chosen(set_name: str, pattern: str = "*") -> list[Case]:
    """The cases of a set whose ids match, of attention and of all other operations."""
    every = [*cases(set_name), *operation_cases(set_name)]
    return [case for case in every if matches(case.id, pattern)]


def digest(cases: Sequence[Case]) -> str:
    """Hash of what the cases are called and made of."""
    names = sorted((case.id, case.sha256) for case in cases)
    return hashlib.sha256(json.dumps(names).encode()).hexdigest()


def evidence(set_name: str, proofs: Mapping[Case, Mapping[str, Proof]]) -> dict:
    """The record of a certification, ready for JSON."""
    import flint

    everything = [proof for case in proofs.values() for proof in case.values()]
    return {
        "schema": SCHEMA,
        "date": datetime.now(UTC).date().isoformat(),
        "versions": {
            "python": platform.python_version(),
            "numpy": np.__version__,
            "python-flint": flint.__version__,
            "flint": flint.__FLINT_VERSION__,
        },
        "bits": BITS,
        "profile": "strict",
        "limit": LIMIT,
        "set": set_name,
        "sha256": digest(list(proofs)),
        "cases": len(proofs),
        "elements": sum(proof.elements for proof in everything),
        "worst": _worst(proofs),
        "shares": {
            case.id: max(_rounded(proof.share) for proof in found.values())
            for case, found in proofs.items()
        },
    }


def _worst(proofs: Mapping[Case, Mapping[str, Proof]]) -> dict[str, dict[str, Any]]:
    """Storage type → result → the largest share, and the case that has it."""
    table: dict[str, dict[str, Any]] = {}
    for case, found in proofs.items():
        row = table.setdefault(case.dtype, {})
        for name, proof in found.items():
            share = _rounded(proof.share)
            if name not in row or share > row[name]["share"]:
                row[name] = {"share": share, "case": case.id}
    return table


def _rounded(share: float) -> float:
    return float(f"{share:.3g}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Certifies a set of cases and writes the evidence, if everything is proven."""
    parser = argparse.ArgumentParser(prog="attncheck.certify", description=main.__doc__)
    parser.add_argument("--set", choices=SETS, default="smoke")
    parser.add_argument("--case", default="*", help="only ids that match, as of run")
    parser.add_argument("--out", type=Path, help="a file; standard output by default")
    options = parser.parse_args(arguments)
    proofs = {case: certify(case) for case in chosen(options.set, options.case)}
    if not proofs:
        parser.error(f"no case matches {options.case!r}")
    failures = [
        f"{case.id} {name}: not proven, {proof.share:.2g} of its bound"
        for case, found in proofs.items()
        for name, proof in found.items()
        if not proof.holds
    ]
    if failures:
        print(*failures, sep="\n", file=sys.stderr)
        return 1
    record = json.dumps(evidence(options.set, proofs), indent=1, ensure_ascii=False)
    if options.out is None:
        print(record)
    else:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(record + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

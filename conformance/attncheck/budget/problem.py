"""The exact values that a case's bounds are made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from attncheck.budget.profile import Units
from attncheck.budget.rounding import compound, gamma
from attncheck.case import Case
from attncheck.definition import Expected, kept, operands

TILE = 16
"""The fewest keys of a block that a legal implementation may use."""


@dataclass(frozen=True)
class Problem:
    """The exact values that the bounds are made of, keys repeated per query head.

    What is not finite is 0 here, and rows that hold a NaN are not live: where NaN is
    expected there is nothing to bound.
    """

    case: Case
    expected: Expected
    unit: Units
    random: bool = False
    """Whether its logits come in no order that favours ever greater maxima."""
    queries: int | None = None
    """Queries of the whole call, where the case is a block of them; None: all its
    own."""
    errors: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Bounds of the errors that operands come with, in the shapes of the inputs."""

    @cached_property
    def scored(self) -> np.ndarray:
        """`b n i j`: visible, with a finite logit."""
        return self.expected.visible & np.isfinite(self.expected.logits)

    @cached_property
    def live(self) -> np.ndarray:
        """`b n i j`: scored, in a row without NaN."""
        return self.scored & np.isfinite(self.expected.lse)[..., None]

    @cached_property
    def _operands(self) -> list[np.ndarray]:
        q, k, v = operands(self.case)
        return [finite(q), self.per_head(finite(k)), self.per_head(finite(v))]

    @property
    def q(self) -> np.ndarray:
        """`b n i d`."""
        return self._operands[0]

    @property
    def k(self) -> np.ndarray:
        """`b n j d`."""
        return self._operands[1]

    @property
    def v(self) -> np.ndarray:
        """`b n j e`."""
        return self._operands[2]

    @cached_property
    def operand_errors(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Bounds of the errors of q, k and v; 0 where they are inputs."""
        if self.case.op == "attention":
            given = self.errors
            return (
                given.get("q", np.zeros_like(self.q)),
                self.per_head(given["k"]) if "k" in given else np.zeros_like(self.k),
                self.per_head(given["v"]) if "v" in given else np.zeros_like(self.v),
            )
        arrays = self.case.inputs
        context = arrays.get("context", arrays["x"])
        return (
            _projection_error(self, arrays["x"], "w_q", "b_q"),
            self.per_head(_projection_error(self, context, "w_k", "b_k")),
            self.per_head(_projection_error(self, context, "w_v", "b_v")),
        )

    @property
    def d_out_error(self) -> np.ndarray:
        """Bound of the error of d_out, `b n i e`; 0 where it is an input."""
        return self.errors.get("d_out", np.zeros_like(self.expected.heads))

    @cached_property
    def projection_deviations(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Likewise, of independent roundings of their sums."""
        if self.case.op == "attention":
            return np.zeros_like(self.q), np.zeros_like(self.k), np.zeros_like(self.v)
        arrays = self.case.inputs
        context = arrays.get("context", arrays["x"])
        return (
            _projection_deviation(self, arrays["x"], "w_q", "b_q"),
            self.per_head(_projection_deviation(self, context, "w_k", "b_k")),
            self.per_head(_projection_deviation(self, context, "w_v", "b_v")),
        )

    @cached_property
    def scores(self) -> np.ndarray:
        """Raw, and 0 where the key is blocked."""
        return np.where(self.expected.visible, finite(self.expected.scores), 0.0)

    @cached_property
    def logits(self) -> np.ndarray:
        """`b n i j`, and 0 where the key is not scored."""
        return np.where(self.scored, self.expected.logits, 0.0)

    @cached_property
    def lse(self) -> np.ndarray:
        """`b n i 1`."""
        return finite(self.expected.lse)[..., None]

    @cached_property
    def exponent(self) -> np.ndarray:
        """`b n i j`: the logarithm of the weights, −∞ where they are 0."""
        return np.where(self.live, self.logits - self.lse, -np.inf)

    @cached_property
    def weights(self) -> np.ndarray:
        """`b n i j`, before dropout."""
        return np.exp(self.exponent)

    @cached_property
    def tanh(self) -> np.ndarray:
        """tanh of the scaled scores over the softcap; 0 without one."""
        if self.case.softcap is None:
            return np.zeros_like(self.scores)
        return np.tanh(self.case.scale_value * self.scores / self.case.softcap)

    @cached_property
    def kept(self) -> np.ndarray:
        """`b n i j`: the factor that dropout puts on every weight."""
        return kept(self.case)

    @property
    def dropout(self) -> float:
        """Relative error of a weight's dropout: 1 − rate, its inverse, the product."""
        rate = self.case.dropout_rate
        return (3 + rate / (1 - rate)) * self.unit.a if self.drops else 0.0

    @property
    def drops(self) -> bool:
        """Whether the case has dropout."""
        return "dropout_keep" in self.case.inputs

    @property
    def scale(self) -> float:
        """Magnitude of the scale."""
        return abs(self.case.scale_value)

    @property
    def rescales(self) -> int:
        """R = ⌈j/16⌉: how often a running sum may be rescaled."""
        return -(-self.case.sizes["j"] // TILE)

    @property
    def blocks(self) -> float:
        """How many times the queries of the case the whole call has."""
        own = max(self.case.sizes["i"], 1)
        return (own if self.queries is None else self.queries) / own

    @property
    def group_rows(self) -> int:
        """M: the terms of a gradient of a key or a value, of all blocks together."""
        return round(self.case.sizes["g"] * self.case.sizes["i"] * self.blocks)

    @property
    def row_terms(self) -> int:
        """Roundings of a sum over the keys: its terms, and two a rescale."""
        return self.case.sizes["j"] + 2 * self.rescales

    @cached_property
    def changes(self) -> np.ndarray | int:
        """How often the running maximum, and with it the rescale factor, may change.

        Of random data: as often as a row's logits have a new maximum, read from either
        end, `b n i 1`.
        """
        if not self.random:
            return self.rescales
        logits = np.where(self.live, self.logits, -np.inf)
        records = np.maximum(_records(logits), _records(logits[..., ::-1]))
        return np.minimum(records, self.rescales)

    @property
    def log_keys(self) -> float:
        """ln j."""
        return float(np.log(max(self.case.sizes["j"], 1)))

    @property
    def lost(self) -> float:
        """Absolute error of a weight that underflows, in the accumulator or storage."""
        return self.unit.tiny + self.unit.small("p") * (1 + self.drops)

    def floor(self, terms: int) -> float:
        """Underflow of a sum: products, additions, rescales and the last roundings."""
        return (3 * terms + 8) * self.unit.tiny

    def per_head(self, array: np.ndarray) -> np.ndarray:
        """`b h j x` → `b n j x`."""
        return np.repeat(array, self.case.sizes["g"], axis=1)


def _records(logits: np.ndarray) -> np.ndarray:
    """How often a row has a new maximum, `b n i 1`."""
    top = np.maximum.accumulate(logits, axis=-1)
    return 1 + (top[..., 1:] > top[..., :-1]).sum(axis=-1, keepdims=True)


def finite(array: np.ndarray) -> np.ndarray:
    """0 in place of NaN and infinities."""
    return np.where(np.isfinite(array), array, 0.0)


def _projection_error(
    problem: Problem, x: np.ndarray, weight: str, bias: str
) -> np.ndarray:
    """Bound of x W + b in the accumulator: γ_{c+1} on the magnitudes of all terms."""
    unit, width = problem.unit, x.shape[-1]
    relative = compound(
        gamma(width, unit.sum), unit.a, unit.operand, unit.operand, unit.s
    )
    sums = _magnitude(x).sum(axis=-1)[:, None, :, None]
    sums = sums + _magnitude(problem.case.inputs[weight]).sum(axis=0)[None, :, None, :]
    total = _projection_size(problem, x, weight, bias)
    underflow = unit.tiny * sums + problem.floor(width) + unit.small("s")
    return total * relative + underflow


def _projection_deviation(
    problem: Problem, x: np.ndarray, weight: str, bias: str
) -> np.ndarray:
    """Of c partial sums, each at most as large as the magnitudes of all terms."""
    size = _projection_size(problem, x, weight, bias)
    return x.shape[-1] ** 0.5 * problem.unit.sum * size


def _projection_size(
    problem: Problem, x: np.ndarray, weight: str, bias: str
) -> np.ndarray:
    """|x||W| + |b|."""
    inputs = problem.case.inputs
    w, b = _magnitude(inputs[weight]), inputs.get(bias, np.zeros((1, 1)))
    products = np.einsum("bjm,mhd->bhjd", _magnitude(x), w, optimize=True)
    return products + _magnitude(b)[:, None, :]


def _magnitude(array: np.ndarray) -> np.ndarray:
    return finite(np.abs(array.astype(np.float64)))

"""Latent attention: keys and values come from a few numbers a position.

DeepSeek-AI, *DeepSeek-V2* (2024), arXiv 2405.04434, section 2.1, without the norms and
without the compression of the queries.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from attncheck.operations.operation import (
    OFFSET,
    Array,
    Operation,
    Reduced,
    Results,
    Setting,
    beside,
    full,
    own,
    places,
    plain,
    summed,
)
from attncheck.operations.rotary import BASE, PAIRING, Turn

if TYPE_CHECKING:
    from attncheck.case import Case
    from attncheck.formulas import Arithmetic


@dataclass(frozen=True, eq=False)
class _Latent:
    """Plain attention over the queries, keys and values of every head, and back.

    Keys may be multiplied by what makes queries, and values be merged, before or after
    they are formed, in gradients too.  The sums of such a chain are bounded in any
    order if each has the terms of the others.  Those of gradients are longer, so
    gradients come from a call of their own.
    """

    case: "Case"
    numbers: "Arithmetic"

    @cached_property
    def w(self) -> dict[str, Array]:
        """Name → weights."""
        return {name: self.number(name) for name in LATENT.required}

    @cached_property
    def x(self) -> Array:
        """`b i c`, 0 where no head sees a key."""
        seen = full(self.case, "mask", absent=True)
        attends = np.any(seen, axis=(1, 3))[..., None]
        return self.numbers.where(attends, self.number("x"), 0.0)

    @cached_property
    def source(self) -> Array:
        """`b j c`: where keys and values come from, 0 where no head sees it."""
        name = "context" if "context" in self.case.inputs else "x"
        seen = full(self.case, "mask", absent=True)
        attended = np.any(seen, axis=(1, 2))[..., None]
        return self.numbers.where(attended, self.number(name), 0.0)

    @cached_property
    def compressed(self) -> Array:
        """`b j r`."""
        return self.source @ self.w["w_c"]

    @cached_property
    def turns(self) -> tuple[Turn, Turn]:
        """Of the queries and of the keys."""
        case, given, width = self.case, self.case.settings, self.case.sizes["p"]
        is_interleaved = given.get("pairing", "halves") == "interleaved"
        base = given.get("base", 10000.0)
        keys = np.arange(case.sizes["j"])[None]
        of_query, of_key = (
            Turn(self.numbers, at, width, width, base, is_interleaved)
            for at in (places(case), keys)
        )
        return of_query, of_key

    def number(self, name: str) -> Array:
        """An input in the arithmetic."""
        return self.numbers.number(own(self.case, name))

    def call(self) -> Reduced:
        """Plain attention with the merged values of every head, whose outputs are
        summed; and then its gradients."""
        sizes = self.case.sizes
        v = self._of_heads(self.compressed, self.w["w_v"], self._keys)
        operands = {
            **self._scored(turned=sizes["r"], k=sizes["d"] + sizes["p"]),
            "v": self.numbers.product(v, self.w["w_o"], sizes["n"] * sizes["e"]),
        }
        case = plain(self.case, self.numbers, d_out=None, **operands)
        return Reduced(case, operands, self._back)

    def call_back(self, forward: dict[str, Array]) -> Reduced:
        """Plain attention of every head with gradients, of which those of the operation
        are made; `forward` is what it returns."""
        sizes, keys = self.case.sizes, self._keys
        # Of a weight by which all queries are multiplied, and of what all heads share.
        rows = (sizes["n"] + sizes["b"]) * sizes["i"]
        v = sizes["e"] + keys + sizes["i"] + sizes["b"] * sizes["j"]
        d_out, w_o = self.number("d_out")[:, None], self.w["w_o"].swapaxes(-1, -2)
        operands = {
            **self._scored(
                q=sizes["d"] + keys + rows,
                turned=sizes["r"] + rows,
                k=sizes["d"] + sizes["p"] + keys,
            ),
            "v": self._of_heads(self.compressed, self.w["w_v"], v),
            "d_out": self.numbers.product(d_out, w_o, sizes["e"] + keys + rows),
        }
        case = plain(self.case, self.numbers, **operands)
        return Reduced(case, operands, lambda found: forward | self._gradients(found))

    @property
    def _keys(self) -> int:
        """Roundings of a weighted sum over the keys: two more a block of 16."""
        return self.case.sizes["j"] + self.case.sizes["j"] // 8 + 5

    def _scored(self, *, q: int = 0, turned: int, k: int) -> dict[str, Array]:
        """q and k of every head, the rotary part beside the rest.

        Args:
            q, turned, k: further terms of their sums; `turned`, of the rotary part of
                the queries.
        """
        w, (of_query, of_key) = self.w, self.turns
        rotary = of_query(self._of_heads(self.x, w["w_qr"], turned))
        shared = of_key((self.source @ w["w_kr"])[:, None])
        queries = self._of_heads(self.x, w["w_q"], q)
        keys = self._of_heads(self.compressed, w["w_k"], k)
        return {
            "q": beside(self.numbers, queries, rotary),
            "k": beside(self.numbers, keys, shared),
        }

    def _back(self, found: Results) -> dict[str, Array] | Reduced:
        """The output; and where they are asked for, on to the gradients."""
        merged = summed(self.numbers, found["output"], [1])[:, 0]
        forward = {"output": merged, "lse": found["lse"]}
        return self.call_back(forward) if "d_out" in self.case.inputs else forward

    def _gradients(self, found: Results) -> dict[str, Array]:
        """From those of q, k and v to those of the weights and of where they come
        from."""
        width = self.case.sizes["d"]
        dq, dq_turned = found["dq"][..., :width], found["dq"][..., width:]
        dk, dk_turned = found["dk"][..., :width], found["dk"][..., width:]
        dq_turned = self.turns[0].back(dq_turned)
        shared = self.turns[1].back(summed(self.numbers, dk_turned, [1]))[:, 0]
        w_q, w_qr, w_k, w_v = (
            self.w[x].swapaxes(0, 1) for x in ("w_q", "w_qr", "w_k", "w_v")
        )
        dc = self._over_heads(dk, w_k) + self._over_heads(found["dv"], w_v)
        dx = self._over_heads(dq, w_q) + self._over_heads(dq_turned, w_qr)
        d_source = dc @ self.w["w_c"].swapaxes(0, 1)
        d_source = d_source + shared @ self.w["w_kr"].swapaxes(0, 1)
        heads = found["output"]
        is_cross = "context" in self.case.inputs
        return {
            "dx": dx if is_cross else dx + d_source,
            **({"dcontext": d_source} if is_cross else {}),
            "dw_q": self._to_weights(self.x, dq).swapaxes(0, 1),
            "dw_qr": self._to_weights(self.x, dq_turned).swapaxes(0, 1),
            "dw_kr": self._to_weights(self.source, shared[:, None])[0],
            "dw_c": self._to_weights(self.source, dc[:, None])[0],
            "dw_k": self._to_weights(self.compressed, dk).swapaxes(0, 1),
            "dw_v": self._to_weights(self.compressed, found["dv"]).swapaxes(0, 1),
            "dw_o": self._to_weights(self.number("d_out"), heads).swapaxes(-1, -2),
        }

    def _of_heads(self, x: Array, w: Array, more: int) -> Array:
        """`b x r, r n d -> b n x d`."""
        return self.numbers.product(x[:, None], w.swapaxes(0, 1), more)

    def _over_heads(self, d: Array, w: Array) -> Array:
        """`b n x d, n c d -> b x c`, as one sum over all heads."""
        b, n, length, width = d.shape
        d = d.swapaxes(1, 2).reshape(b, length, n * width)
        return d @ w.swapaxes(0, 1).reshape(w.shape[1], n * width).swapaxes(0, 1)

    def _to_weights(self, x: Array, d: Array) -> Array:
        """`b x c, b n x d -> n c d`, as one sum over batch and positions."""
        b, n, length, width = d.shape
        d = d.swapaxes(0, 1).reshape(n, b * length, width)
        return x.reshape(b * length, x.shape[-1]).swapaxes(0, 1) @ d


def reduce(case: "Case", numbers: "Arithmetic") -> Reduced:
    """Plain attention of every head; where they are asked for, gradients follow."""
    return _Latent(case, numbers).call()


LATENT = Operation(
    "latent_attention",
    "latent attention",
    reduce,
    operands=("x",),
    required={
        "w_q": "cnd",
        "w_qr": "cnp",
        "w_kr": "cp",
        "w_c": "cr",
        "w_k": "rnd",
        "w_v": "rne",
        "w_o": "nec",
    },
    optional={"context": "bjc"},
    returns={"output": "bic"},
    settings={
        "offset": OFFSET,
        "base": BASE,
        "pairing": PAIRING,
        "absorbed": Setting(lambda x: isinstance(x, bool), "true or false"),
    },
    without=("scale", "softcap", "bias", "dropout_keep", "d_lse"),
)

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
    order if each has the terms of the others.
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

    def operands(self) -> dict[str, Array]:
        """q and k of every head, the rotary part beside the rest, v, and d_out."""
        numbers, w, turns, sizes = self.numbers, self.w, self.turns, self.case.sizes
        # A weighted sum over the keys has two roundings more for every block of 16.
        keys = sizes["j"] + sizes["j"] // 8 + 5
        q = self._of_heads(self.x, w["w_q"], keys)
        turned = turns[0](self._of_heads(self.x, w["w_qr"], 0))
        k = self._of_heads(self.compressed, w["w_k"], sizes["d"] + keys)
        shared = turns[1]((self.source @ w["w_kr"])[:, None])
        found = {
            "q": beside(numbers, q, turned),
            "k": beside(numbers, k, shared),
            "v": self._of_heads(self.compressed, w["w_v"], sizes["e"] + keys),
        }
        if "d_out" in self.case.inputs:
            d_out, w_o = self.number("d_out")[:, None], w["w_o"].swapaxes(-1, -2)
            found["d_out"] = numbers.product(d_out, w_o, sizes["r"] + keys)
        return found

    def back(self, found: Results) -> dict[str, Array]:
        """The merged output, and from q, k and v to the weights and where they come
        from."""
        output = self._over_heads(found["output"], self.w["w_o"].swapaxes(-1, -2))
        forward = {"output": output, "lse": found["lse"]}
        if "dq" not in found:
            return forward
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
            **forward,
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
    """Plain attention of every head."""
    latent = _Latent(case, numbers)
    operands = latent.operands()
    return Reduced(plain(case, numbers, **operands), operands, latent.back)


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

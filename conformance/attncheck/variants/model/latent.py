"""Keys and values from a few numbers a position, and back."""

import numpy as np

from attncheck.variants.model.backward import Backward
from attncheck.variants.model.parts import Array, Arrays


class Latent(Backward):
    """Latent attention."""

    def by_latent(self) -> Arrays:
        """The merged output, and the gradients where a gradient comes in."""
        operands = self.latent_operands()
        forward = self.forward(*operands)
        heads, merged = forward["output"], self.merged(forward["output"])
        results = forward | {"output": merged}
        if "d_out" not in self.case.inputs:
            return results
        found = self.backward(*operands, forward)
        d_source, of_source = self.through_keys(found["dk"], found["dv"])
        d_x, of_x = self.through_queries(found["dq"])
        d_out = self.input("d_out")
        results |= of_source | of_x
        results["dw_o"] = self.over_batch(np.einsum("bnie,bic->bnec", heads, d_out))
        if "context" in self.case.inputs:
            return results | {"dx": d_x, "dcontext": d_source}
        return results | {"dx": self.both(d_x, d_source)}

    def through_queries(self, dq: Array) -> tuple[Array, Arrays]:
        """From the gradient of all queries to that of x, and of their weights."""
        x, d = self.input("x"), self.case.sizes["d"]
        plain, turned = dq[..., :d], self.turned_back(dq[..., d:], self.query_places())
        d_x = np.einsum("bnid,cnd->bic", plain, self.input("w_q"))
        d_x = d_x + np.einsum("bnip,cnp->bic", turned, self.input("w_qr"))
        return d_x, {
            "dw_q": self.over_batch(np.einsum("bic,bnid->bcnd", x, plain)),
            "dw_qr": self.over_batch(np.einsum("bic,bnip->bcnp", x, turned)),
        }

    def through_keys(self, dk: Array, dv: Array) -> tuple[Array, Arrays]:
        """From the gradient of keys and values to where they come from, likewise."""
        source, latent, d = self.context(), self.compressed(), self.case.sizes["d"]
        plain, shared = dk[..., :d], self.d_shared(dk[..., d:])
        d_latent = self.d_compressed(plain, dv)
        d_source = d_latent @ self.input("w_c").T + shared @ self.input("w_kr").T
        return d_source, {
            "dw_kr": self.over_batch(np.einsum("bjc,bjp->bcp", source, shared)),
            "dw_c": self.over_batch(np.einsum("bjc,bjr->bcr", source, d_latent)),
            "dw_k": self.over_batch(np.einsum("bjr,bnjd->brnd", latent, plain)),
            "dw_v": self.over_batch(np.einsum("bjr,bnje->brne", latent, dv)),
        }

    def both(self, d_x: Array, d_source: Array) -> Array:
        """The gradient of what queries, keys and values all come from."""
        return d_x + d_source

    def d_shared(self, d: Array) -> Array:
        """The gradient of the rotary key, which all heads share, turned back."""
        return self.turned_back(d, self.key_places()).sum(axis=1)

    def d_compressed(self, dk: Array, dv: Array) -> Array:
        """The gradient of what is compressed."""
        of_keys = np.einsum("bnjd,rnd->bjr", dk, self.input("w_k"))
        return of_keys + np.einsum("bnje,rne->bjr", dv, self.input("w_v"))

    def compressed(self) -> Array:
        """`b j r`."""
        return self.context() @ self.input("w_c")

    def latent_operands(self) -> tuple[Array, Array, Array]:
        """q, k and v of every head, the rotary part beside the rest of q and k."""
        x, source, latent = self.input("x"), self.context(), self.compressed()
        q = np.einsum("bic,cnd->bnid", x, self.input("w_q"))
        k = np.einsum("bjr,rnd->bnjd", latent, self.input("w_k"))
        v = np.einsum("bjr,rne->bnje", latent, self.input("w_v"))
        q_part = np.einsum("bic,cnp->bnip", x, self.input("w_qr"))
        k_part = (source @ self.input("w_kr"))[:, None]
        k_part = np.broadcast_to(
            self.rotary_key(k_part), (*k.shape[:3], k_part.shape[-1])
        )
        q = np.concatenate([q, self.rotary_query(q_part)], axis=-1)
        return q, np.concatenate([k, k_part], axis=-1), v

    def rotary_query(self, x: Array) -> Array:
        """The rotary part of the queries, turned."""
        return self.turned(x, self.query_places())

    def rotary_key(self, x: Array) -> Array:
        """The rotary part of the keys, turned."""
        return self.turned(x, self.key_places())

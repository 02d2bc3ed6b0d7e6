"""Attention in float64, in blocks of keys as kernels do it; every method is one step.

A variant replaces some steps.  The model shares no code with the definition, with the
rooms, or with the formulas that are certified.
"""

from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from attncheck.budget import output_dtype
from attncheck.case import DTYPES, Case

Array = np.ndarray
Arrays = dict[str, np.ndarray]

TILE = 16
"""Keys, or queries, of a block."""


class Model:
    """One call of a case.  Keys and values are repeated for every query head.

    Axes are those of the spec with `n` for `h`: q and k are `b n i d` and `b n j d`, v
    is `b n j e`, everything between `b n i j`, a row's numbers `b n i 1`.
    """

    reference: ClassVar[str] = ""
    """Where the mistake was seen in public, as `owner/repo#number`."""
    convention: ClassVar[tuple[str, Any] | None] = None
    """The field of `Conventions` that the variant changes, and to what."""
    rounds: ClassVar[bool] = False
    """Whether it is the precision that differs, not the formula."""
    op: ClassVar[str] = ""
    """The only operation in which it makes a difference, if it is one of the others."""
    tile: ClassVar[int] = TILE
    """Keys of a block."""

    def __init__(self, case: Case, *, stores: bool = False) -> None:
        """`stores`: round weights and d_logits to storage before their products, as
        the profile tensor-core does."""
        self.case, self.stores = case, stores

    def __init_subclass__(
        cls,
        reference: str = "",
        convention: tuple[str, Any] | None = None,
        rounds: bool = False,
        op: str = "",
    ) -> None:
        cls.reference, cls.convention, cls.rounds = reference, convention, rounds
        cls.op = op

    def results(self) -> Arrays:
        """Everything that the case could want, in float64."""
        if self.case.op == "multi_head_attention":
            forward = self.forward(*self.projected())
            return forward | {"output": self.merged(forward["output"])}
        if self.case.op == "latent_attention":
            return self.by_latent()
        if self.case.op in ("linear_attention", "performer_attention"):
            return self.by_features()
        if self.case.op == "linformer_attention":
            return self.by_combinations()
        if self.case.op == "nystrom_attention":
            return self.by_landmarks()
        operands = self.operands()
        forward = self.forward(*operands)
        return forward | self.backward(*operands, forward)

    def operands(self) -> tuple[Array, Array, Array]:
        """q, k and v, as the scores and the output take them."""
        q, k, v = self.input("q"), self.spread("k"), self.spread("v")
        if self.case.op == "rotary_attention":
            q = self.turned(q, self.query_places())
            k = self.turned(k, self.key_places())
        if self.case.op == "cosine_attention":
            q = self.unit_query(q) * self.by_head(self.temperature())
            k = self.unit_key(k)
        return q, k, v

    def by_head(self, numbers: Array) -> Array:
        """`n ...` → `n 1 1 ...`."""
        return numbers[:, None, None]

    # ------------------------------------------------------------------- the inputs

    def input(self, name: str) -> Array:
        """An input in float64, or its neutral element where the case has none."""
        if name in self.case.inputs:
            return self.read(name).astype(np.float64)
        return np.zeros(self.size({"d_out": "bnie", "d_lse": "bni"}[name]))

    def read(self, name: str) -> Array:
        """An input as it is stored."""
        return self.case.inputs[name]

    def size(self, axes: str) -> tuple[int, ...]:
        """The sizes of some axes."""
        return tuple(self.case.sizes[axis] for axis in axes)

    def full(self, name: str, default: float | bool) -> Array:
        """A mask or bias at full size, `b n i j`."""
        array = self.read(name) if name in self.case.inputs else np.array(default)
        return np.broadcast_to(array, self.size("bnij"))

    def spread(self, name: str) -> Array:
        """Keys or values, for every query head the head that it shares."""
        return self.repeated(self.input(name))

    def repeated(self, array: Array) -> Array:
        """`b h j x` → `b n j x`."""
        return np.repeat(array, self.case.sizes["g"], axis=1)

    def grouped(self, gradient: Array) -> Array:
        """`b n j x` → `b h j x`: the sum over the heads of a group."""
        b, h, g = self.size("bhg")
        return gradient.reshape(b, h, g, *gradient.shape[2:]).sum(axis=2)

    def seen(self) -> Array:
        """Whether the query may see the key."""
        return self.full("mask", True)

    def bias(self) -> Array:
        """The bias."""
        return self.full("bias", 0.0).astype(np.float64)

    def keep(self) -> Array:
        """The factor that dropout puts on every weight."""
        if "dropout_keep" not in self.case.inputs:
            return np.ones(self.size("bnij"))
        return self.kept(self.full("dropout_keep", True), self.case.dropout_rate)

    def kept(self, keep: Array, rate: float) -> Array:
        """0 or 1/(1 − rate)."""
        return keep / (1 - rate)

    # ------------------------------------------------------------------ projections

    def projected(self) -> tuple[Array, Array, Array]:
        """q, k and v of a multi-head case."""
        x = self.input("x")
        context = self.context()
        return (
            self.project(x, "q"),
            self.repeated(self.project(context, "k")),
            self.repeated(self.project(context, "v")),
        )

    def context(self) -> Array:
        """Where keys and values come from."""
        return self.input("context" if "context" in self.case.inputs else "x")

    def weight(self, kind: str) -> Array:
        """The weight of a projection, `c n d`."""
        return self.input(f"w_{kind}")

    def project(self, x: Array, kind: str) -> Array:
        """`b i c` → `b n i d`."""
        weight = self.weight(kind)
        flat = x @ weight.reshape(len(weight), -1) + self.shift(kind)
        return self.split(flat, *weight.shape[1:])

    def shift(self, kind: str) -> Array | float:
        """The bias of a projection, its heads side by side; 0 where it has none."""
        name = f"b_{kind}"
        return self.input(name).ravel() if name in self.case.inputs else 0.0

    def split(self, flat: Array, heads: int, width: int) -> Array:
        """`b i (n d)` → `b n i d`."""
        return flat.reshape(*flat.shape[:2], heads, width).transpose(0, 2, 1, 3)

    def merged(self, heads: Array) -> Array:
        """`b n i e` → `b i c`: the output projection."""
        weight = self.weight("o")
        flat = self.joined(heads)
        return flat @ weight.reshape(-1, weight.shape[-1]) + self.shift("o")

    def joined(self, heads: Array) -> Array:
        """`b n i e` → `b i (n e)`."""
        return heads.transpose(0, 2, 1, 3).reshape(*self.size("bi"), -1)

    # -------------------------------------------------------------------- positions

    def setting(self, name: str, default: Any) -> Any:
        """An option of the operation's own."""
        return self.case.settings.get(name, default)

    def place_offset(self) -> Array:
        """By how much queries stand further on, `b 1` or `1 1`."""
        return np.array(self.setting("offset", 0)).reshape(-1, 1)

    def query_places(self) -> Array:
        """`b i` or `1 i`."""
        return self.place_offset() + np.arange(self.case.sizes["i"])

    def key_places(self) -> Array:
        """`1 j`."""
        return np.arange(self.case.sizes["j"])[None]

    def turned_width(self) -> int:
        """How many components are turned."""
        whole = "p" if "p" in self.case.sizes else "d"
        width = self.setting("width", None)
        return self.case.sizes[whole] if width is None else width

    def is_interleaved(self) -> bool:
        """Whether pairs are neighbours."""
        return self.setting("pairing", "halves") == "interleaved"

    def base(self) -> float:
        """What the frequencies are powers of."""
        return self.setting("base", 10000.0)

    def frequencies(self) -> Array:
        """One for each pair."""
        width = self.turned_width()
        return self.base() ** (-np.arange(0, width, 2) / max(width, 1))

    def angles(self, places: Array) -> Array:
        """Place times frequency, `b 1 i t`."""
        return places[:, None, :, None] * self.frequencies()

    def pairs(self) -> tuple[Array, Array]:
        """The first and the second component of every pair."""
        width = self.turned_width()
        if self.is_interleaved():
            return np.arange(0, width, 2), np.arange(1, width, 2)
        return np.arange(width // 2), np.arange(width // 2, width)

    def distances(self) -> Array:
        """How far each key is after each query, `b i j` or `1 i j`."""
        return self.key_places()[:, None, :] - self.query_places()[..., None]

    def distance_bias(self) -> Array | float:
        """What is added to a logit for the distance, `b n i j`."""
        if self.case.op == "alibi_attention":
            return self.linear_bias(self.distances()[:, None], self.slopes())
        if self.case.op == "t5_attention":
            rows = self.buckets(self.distances())
            return self.input("table")[rows].transpose(0, 3, 1, 2)
        return 0.0

    def linear_bias(self, distances: Array, slopes: Array) -> Array:
        """−m·|distance|."""
        return -np.abs(distances) * slopes[:, None, None]

    def slopes(self) -> Array:
        """One for each query head."""
        if "slopes" in self.case.inputs:
            return self.input("slopes")
        return np.array(self.published_slopes(self.case.sizes["n"]))

    def published_slopes(self, n: int) -> list[float]:
        """A power of two of heads has powers of its first slope; others borrow."""
        power = 2 ** int(np.log2(n))
        first = 2.0 ** (-8.0 / power)
        slopes = [first * first**k for k in range(power)]
        if power == n:
            return slopes
        return slopes + self.published_slopes(2 * power)[0::2][: n - power]

    def buckets(self, distance: Array) -> Array:
        """The row of the table for each distance, as the published code has it."""
        count = len(self.read("table"))
        rows, back = np.zeros_like(distance), -distance
        if self.is_both_ways():
            count //= 2
            rows, back = count * (distance > 0), np.abs(distance)
        back, exact = np.maximum(back, 0), count // 2
        far = np.log(np.maximum(back, 1) / exact) / np.log(self.max_distance() / exact)
        # So that a whole number is not missed by a rounding.
        far = exact + np.floor(far * (count - exact) + 1e-9).astype(int)
        return rows + np.where(back < exact, back, self.last_bucket(far, count))

    def is_both_ways(self) -> bool:
        """Whether later keys have buckets of their own."""
        return self.setting("bidirectional", True)

    def max_distance(self) -> int:
        """From where on all distances share a bucket."""
        return self.setting("max_distance", 128)

    def last_bucket(self, bucket: Array, count: int) -> Array:
        """No bucket is beyond the last."""
        return np.minimum(bucket, count - 1)

    def table_rows(self) -> Array:
        """The row of a table of keys or values, by the clipped distance, `b i j`."""
        clip = len(self.read("key_table")) // 2
        return np.clip(self.distances(), -clip, clip) + clip

    def key_term(self, q: Array) -> Array:
        """q·a, `b n i j`."""
        return np.einsum("bnid,bijd->bnij", q, self.of_rows("key_table"))

    def value_term(self, masked: Array, lse: Array) -> Array:
        """Σ p·b, `b n i e`."""
        p = self.weights(masked, lse[..., 0]) * self.keep()
        return np.einsum("bnij,bije->bnie", p, self.of_rows("value_table"))

    def of_rows(self, table: str) -> Array:
        """A table at the rows, for every batch element, `b i j x`."""
        found = self.input(table)[self.table_rows()]
        return np.broadcast_to(found, (self.case.sizes["b"], *found.shape[1:]))

    # ----------------------------------------------------------------- a latent width

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

    # ------------------------------------------------- other scores, and a denominator

    def sink(self) -> Array:
        """The logit that joins the row sum, `n 1 1`."""
        return self.input("sinks")[:, None, None]

    def temperature(self) -> Array:
        """One for each query head."""
        if "temperature" in self.case.inputs:
            return self.input("temperature")
        return np.full(self.case.sizes["n"], 10.0)

    def unit_query(self, q: Array) -> Array:
        """A query of length 1."""
        return self.unit(q)

    def unit_key(self, k: Array) -> Array:
        """A key of length 1."""
        return self.unit(k)

    def unit(self, x: Array) -> Array:
        """x over its length, or over eps where it is shorter."""
        length = np.linalg.norm(x, axis=-1, keepdims=True)
        return x / np.maximum(length, self.setting("eps", 1e-12))

    def additive_scores(self, q: Array, k: Array) -> Array:
        """w·tanh(W q + U k)."""
        return np.einsum("bnija,na->bnij", self.features(q, k), self.input("w_s"))

    def features(self, q: Array, k: Array) -> Array:
        """tanh(W q + U k), `b n i j a`."""
        return self.bend(self.projections(q, k))

    def projections(self, q: Array, k: Array) -> Array:
        """W q + U k, `b n i j a`."""
        from_query = np.einsum("bnid,nda->bnia", q, self.query_weight())
        from_key = np.einsum("bnjd,nda->bnja", k, self.key_weight())
        return from_query[:, :, :, None] + from_key[:, :, None]

    def query_weight(self) -> Array:
        """W, `n d a`."""
        return self.input("w_q")

    def key_weight(self) -> Array:
        """U, for every query head that of its group, `n d a`."""
        return np.repeat(self.input("w_k"), self.case.sizes["g"], axis=0)

    def bend(self, x: Array) -> Array:
        """The tanh."""
        return np.tanh(x)

    # -------------------------------------------------------------- weights by features

    def by_features(self) -> Arrays:
        """What sums over keys, of features times values, give a query."""
        seen = self.seen() & self.reached()
        live, attends = self.exists(seen), seen.any(axis=-1, keepdims=True)
        v = self.shown_value(self.spread("v"), live)
        q = np.where(attends, self.input("q"), 0.0)
        of_query, up = self.query_features(q)
        of_key, more = self.key_features(self.shown_key(self.spread("k"), live), live)
        sums = np.einsum("bnij,bnjr,bnje->bnire", seen, of_key, v)
        total = self.denominator(of_query, of_key, seen)
        out = np.einsum("bnir,bnire->bnie", of_query, sums)
        return {
            "output": self.normalised(out, total),
            "lse": self.log_denominator(total, up + more)[..., 0],
        }

    def reached(self) -> Array:
        """Whether the sum that a query takes has got to a key, `b n i j`."""
        if not self.is_causal():
            return np.full(self.size("bnij"), True)
        i, j = np.ogrid[: self.case.sizes["i"], : self.case.sizes["j"]]
        return np.broadcast_to(j - i <= self.last_key(), self.size("bnij"))

    def is_causal(self) -> bool:
        """Whether the sums are prefix sums."""
        return self.setting("causal", False)

    def last_key(self) -> int:
        """The last key that the first query sees."""
        return self.setting("offset", 0)

    def denominator(self, of_query: Array, of_key: Array, seen: Array) -> Array:
        """The sum of the weights, `b n i 1`."""
        sums = np.einsum("bnij,bnjr->bnir", seen, of_key)
        return np.sum(of_query * sums, axis=-1, keepdims=True)

    def normalised(self, out: Array, total: Array) -> Array:
        """Over the sum of the weights; 0 where all of them are."""
        return np.where(total == 0, 0.0, out / np.where(total == 0, 1.0, total))

    def log_denominator(self, total: Array, shift: Array | float) -> Array:
        """The log-sum-exp, shifts put back, of the mean over random features."""
        log = np.where(total == 0, -np.inf, np.log(np.where(total == 0, 1.0, total)))
        return log + shift - np.log(self.features_averaged())

    def features_averaged(self) -> int:
        """How many features a mean is taken over."""
        return len(self.read("draws")) if "draws" in self.case.inputs else 1

    def query_features(self, q: Array) -> tuple[Array, Array | float]:
        """`b n i r`, and by how much their logarithm is larger in truth."""
        if self.case.op == "linear_attention":
            return self.feature(q), 0.0
        logs = self.random_logs(q)
        top = logs.max(axis=-1, keepdims=True)
        return self.random_feature(logs - top), self.put_back(top)

    def key_features(self, k: Array, live: Array) -> tuple[Array, Array | float]:
        """`b n j r`, and by how much their logarithm is larger in truth."""
        if self.case.op == "linear_attention":
            return self.feature(k), 0.0
        logs = self.random_logs(k)
        top = self.key_top(np.where(live, logs, -np.inf))
        return self.random_feature(logs - top), self.put_back(_highest(top))

    def key_top(self, logs: Array) -> Array:
        """The largest of all keys of a head, 0 where it has none."""
        return _safe(logs.max(axis=(-2, -1), keepdims=True))

    def put_back(self, top: Array) -> Array:
        """What the log-sum-exp gets of what was taken off."""
        return top

    def feature(self, x: Array) -> Array:
        """relu, or elu + 1."""
        if self.feature_name() == "relu":
            return np.maximum(x, 0.0)
        return self.elu(x) + self.above_elu()

    def feature_name(self) -> str:
        """Which of them."""
        return self.setting("feature", "elu+1")

    def elu(self, x: Array) -> Array:
        """x, or eˣ − 1 below 0."""
        return np.where(x > 0, x, np.expm1(np.minimum(x, 0.0)))

    def above_elu(self) -> float:
        """What makes all features positive."""
        return 1.0

    def random_feature(self, log: Array) -> Array:
        """The exponential."""
        return np.exp(log)

    def random_logs(self, x: Array) -> Array:
        """w·x − |x|²/2, of x times the root of the scale."""
        x = x * self.feature_scale()
        products = np.einsum("bnxd,rd->bnxr", x, self.input("draws"))
        return products - self.half_norm(x)

    def feature_scale(self) -> float:
        """What queries and keys are multiplied by."""
        return self.case.scale_value**0.5

    def half_norm(self, x: Array) -> Array:
        """|x|²/2."""
        return np.linalg.norm(x, axis=-1, keepdims=True) ** 2 / 2

    # ------------------------------------------------------------------------ low rank

    def by_combinations(self) -> Arrays:
        """Attention to r combinations of the keys."""
        is_key = self.keys_combined()
        k, v = (np.where(is_key, self.spread(name), 0.0) for name in "kv")
        k = np.einsum("bnjd,jr->bnrd", k, self.key_projection())
        v = np.einsum("bnje,jr->bnre", v, self.value_projection())
        q = np.where(self.seen().any(axis=-1, keepdims=True), self.input("q"), 0.0)
        logits = self.scaled(q @ k.swapaxes(-1, -2))
        logits = np.where(self.combinations_seen(logits.shape), logits, -np.inf)
        weights, lse = self.softmax(logits)
        return {"output": weights @ v, "lse": lse[..., 0]}

    def keys_combined(self) -> Array:
        """Which keys are in the combinations, `b n j 1`."""
        return self.exists(self.seen())

    def combinations_seen(self, shape: tuple[int, ...]) -> Array:
        """Which combinations a query sees: all, or none where no key is left."""
        return np.broadcast_to(self.seen().any(axis=-1, keepdims=True), shape)

    def key_projection(self) -> Array:
        """E."""
        return self.input("w_e")

    def value_projection(self) -> Array:
        """F; E where it is not given."""
        return self.input("w_f" if "w_f" in self.case.inputs else "w_e")

    def by_landmarks(self) -> Arrays:
        """Three softmaxes, the middle one inverted."""
        q, k, v = self.input("q"), self.spread("k"), self.spread("v")
        few_q, few_k = self.landmarks(q), self.landmarks(k)
        first, core, last = (
            self.softmax(self.scaled(x @ y.swapaxes(-1, -2)))[0]
            for x, y in ((q, few_k), (few_q, few_k), (few_q, k))
        )
        return {"output": self.through(first, core, last @ v)}

    def landmarks(self, x: Array) -> Array:
        """Of every segment one, `b n r d`."""
        count = self.setting("landmarks", 1)
        return np.stack(
            [self.landmark(part) for part in np.split(x, count, axis=2)], axis=2
        )

    def landmark(self, part: Array) -> Array:
        """The mean of a segment."""
        return part.mean(axis=2)

    def through(self, first: Array, core: Array, values: Array) -> Array:
        """The product of the three."""
        return first @ np.linalg.solve(core, values)

    def softmax(self, logits: Array) -> tuple[Array, Array]:
        """Weights and log-sum-exp of whole rows; 0 and −∞ where all is −∞."""
        top = _safe(logits.max(axis=-1, keepdims=True))
        total = np.exp(logits - top).sum(axis=-1, keepdims=True)
        safe = np.where(total == 0, 1.0, total)
        return np.exp(logits - top) / safe, np.log(total) + top

    def turned(self, x: Array, places: Array) -> Array:
        """Pairs as complex numbers, times e^(i·angle)."""
        first, second = self.pairs()
        pairs = (x[..., first] + 1j * x[..., second]) * np.exp(1j * self.angles(places))
        x = x.copy()
        x[..., first], x[..., second] = pairs.real, pairs.imag
        return x

    # ---------------------------------------------------------------------- forward

    def forward(self, q: Array, k: Array, v: Array) -> Arrays:
        """Output, log-sum-exp and what is between."""
        live = self.exists(self.seen())
        k, v = self.shown_key(k, live), self.shown_value(v, live)
        scores = self.scores(q, k)
        logits = self.logits(scores)
        masked = self.masked(logits, self.seen())
        out, lse = self.attend(masked, v)
        weights = self.weights(masked, lse)
        steps = {"scores": scores, "logits": logits, "masked": masked}
        return steps | {"weights": weights, "output": self.output(out), "lse": lse}

    def exists(self, seen: Array) -> Array:
        """Whether any query of a group sees the key: `b n j 1`."""
        b, h, g, i, j = self.size("bhgij")
        of_group = seen.reshape(b, h, g, i, j).any(axis=(2, 3))
        return np.repeat(of_group, g, axis=1)[..., None]

    def shown_key(self, k: Array, live: Array) -> Array:
        """Keys, 0 where nobody sees them."""
        return np.where(live, k, 0.0)

    def shown_value(self, v: Array, live: Array) -> Array:
        """Values, 0 where nobody sees them."""
        return np.where(live, v, 0.0)

    def scores(self, q: Array, k: Array) -> Array:
        """Raw dot products, or what an operation has instead."""
        if self.case.op == "additive_attention":
            return self.additive_scores(q, k)
        products = q @ k.swapaxes(-1, -2)
        return (
            products + self.key_term(q) if "key_table" in self.case.inputs else products
        )

    def scale(self) -> float:
        """The factor on the raw scores."""
        if self.case.op in ("cosine_attention", "additive_attention"):
            return 1.0
        return self.case.scale_value

    def logits(self, scores: Array) -> Array:
        """Scale, softcap, bias, in this order."""
        return self.biased(self.capped(self.scaled(scores)))

    def scaled(self, scores: Array) -> Array:
        """The scores times the scale."""
        return scores * self.scale()

    def capped(self, x: Array) -> Array:
        """The softcap, where there is one."""
        return x if self.case.softcap is None else self.softcap(x, self.case.softcap)

    def softcap(self, x: Array, cap: float) -> Array:
        """c·tanh(x/c)."""
        return cap * np.tanh(x / cap)

    def biased(self, x: Array) -> Array:
        """The bias added."""
        return x + self.bias() + self.distance_bias()

    def masked(self, logits: Array, seen: Array) -> Array:
        """−∞ where the key is blocked."""
        return np.where(seen, logits, -np.inf)

    # ---------------------------------------------------- softmax, a block at a time

    def tiles(self) -> list[slice]:
        """The blocks of keys."""
        return _blocks(self.case.sizes["j"], self.tile)

    def attend(self, masked: Array, v: Array) -> tuple[Array, Array]:
        """Output and log-sum-exp, normalised after the product with the values."""
        rows = (*masked.shape[:3], 1)
        top, total = np.full(rows, -np.inf), np.zeros(rows)
        out, keep = np.zeros((*rows[:3], v.shape[-1])), self.keep()
        for tile in self.tiles():
            new = self.top(top, masked[..., tile])
            factor = self.rescale(top, new)
            p = self.exp(masked[..., tile] - _safe(new))
            total = self.sum_up(self.total_rescaled(total, factor), p)
            part = self.stored_weights(p * keep[..., tile]) @ self.values(v, tile)
            out = self.add(self.out_rescaled(out, factor), part)
            top = new
        if "sinks" in self.case.inputs:
            new = self.top(top, self.sink())
            out = self.out_rescaled(out, self.rescale(top, new))
            total = self.total_rescaled(total, self.rescale(top, new))
            total, top = total + np.exp(self.sink() - new), new
        empty = top == -np.inf
        out = self.divided(out, total, empty)
        if "value_table" in self.case.inputs:
            out = out + self.value_term(masked, self.lse(top, total))
        return out, self.lse(top, total)[..., 0]

    def values(self, v: Array, tile: slice) -> Array:
        """The values of a block."""
        return v[..., tile, :]

    def top(self, top: Array, logits: Array) -> Array:
        """The running maximum."""
        return np.maximum(top, logits.max(axis=-1, keepdims=True))

    def exp(self, x: Array) -> Array:
        """The exponential of a block's logits, less the maximum."""
        return np.exp(x)

    def rescale(self, old: Array, new: Array) -> Array:
        """What a sum over earlier blocks is multiplied by when the maximum grows."""
        return np.exp(old - _safe(new))

    def total_rescaled(self, total: Array, factor: Array) -> Array:
        """The row sum so far."""
        return total * factor

    def out_rescaled(self, out: Array, factor: Array) -> Array:
        """The output so far."""
        return out * factor

    def sum_up(self, total: Array, p: Array) -> Array:
        """The row sum."""
        return total + p.sum(axis=-1, keepdims=True)

    def add(self, total: Array, part: Array) -> Array:
        """A sum over blocks, in the accumulator."""
        return total + part

    def stored(self, x: Array) -> Array:
        """An operand of a product, as it is kept until then."""
        return self.narrow(x) if self.stores else x

    def stored_weights(self, p: Array) -> Array:
        """The weights, as they are kept until their products."""
        return self.stored(p)

    def divided(self, out: Array, total: Array, empty: Array) -> Array:
        """The output of a row; 0 where it is empty."""
        return np.where(empty, 0.0, out / np.where(empty, 1.0, total))

    def lse(self, top: Array, total: Array) -> Array:
        """The log-sum-exp; −∞ where the row is empty."""
        return np.where(top == -np.inf, -np.inf, top + np.log(total))

    def weights(self, masked: Array, lse: Array) -> Array:
        """The weights, from the log-sum-exp; 0 where blocked."""
        p = np.exp(masked - _safe(lse[..., None]))
        return np.where(masked == -np.inf, 0.0, p)

    def output(self, out: Array) -> Array:
        """The output before it is rounded."""
        return out

    # --------------------------------------------------------------------- backward

    def backward(self, q: Array, k: Array, v: Array, forward: Arrays) -> Arrays:
        """The gradients of all inputs, from the output and the log-sum-exp."""
        masked, lse = forward["masked"], forward["lse"]
        live = self.exists(self.seen())
        k, v = self.shown_key(k, live), self.shown_value(v, live)
        rows = (lse != -np.inf)[..., None]
        d_out, d_lse = np.where(rows, self.incoming(), 0.0), self.d_lse()
        q = np.where(rows, q, 0.0)
        p = self.weights_again(masked, lse)
        dp = self.d_weights(d_out, v)
        if "value_table" in self.case.inputs:
            dp = dp + self.d_weights_of_table(d_out)
        delta = self.delta(d_out, forward["output"], p, dp) - d_lse
        ds = np.where(masked == -np.inf, 0.0, self.d_logits(p, dp, delta))
        dx = self.d_scores(ds, forward["scores"])
        gradients = {
            "dq": self.to_query(self.d_query(dx, k), rows),
            "dk": self.grouped_key(self.to_key(self.d_key(dx, q), live)),
            "dv": self.grouped_value(self.d_value(p, d_out)),
            "dbias": self.d_bias(ds),
        }
        return gradients | self.own_gradients(
            {"q": q, "k": k, "p": p, "ds": ds, "dx": dx}
            | {"d_out": d_out, "delta": delta, "lse": lse, "rows": rows}
        )

    def incoming(self) -> Array:
        """The gradient that the output of every head comes with."""
        if self.case.op == "latent_attention":
            return np.einsum("bic,nec->bnie", self.input("d_out"), self.input("w_o"))
        return self.input("d_out")

    def d_lse(self) -> Array:
        """The gradient that the log-sum-exp comes with; 0 for an empty row."""
        seen = self.seen().any(axis=-1) | ("sinks" in self.case.inputs)
        return np.where(seen, self.input("d_lse"), 0.0)[..., None]

    def weights_again(self, masked: Array, lse: Array) -> Array:
        """The weights, computed again."""
        return self.weights(masked, lse)

    def d_weights(self, d_out: Array, v: Array) -> Array:
        """The gradient of the weights, through dropout."""
        return (d_out @ v.swapaxes(-1, -2)) * self.keep()

    def delta(self, d_out: Array, out: Array, p: Array, dp: Array) -> Array:
        """Σ over the row of weights times their gradients, from the output."""
        return (d_out * out).sum(axis=-1, keepdims=True)

    def d_logits(self, p: Array, dp: Array, delta: Array) -> Array:
        """The gradient of the logits."""
        return p * (dp - delta)

    def d_scores(self, ds: Array, scores: Array) -> Array:
        """The gradient of the scaled scores."""
        if self.case.softcap is None:
            return ds
        return ds * self.slope(self.scaled(scores), self.case.softcap)

    def slope(self, x: Array, cap: float) -> Array:
        """The derivative of the softcap."""
        return 1 - np.tanh(x / cap) ** 2

    def d_query(self, dx: Array, k: Array) -> Array:
        """The gradient of the queries, block of keys by block of keys."""
        total, dx = np.zeros((*dx.shape[:3], k.shape[-1])), self.stored(dx)
        for tile in _blocks(dx.shape[-1], self.tile):
            part = dx[..., tile] @ k[..., tile, :] * self.query_scale()
            total = self.add_query(total, part)
        if "key_table" in self.case.inputs:
            total = total + self.d_query_of_table(dx)
        return total

    def d_key(self, dx: Array, q: Array) -> Array:
        """The gradient of the keys of every query head."""
        return self.stored(dx).swapaxes(-1, -2) @ q * self.key_scale()

    def d_value(self, p: Array, d_out: Array) -> Array:
        """The gradient of the values of every query head."""
        return self.stored_weights(p * self.keep()).swapaxes(-1, -2) @ d_out

    def query_scale(self) -> float:
        """The scale, once more."""
        return self.scale()

    def key_scale(self) -> float:
        """The scale, once more."""
        return self.scale()

    def add_query(self, total: Array, part: Array) -> Array:
        """The sum over blocks of keys that gives dq."""
        return total + part

    def grouped_key(self, gradient: Array) -> Array:
        """dk of every key/value head."""
        return self.grouped(gradient)

    def grouped_value(self, gradient: Array) -> Array:
        """dv of every key/value head."""
        return self.grouped(gradient)

    def d_bias(self, ds: Array) -> Array:
        """The gradient of the bias, summed over the axes that were broadcast."""
        if "bias" not in self.case.inputs:
            return ds
        shape = self.case.inputs["bias"].shape
        axes = tuple(a for a, size in enumerate(shape) if size != ds.shape[a])
        return ds.sum(axis=axes, keepdims=True)

    # ------------------------------------------ gradients of an operation's own inputs

    def to_query(self, d: Array, rows: Array) -> Array:
        """From the gradient of q as the scores take it to that of the input."""
        if self.case.op == "rotary_attention":
            return self.turned_back(d, self.query_places())
        if self.case.op == "cosine_attention":
            return self.unit_back(self.d_tempered(d), self.shown_query(rows))
        return d

    def to_key(self, d: Array, live: Array) -> Array:
        """Likewise of the keys of every query head."""
        if self.case.op == "rotary_attention":
            return self.turned_back(d, self.key_places())
        if self.case.op == "cosine_attention":
            return self.unit_back(d, self.shown_key(self.spread("k"), live))
        return d

    def shown_query(self, rows: Array) -> Array:
        """The queries as they are given, 0 where they have no key."""
        return np.where(rows, self.input("q"), 0.0)

    def own_gradients(self, found: Arrays) -> Arrays:
        """Those of the inputs that only the operation has, and what they add."""
        inputs, results = self.case.inputs, {}
        if "slopes" in inputs:
            results["dslopes"] = self.d_slopes(found["ds"])
        if "table" in inputs:
            results["dtable"] = self.d_table(found["ds"], found["dx"])
        if "sinks" in inputs:
            weight = np.exp(self.sink() - found["lse"][..., None])
            results["dsinks"] = self.d_sinks(weight, found["delta"])
        if "temperature" in inputs:
            unit = self.unit_query(self.shown_query(found["rows"]))
            dq = self.d_query(found["dx"], found["k"])
            results["dtemperature"] = self.d_temperature(dq, unit)
        if "value_table" in inputs:
            results["dvalue_table"] = self.d_value_table(found["p"], found["d_out"])
        if "key_table" in inputs:
            results["dkey_table"] = self.d_key_table(found["dx"], found["q"])
        if self.case.op == "additive_attention":
            dx = found["dx"] * self.scale()
            results |= self.d_additive(dx, found["q"], found["k"])
        return results

    def over_batch(self, d: Array) -> Array:
        """The sum over the batch, which these inputs do not have."""
        return d.sum(axis=0)

    def turned_back(self, d: Array, places: Array) -> Array:
        """The gradient of what is turned."""
        return self.turned(d, -places)

    def d_tempered(self, d: Array) -> Array:
        """The gradient of the unit queries."""
        return d * self.by_head(self.temperature())

    def d_temperature(self, dq: Array, unit: Array) -> Array:
        """The gradient of the temperatures, from that of the queries that have them."""
        return self.over_batch((dq * unit).sum(axis=(2, 3)))

    def unit_back(self, d: Array, x: Array) -> Array:
        """The gradient of what is divided by its length, or by eps."""
        length = np.linalg.norm(x, axis=-1, keepdims=True)
        eps = self.setting("eps", 1e-12)
        unit = x / np.maximum(length, eps)
        across = np.where(length < eps, d, d - self.along(d, unit))
        return self.over_length(across, np.maximum(length, eps))

    def along(self, d: Array, unit: Array) -> Array:
        """The part of a gradient that would only make a vector longer."""
        return unit * (unit * d).sum(axis=-1, keepdims=True)

    def over_length(self, d: Array, length: Array) -> Array:
        """The gradient through the division, of what does not change the length."""
        return d / length

    def d_slopes(self, ds: Array) -> Array:
        """The gradient of the slopes, in which the bias is linear."""
        ones = np.ones(self.case.sizes["n"])
        each = self.linear_bias(self.distances()[:, None], ones)
        return self.over_batch((ds * each).sum(axis=(2, 3)))

    def d_table(self, ds: Array, dx: Array) -> Array:
        """The gradient of the table of biases, from that of the logits."""
        d = ds.transpose(0, 2, 3, 1)
        return self.to_rows(d, self.buckets(self.distances()), len(self.read("table")))

    def to_rows(self, d: Array, rows: Array, count: int) -> Array:
        """`b i j x -> r x`: a row has the sum of the pairs that take it."""
        total = np.zeros((len(d), count, d.shape[-1]))
        rows = np.broadcast_to(rows, d.shape[:3])
        np.add.at(total, (np.arange(len(d))[:, None, None], rows), d)
        return self.over_batch(total)

    def d_sinks(self, weight: Array, delta: Array) -> Array:
        """The gradient of the sinks: that of a logit whose value is 0."""
        return self.over_batch(-(weight * delta).sum(axis=(2, 3)))

    def d_weights_of_table(self, d_out: Array) -> Array:
        """What the table of values adds to the gradient of the weights."""
        d = np.einsum("bnie,bije->bnij", d_out, self.of_rows("value_table"))
        return d * self.keep()

    def d_query_of_table(self, dx: Array) -> Array:
        """What the table of keys adds to the gradient of the queries."""
        d = np.einsum("bnij,bijd->bnid", dx, self.of_rows("key_table"))
        return d * self.query_scale()

    def d_key_table(self, dx: Array, q: Array) -> Array:
        """The gradient of the table of keys."""
        d = np.einsum("bnij,bnid->bijd", self.stored(dx), q) * self.key_scale()
        return self.to_rows(d, self.table_rows(), len(self.read("key_table")))

    def d_value_table(self, p: Array, d_out: Array) -> Array:
        """The gradient of the table of values."""
        d = np.einsum("bnij,bnie->bije", self.stored_weights(p * self.keep()), d_out)
        return self.to_rows(d, self.table_rows(), len(self.read("value_table")))

    def d_additive(self, dx: Array, q: Array, k: Array) -> Arrays:
        """All gradients that go through w·tanh(W q + U k)."""
        features = self.features(q, k)
        d = dx[..., None] * self.by_head(self.input("w_s")) * self.bend_slope(features)
        d_query, d_key = d.sum(axis=3), d.sum(axis=2)
        dk = np.einsum("bnja,nda->bnjd", d_key, self.key_weight())
        dw_k = self.grouped_weight(np.einsum("bnjd,bnja->bnda", k, d_key))
        return {
            "dq": np.einsum("bnia,nda->bnid", d_query, self.query_weight()),
            "dk": self.grouped_key(dk),
            "dw_q": self.over_batch(np.einsum("bnid,bnia->bnda", q, d_query)),
            "dw_k": self.over_batch(dw_k),
            "dw_s": self.over_batch(np.einsum("bnij,bnija->bna", dx, features)),
        }

    def bend_slope(self, bent: Array) -> Array:
        """The derivative of the tanh, from its value."""
        return 1 - bent**2

    def grouped_weight(self, gradient: Array) -> Array:
        """The gradient of every key/value head's weight."""
        return self.grouped(gradient)

    # -------------------------------------------------------------------- precision

    @cached_property
    def storage(self) -> np.dtype:
        """The storage type; for wide ones the type that kernels save in: bfloat16."""
        storage = DTYPES[self.case.dtype]
        return storage if storage.itemsize == 2 else DTYPES["BF16"]

    def narrow(self, x: Array) -> Array:
        """Rounded to 16 bits."""
        return x.astype(self.storage).astype(np.float64)


def rounded(case: Case, results: Arrays) -> Arrays:
    """The results that the case wants, each in its own type."""
    return {
        name: array.astype(output_dtype(case, name))
        for name, array in results.items()
        if name in case.wants
    }


def narrow_sum(terms: Array, dtype: Any) -> Array:
    """Σ over the last axis, every partial sum rounded to `dtype`."""
    total = np.zeros(terms.shape[:-1])
    for term in np.moveaxis(terms, -1, 0):
        total = (total + term).astype(dtype).astype(np.float64)
    return total


def toward_zero(x: Array, dtype: np.dtype) -> Array:
    """Cut off to `dtype` instead of rounded."""
    nearest = x.astype(dtype)
    smaller = np.nextafter(nearest, dtype.type(0))
    wide = np.abs(nearest.astype(np.float64))
    return np.where(wide > np.abs(x), smaller, nearest).astype(np.float64)


def _blocks(length: int, tile: int) -> list[slice]:
    return [slice(at, min(at + tile, length)) for at in range(0, length, tile)]


def _highest(top: Array) -> Array:
    """Of all keys, where every key has one: `b n 1 1`."""
    return top.max(axis=-2, keepdims=True)


def _safe(row: Array) -> Array:
    """0 in place of −∞, so that −∞ − 0 = −∞."""
    return np.where(row == -np.inf, 0.0, row)

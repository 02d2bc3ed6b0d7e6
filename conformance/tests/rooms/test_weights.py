"""Weights travel: a library's own layer and the room agree, in both directions.

Both are judged against the definition on the same parameters, each element within the
budget that is derived for it.  With `ATTNREF_LIBRARIES=all`, as in `nox -s weights`, a
library that is missing is a failure.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from attncheck import assert_multi_head_attention
from attnref.spec import causal, weights
from attnref.spec.weights import LAYOUTS, dump, load

ROOT = Path(__file__).parents[3]
EVERY = os.environ.get("ATTNREF_LIBRARIES") == "all"

with pytest.MonkeyPatch.context() as patch:  # the folder is no package
    patch.syspath_prepend(ROOT / "conformance" / "porting")
    from carry import PROFILE, dumped, loaded
    from libraries import LIBRARIES


def pytest_generate_tests(metafunc):
    """The layers, and what is refused, that take the arrays of the rooms chosen."""
    rooms = metafunc.config.getoption("room")
    for argument, table in (("name", LIBRARIES), ("refusal", REFUSALS)):
        if argument in metafunc.fixturenames:
            names = [name for name, one in table.items() if one.room in rooms]
            why = pytest.mark.skip(
                reason=f"nothing here takes {' or '.join(rooms)} arrays"
            )
            metafunc.parametrize(argument, names or [pytest.param(None, marks=why)])


def here(package):
    """Skips where a package is missing that need not be here."""
    if find_spec(package) is None and not EVERY:
        pytest.skip(f"{package} is not installed here: nox -s weights")


@pytest.mark.parametrize("carry", [loaded, dumped])
def test_a_librarys_layer_and_the_room_do_the_same(name, carry):
    here(LIBRARIES[name].package)
    params, x, context, theirs, ours = carry(name)
    for got in (theirs, ours):
        assert_multi_head_attention(got, params, x, context, profile=PROFILE)


def test_every_layout_is_of_a_layer_that_is_run_but_one():
    run = {one.layout.name for one in LIBRARIES.values()}
    assert set(LAYOUTS) - run == {"llama-meta"}  # a file's, of which there is no layer


def test_the_evidence_is_of_these_layers_and_within_the_budget():
    found = json.loads((ROOT / "docs" / "evidence" / "weights.json").read_text("utf-8"))
    again = "run `nox -s weights`"
    assert found["profile"] == PROFILE, again
    said = {name: layer.pop("of") for name, layer in found["layers"].items()}
    assert said == {name: one.layout.of for name, one in LIBRARIES.items()}, again
    shares = [share for layer in found["layers"].values() for share in layer.values()]
    assert len(shares) == 4 * len(LIBRARIES)
    assert 0 < max(shares) <= 1


# ----------------------------------------------------------- what cannot be represented


class Refusal(NamedTuple):
    room: str
    package: str
    refused: Callable
    """Makes a layer of the library, and carries it over."""
    words: str


def of_torch(act, **options):
    """What is done with a layer of torch."""

    def refused():
        from torch.nn import MultiheadAttention

        act(MultiheadAttention(12, 3, **options))

    return refused


def loads_torch(layer):
    load(weights.TORCH, layer.state_dict(), heads=3)


def loads_two_contexts(layer):
    load(weights.TORCH_SEPARATE, layer.state_dict(), heads=3)


def checks_torch(layer):
    weights.check_module(weights.TORCH, layer)


def normalised_of_flax():
    from flax import nnx

    options = {"normalize_qk": True, "decode": False, "rngs": nnx.Rngs(0)}
    layer = nnx.MultiHeadAttention(3, 12, **options)
    load(weights.FLAX_NNX, LIBRARIES["flax-nnx self"].state(layer))


def gated_of_keras():
    os.environ["KERAS_BACKEND"] = "jax"
    import keras

    layer = keras.layers.MultiHeadAttention(3, 4, use_gate=True)
    layer.build((1, 1, 10), (1, 1, 10))
    load(weights.KERAS, LIBRARIES["keras self"].state(layer))


def scaled_of_gpt2():
    from transformers import GPT2Config
    from transformers.models.gpt2.modeling_gpt2 import GPT2Attention

    config = GPT2Config(n_embd=12, n_head=3, scale_attn_weights=False)
    weights.check_module(weights.GPT2, GPT2Attention(config))


REFUSALS = {
    "a learned key": Refusal(
        "torch",
        "torch",
        of_torch(loads_torch, add_bias_kv=True),
        "`bias_k`, which add_bias_kv=True appends",
    ),
    "a key of zeros": Refusal(
        "torch",
        "torch",
        of_torch(checks_torch, add_zero_attn=True),
        "`add_zero_attn` = True appends a key and a value of zeros",
    ),
    "two contexts": Refusal(
        "torch",
        "torch",
        of_torch(loads_two_contexts, kdim=7, vdim=9),
        "`w_v` must have context width m = 7 like `w_k`, but has 9",
    ),
    "normalised queries": Refusal(
        "jax", "flax", normalised_of_flax, "_ln/scale`, which normalize_qk=True has"
    ),
    "a gate": Refusal(
        "jax", "keras", gated_of_keras, "`gate/kernel`, which use_gate=True has"
    ),
    "another scale": Refusal(
        "torch",
        "transformers",
        scaled_of_gpt2,
        "`scale_attn_weights` = False has another",
    ),
}


def test_what_is_more_than_multi_head_attention_is_refused(refusal):
    one = REFUSALS[refusal]
    here(one.package)
    with pytest.raises(ValueError, match=one.words):
        one.refused()


def test_a_layer_of_torch_without_biases_has_none_in_the_parameters(room):
    only_torch(room)
    from torch.nn import MultiheadAttention

    state = MultiheadAttention(12, 3, bias=False).state_dict()
    params = load(weights.TORCH, state, heads=3)
    assert set(params) == {"w_q", "w_k", "w_v", "w_o"}
    assert dump(weights.TORCH, params).keys() == state.keys()


def only_torch(room):
    if room.name != "torch":
        pytest.skip("it takes torch arrays")


# ------------------------------------------------------------------------ rotary pairs


def scores_of_llama(q, k, cos, sin):
    """Scores of rotated halves; q and k are `b n i d`, the angles `1 i t`."""
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    twice = (angle.repeat(1, 1, 2) for angle in (cos, sin))
    q, k = apply_rotary_pos_emb(q, k, *twice)
    return q @ k.transpose(-1, -2)


def scores_of_gptj(q, k, cos, sin):
    """Scores of rotated neighbours."""
    from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb

    q, k = (apply_rotary_pos_emb(x.transpose(1, 2), sin, cos) for x in (q, k))
    return q.transpose(1, 2) @ k.permute(0, 2, 3, 1)


def test_moved_components_give_gptj_the_scores_that_llama_has(room):
    """Rotated, a component is a sum of two products, at most √2 times as large: with 6
    roundings of the two, and d of their sum, on either side."""
    only_torch(room)
    here("transformers")
    import torch

    b, i, c, n, d = 2, 7, 5, 3, 8
    shapes = {"w_q": (c, n, d), "w_k": (c, n, d), "b_q": (n, d), "b_k": (n, d)}
    rng = np.random.default_rng(0)
    params = {name: torch.from_numpy(rng.normal(size=s)) for name, s in shapes.items()}
    x = torch.from_numpy(rng.normal(size=(b, i, c)))
    angles = np.arange(i)[:, None] * 10000.0 ** (-np.arange(d // 2) / (d / 2))
    turns = [torch.from_numpy(f(angles))[None] for f in (np.cos, np.sin)]

    def heads(params):
        return [room.project(x, params[f"w_{y}"], params[f"b_{y}"]) for y in "qk"]

    want = scores_of_llama(*heads(params), *turns)
    found = scores_of_gptj(*heads(weights.paired(params, "interleaved")), *turns)
    q, k = (y.norm(dim=-1) for y in heads(params))
    size = q[..., :, None] * k[..., None, :]
    assert ((found - want).abs() <= 2 * (d + 6) * 2 * size * 2.0**-53).all()
    unmoved = scores_of_gptj(*heads(params), *turns)
    assert (unmoved - want).abs().max() > 0.1 * want.abs().max()


@pytest.mark.parametrize("pairing", ["halves", "interleaved"])
def test_llama_with_its_rotations_is_rotary_attention_in_either_pairing(room, pairing):
    only_torch(room)
    here("transformers")
    import torch

    from attnref.torch.variants import rotary_attention

    one, i = LIBRARIES["llama"], 7
    layer = one.make().double()
    layer.config._attn_implementation = "sdpa"  # the other takes softmax in float32
    rng = np.random.default_rng(1)
    state = {k: rng.normal(size=x.shape) / 2 for k, x in one.state(layer).items()}
    layer = one.fill(layer, {k: torch.from_numpy(x) for k, x in state.items()})
    params = load(weights.LLAMA, one.state(layer), **one.heads)
    x = torch.from_numpy(rng.normal(size=(2, i, one.sizes["c"])))
    d = one.sizes["d"]
    angles = np.arange(i)[:, None] * 10000.0 ** (-np.arange(d // 2) / (d / 2))
    turns = [torch.from_numpy(f(angles)).repeat(1, 2)[None] for f in (np.cos, np.sin)]
    with torch.no_grad():
        theirs = layer(x, position_embeddings=turns)[0]  # causal, by itself
    moved = weights.paired(params, pairing) if pairing == "interleaved" else params
    q, k, v = (room.project(x, moved[f"w_{y}"], moved[f"b_{y}"]) for y in "qkv")
    heads, _ = rotary_attention(q, k, v, pairing=pairing, mask=causal())
    ours = room.merge(heads, moved["w_o"], moved["b_o"])
    assert (np.abs((theirs - ours).numpy()) <= apart(params, x, i)).all()


def apart(params, x, i):
    """How far two computations in float64 may be apart, `c`.

    A logit passes 2c + d + 14 roundings, and angles that differ by 4 units at each of i
    positions; weights then differ by as much, relative, times twice the largest logit.
    A weighted sum is at most the largest value, and passes j + n·e more.
    """
    a = {name: np.abs(array.numpy()) for name, array in params.items()}
    x = np.abs(x.numpy())
    q, k, v = (
        np.einsum("bic,cnd->bnid", x, a[f"w_{y}"]) + a[f"b_{y}"][:, None] for y in "qkv"
    )
    c, n, d = a["w_q"].shape
    most = 2 * np.linalg.norm(q, axis=-1).max() * np.linalg.norm(k, axis=-1).max()
    deep = 2 * c + d + 14 + 8 * i
    roundings = 4 * deep * most * d**-0.5 + deep + 2 * i + n * d + 32
    heads = v.max(axis=(0, 2)).repeat(n // v.shape[1], axis=0)
    merged = np.einsum("ne,nec->c", heads, a["w_o"]) + a["b_o"]
    return 2 * roundings * 2.0**-53 * merged


# ------------------------------------------------------------------- the page about it

PAGE = (ROOT / "docs" / "weights.md").read_text("utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_pages_code_runs(room, tmp_path):
    blocks = [block for block in BLOCKS if f"from attnref.{room.name}" in block]
    assert blocks
    for block in blocks:
        if "from flax" in block:
            here("flax")
        ended = subprocess.run(
            [sys.executable, "-c", block],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert ended.returncode == 0, ended.stderr

"""Weights travel: a library's own layer and the room agree, in both directions.

Both are judged against the definition on the same parameters, each element within the
budget that is derived for it.  With `ATTNREF_LIBRARIES=all`, as in `nox -s weights`, a
library that is missing is a failure.
"""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from attncheck import assert_multi_head_attention
from attnref.spec import weights
from attnref.spec.weights import LAYOUTS, dump, load

ROOT = Path(__file__).parents[3]
EVERY = os.environ.get("ATTNREF_LIBRARIES") == "all"

with pytest.MonkeyPatch.context() as patch:  # the folder is no package
    patch.syspath_prepend(ROOT / "conformance" / "porting")
    from carry import PROFILE, dumped, loaded
    from libraries import LIBRARIES


@pytest.mark.parametrize("carry", [loaded, dumped])
@pytest.mark.parametrize("name", LIBRARIES)
def test_a_librarys_layer_and_the_room_do_the_same(room, name, carry):
    one = LIBRARIES[name]
    if one.room != room.name:
        pytest.skip(f"{one.layout.of} takes {one.room} arrays")
    if one.missing is not None and not EVERY:
        pytest.skip(one.missing)
    params, x, context, theirs, ours = carry(name)
    for got in (theirs, ours):
        assert_multi_head_attention(got, params, x, context, profile=PROFILE)


def test_every_layout_is_of_a_layer_that_is_run_but_one():
    run = {one.layout.name for one in LIBRARIES.values()}
    assert set(LAYOUTS) - run == {"llama-meta"}  # a file's, of which there is no layer


# ----------------------------------------------------------- what cannot be represented


def made(room, name, package, make):
    """A layer of a library, if it is here."""
    if room.name != name:
        pytest.skip(f"it takes {name} arrays")
    if not EVERY:
        pytest.importorskip(package, reason=f"{package} is not here: nox -s weights")
    return make()


def test_a_learned_key_of_torch_is_refused(room):
    def make():
        from torch.nn import MultiheadAttention

        return MultiheadAttention(12, 3, add_bias_kv=True)

    state = made(room, "torch", "torch", make).state_dict()
    with pytest.raises(ValueError, match="`bias_k`, which add_bias_kv=True appends"):
        load(weights.TORCH, state, heads=3)


def test_a_key_of_zeros_of_torch_is_refused(room):
    def make():
        from torch.nn import MultiheadAttention

        return MultiheadAttention(12, 3, add_zero_attn=True)

    with pytest.raises(ValueError, match="`add_zero_attn` = True appends a key and a"):
        weights.check_module(weights.TORCH, made(room, "torch", "torch", make))


def test_keys_and_values_of_two_contexts_are_refused(room):
    def make():
        from torch.nn import MultiheadAttention

        return MultiheadAttention(12, 3, kdim=7, vdim=9)

    state = made(room, "torch", "torch", make).state_dict()
    with pytest.raises(ValueError, match="`w_v` must have context width m = 7 like"):
        load(weights.TORCH_SEPARATE, state, heads=3)


def test_a_layer_of_torch_without_biases_has_none_in_the_parameters(room):
    def make():
        from torch.nn import MultiheadAttention

        return MultiheadAttention(12, 3, bias=False)

    state = made(room, "torch", "torch", make).state_dict()
    params = load(weights.TORCH, state, heads=3)
    assert set(params) == {"w_q", "w_k", "w_v", "w_o"}
    assert dump(weights.TORCH, params).keys() == state.keys()


def test_normalised_queries_of_flax_are_refused(room):
    def make():
        from flax import nnx

        options = {"normalize_qk": True, "decode": False, "rngs": nnx.Rngs(0)}
        return nnx.MultiHeadAttention(3, 12, **options)

    state = LIBRARIES["flax-nnx self"].state(made(room, "jax", "flax", make))
    with pytest.raises(ValueError, match=r"_ln/scale`, which normalize_qk=True has"):
        load(weights.FLAX_NNX, state)


def test_a_gated_layer_of_keras_is_refused(room):
    def make():
        os.environ["KERAS_BACKEND"] = "jax"
        import keras

        layer = keras.layers.MultiHeadAttention(3, 4, use_gate=True)
        layer.build((1, 1, 10), (1, 1, 10))
        return layer

    state = LIBRARIES["keras self"].state(made(room, "jax", "keras", make))
    with pytest.raises(ValueError, match="`gate/kernel`, which use_gate=True has"):
        load(weights.KERAS, state)


def test_another_scale_of_gpt2_is_refused(room):
    def make():
        from transformers import GPT2Config
        from transformers.models.gpt2.modeling_gpt2 import GPT2Attention

        return GPT2Attention(GPT2Config(n_embd=12, n_head=3, scale_attn_weights=False))

    layer = made(room, "torch", "transformers", make)
    with pytest.raises(ValueError, match="`scale_attn_weights` = False has another"):
        weights.check_module(weights.GPT2, layer)


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
    if room.name != "torch":
        pytest.skip("both take torch arrays")
    if not EVERY:
        pytest.importorskip("transformers", reason="not installed here")
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


# ------------------------------------------------------------------- the page about it

PAGE = (ROOT / "docs" / "weights.md").read_text("utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_pages_code_runs(room, tmp_path):
    blocks = [block for block in BLOCKS if f"from attnref.{room.name}" in block]
    assert blocks
    for block in blocks:
        if "from flax" in block and find_spec("flax") is None and not EVERY:
            pytest.skip("flax is not installed here: nox -s weights")
        ended = subprocess.run(
            [sys.executable, "-c", block],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert ended.returncode == 0, ended.stderr

"""Weights taken out of linear layers do what the layers did."""

import numpy as np
import pytest

from attnref.spec import patterns, weights

HEADS, D, C = 2, 3, 5
"""Head count, head width and model width, all different."""

PREFIX = "encoder.layer.0.attention"


def integers(seed, *shape):
    """Small integers as float64: sums of their products are exact in any order."""
    return np.random.default_rng(seed).integers(-9, 10, shape).astype(np.float64)


def bert_state():
    """What a state dict holds of one layer's attention: `(out, in)` and `(out,)`."""
    wide = HEADS * D
    layers = {
        "self.query": (wide, C),
        "self.key": (wide, C),
        "self.value": (wide, C),
        "output.dense": (C, wide),
    }
    state = {}
    for seed, (name, shape) in enumerate(layers.items()):
        state[f"{PREFIX}.{name}.weight"] = integers(seed, *shape)
        state[f"{PREFIX}.{name}.bias"] = integers(10 + seed, shape[0])
    return state


def linear(state, name, x):
    return x @ state[f"{PREFIX}.{name}.weight"].T + state[f"{PREFIX}.{name}.bias"]


@pytest.mark.parametrize(
    ("letter", "name"), [("q", "self.query"), ("k", "self.key"), ("v", "self.value")]
)
def test_heads_are_consecutive_slices_of_the_layers_output(letter, name):
    state, x = bert_state(), integers(20, 2, 7, C)
    params = weights.bert(state, PREFIX, heads=HEADS)
    w, b = params[f"w_{letter}"], params[f"b_{letter}"]
    heads = np.einsum(patterns.PROJECT, x, w) + b[:, None, :]
    whole = linear(state, name, x)
    for n in range(HEADS):
        np.testing.assert_array_equal(heads[:, n], whole[..., n * D : (n + 1) * D])


def test_merging_heads_is_the_output_layer_on_their_concatenation():
    state, heads = bert_state(), integers(21, 2, HEADS, 7, D)
    params = weights.bert(state, PREFIX, heads=HEADS)
    merged = np.einsum(patterns.MERGE, heads, params["w_o"]) + params["b_o"]
    concatenated = np.concatenate([heads[:, n] for n in range(HEADS)], axis=-1)
    want = linear(state, "output.dense", concatenated)
    np.testing.assert_array_equal(merged, want)


def test_by_hand():
    """Model width 1, two heads of width 2: row r of the weight is head r // 2."""
    state = {"weight": np.array([[1.0], [2.0], [3.0], [4.0]])}
    (w_q,) = weights.from_linear(state, {"w_q": "weight"}, heads=2).values()
    np.testing.assert_array_equal(w_q, [[[1.0, 2.0], [3.0, 4.0]]])


def test_key_value_heads_may_be_fewer_and_biases_absent():
    state = {"q": integers(0, 8, C), "k": integers(1, 4, C), "o": integers(2, C, 12)}
    names = {"w_q": "q", "w_k": "k", "w_o": "o"}
    params = weights.from_linear(state, names, heads=4, kv_heads=2)
    shapes = {name: array.shape for name, array in params.items()}
    assert shapes == {"w_q": (C, 4, 2), "w_k": (C, 2, 2), "w_o": (4, 3, C)}
    np.testing.assert_array_equal(params["w_k"][:, 1], state["k"][2:].T)


def test_every_parameter_has_a_pattern_and_a_name():
    params = {f"{kind}_{letter}" for kind in "wb" for letter in "qkvo"}
    assert set(weights.LINEAR) == set(weights.BERT) == params


def test_a_missing_entry_is_named():
    state = bert_state()
    del state[f"{PREFIX}.self.key.bias"]
    with pytest.raises(ValueError, match=rf"no `{PREFIX}\.self\.key\.bias`"):
        weights.bert(state, PREFIX, heads=HEADS)


@pytest.mark.parametrize("heads", [4, 0, -2])
def test_a_width_that_does_not_split_is_named_with_the_heads(heads):
    with pytest.raises(ValueError, match=rf"query\.weight.*n = {heads} heads.* 6$"):
        weights.bert(bert_state(), PREFIX, heads=heads)


def test_key_value_heads_are_named_by_their_own_letter():
    with pytest.raises(ValueError, match=r"`k` .*h = 3 heads.* 4$"):
        weights.from_linear({"k": integers(0, 4, C)}, {"w_k": "k"}, heads=6, kv_heads=3)


def test_an_array_of_other_rank_is_named_with_its_shape():
    with pytest.raises(ValueError, match=r"`q` must have axes \(n d\) c.*\(6,\)"):
        weights.from_linear({"q": integers(0, 6)}, {"w_q": "q"}, heads=2)

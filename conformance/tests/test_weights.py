"""Weights taken out of a library's arrays do what its layers did, and go back."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from attnref.spec import patterns, weights
from attnref.spec.weights import LAYOUTS, PARAMETERS, dump, load

HEADS, D, C = 2, 3, 6
"""Head count, head width and model width."""

PREFIX = "encoder.layer.0.attention."


def integers(seed, *shape):
    """Small integers as float64: sums of their products are exact in any order."""
    return np.random.default_rng(seed).integers(-9, 10, shape).astype(np.float64)


def parameters(names=PARAMETERS, **sizes):
    """Parameters of some sizes, all of them different numbers."""
    return {
        name: integers(place, *(sizes[axis] for axis in PARAMETERS[name].split()))
        for place, name in enumerate(names)
    }


def bert_state():
    """What a state dict holds of one layer's attention: `(out, in)` and `(out,)`."""
    wide = HEADS * D
    layers = {
        "self.query": (wide, C),
        "self.key": (wide, C),
        "self.value": (wide, C),
        "output.dense": (C, wide),
    }
    state = {"embeddings.word_embeddings.weight": integers(30, 9, C)}
    state[f"{PREFIX}output.LayerNorm.weight"] = integers(31, C)
    for seed, (name, shape) in enumerate(layers.items()):
        state[f"{PREFIX}{name}.weight"] = integers(seed, *shape)
        state[f"{PREFIX}{name}.bias"] = integers(10 + seed, shape[0])
    return state


def bert(state, heads=HEADS):
    return load(weights.BERT, state, heads=heads, prefix=PREFIX)


def linear(state, name, x):
    return x @ state[f"{PREFIX}{name}.weight"].T + state[f"{PREFIX}{name}.bias"]


# ------------------------------------------------------------------------ what is taken


@pytest.mark.parametrize(
    ("letter", "name"), [("q", "self.query"), ("k", "self.key"), ("v", "self.value")]
)
def test_heads_are_consecutive_slices_of_the_layers_output(letter, name):
    state, x = bert_state(), integers(20, 2, 7, C)
    params = bert(state)
    w, b = params[f"w_{letter}"], params[f"b_{letter}"]
    heads = np.einsum(patterns.PROJECT, x, w) + b[:, None, :]
    whole = linear(state, name, x)
    for n in range(HEADS):
        np.testing.assert_array_equal(heads[:, n], whole[..., n * D : (n + 1) * D])


def test_merging_heads_is_the_output_layer_on_their_concatenation():
    state, heads = bert_state(), integers(21, 2, HEADS, 7, D)
    params = bert(state)
    merged = np.einsum(patterns.MERGE, heads, params["w_o"]) + params["b_o"]
    concatenated = np.concatenate([heads[:, n] for n in range(HEADS)], axis=-1)
    want = linear(state, "output.dense", concatenated)
    np.testing.assert_array_equal(merged, want)


def test_by_hand():
    """Model width 4, two heads of width 2: row r of a block of three is head r // 2."""
    packed = np.arange(48.0).reshape(12, 4)
    state = {"in_proj_weight": packed, "out_proj.weight": packed[:4]}
    params = load(weights.TORCH, state, heads=2)
    for block, name in enumerate(("w_q", "w_k", "w_v")):
        for n, d in np.ndindex(2, 2):
            row = packed[4 * block + 2 * n + d]
            np.testing.assert_array_equal(params[name][:, n, d], row)
    for n, e in np.ndindex(2, 2):
        np.testing.assert_array_equal(params["w_o"][n, e], packed[:4, 2 * n + e])


def test_key_value_heads_may_be_fewer_and_biases_absent():
    state = {
        "q_proj.weight": integers(0, 8, C),
        "k_proj.weight": integers(1, 4, C),
        "v_proj.weight": integers(2, 4, C),
        "o_proj.weight": integers(3, C, 8),
    }
    params = load(weights.LLAMA, state, heads=4, kv_heads=2)
    shapes = {name: array.shape for name, array in params.items()}
    assert shapes == {
        "w_q": (C, 4, 2),
        "w_k": (C, 2, 2),
        "w_v": (C, 2, 2),
        "w_o": (4, 2, C),
    }
    np.testing.assert_array_equal(params["w_k"][:, 1], state["k_proj.weight"][2:].T)


def test_grouped_heads_may_be_packed():
    """Side by side, all query heads before all key heads before all value heads."""
    params = parameters(c=5, m=5, n=4, h=2, d=3, e=3)
    entries = weights.GPT2.entries
    packed = weights.Layout("packed", "a model of one's own", entries)
    state = dump(packed, params)
    assert state["c_attn.weight"].shape == (5, (4 + 2 + 2) * 3)
    assert_same(load(packed, state, heads=4, kv_heads=2), params)


# ----------------------------------------------------------------------- there and back


def assert_same(found, want):
    assert list(found) == [name for name in PARAMETERS if name in want]
    for name, array in want.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


SIZES = st.integers(1, 4)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@settings(max_examples=20, deadline=None, derandomize=True, database=None)
@given(h=SIZES, g=SIZES, d=SIZES, e=SIZES, c=SIZES, m=SIZES, biases=st.booleans())
def test_what_is_dumped_is_loaded_again(layout, h, g, d, e, c, m, biases):
    g = 1 if "n = h" in layout.equal else g
    n, e = h * g, d if "d = e" in layout.equal else e
    c = n * d if "c = n d" in layout.equal else c
    m = c if "c = m" in layout.equal else m
    optional = {name for group in layout.optional for name in group.split()}
    names = [p for p in layout.entries if biases or p not in optional]
    params = parameters(names, c=c, m=m, n=n, h=h, d=d, e=e)
    state = dump(layout, params, prefix="layers.3.attention.")
    beside = {"layers.30.attention.bias_k": integers(0, 1)}
    given = {"heads": n, "kv_heads": h, "width": d, "prefix": "layers.3.attention."}
    assert_same(load(layout, state | beside, **given), params)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_a_safetensors_file_keeps_it(layout, tmp_path):
    params = parameters(layout.entries, c=6, m=6, n=2, h=2, d=3, e=3)
    state = dump(layout, params)
    file = tmp_path / "model.safetensors"
    save_file({k: np.ascontiguousarray(x) for k, x in state.items()}, file)
    assert_same(load(layout, load_file(file), heads=2), params)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_a_layout_holds_as_many_numbers_as_the_parameters(layout):
    params = parameters(layout.entries, c=6, m=6, n=2, h=2, d=3, e=3)
    state = dump(layout, params)
    want = np.sort(np.concatenate([x.ravel() for x in params.values()]))
    found = np.sort(np.concatenate([x.ravel() for x in state.values()]))
    np.testing.assert_array_equal(found, want)


def test_none_is_a_bias_that_there_is_not():
    params = parameters(["w_q", "w_k", "w_v", "w_o"], c=6, m=6, n=2, h=2, d=3, e=3)
    state = dump(weights.TORCH, params | dict.fromkeys(["b_q", "b_k", "b_v", "b_o"]))
    assert set(state) == {"in_proj_weight", "out_proj.weight"}


def test_the_size_of_packed_values_of_another_width_is_found_from_that_of_queries():
    params = parameters(c=6, m=6, n=2, h=2, d=3, e=5)
    state = dump(weights.ONNX_ATTENTION, params)
    assert state["weights"].shape == (6, 22)
    assert_same(load(weights.ONNX_ATTENTION, state, heads=2, width=3), params)


# ------------------------------------------------------------------------ rotary pairs


def turned(x, pairs, angle):
    """Components of each pair turned by its angle."""
    out = x.copy()
    for t, (first, second) in enumerate(pairs):
        cos, sin = np.cos(angle * (t + 1)), np.sin(angle * (t + 1))
        out[..., first] = cos * x[..., first] - sin * x[..., second]
        out[..., second] = sin * x[..., first] + cos * x[..., second]
    return out


@pytest.mark.parametrize("width", [None, 6, 2])
def test_turning_halves_is_turning_interleaved_pairs_of_permuted_components(width):
    d, x = 8, np.random.default_rng(0).normal(size=(5, 8))
    half = (d if width is None else width) // 2
    halves = turned(x, [(t, t + half) for t in range(half)], 0.3)
    order = list(weights.rotary_permutation(d, width))
    pairs = [(2 * t, 2 * t + 1) for t in range(half)]
    np.testing.assert_array_equal(turned(x[:, order], pairs, 0.3), halves[:, order])


@pytest.mark.parametrize("width", [None, 6, 2])
def test_parameters_are_paired_by_that_order_and_back(width):
    params = parameters(c=5, m=7, n=4, h=2, d=8, e=3)
    order = list(weights.rotary_permutation(8, width))
    found = weights.paired(params, "interleaved", width=width)
    for name, array in params.items():
        moved = array[..., order] if name in ("w_q", "w_k", "b_q", "b_k") else array
        np.testing.assert_array_equal(found[name], moved, err_msg=name)
    assert_same(weights.paired(found, "halves", width=width), params)


@pytest.mark.parametrize("width", [0, 3, 10])
def test_a_width_that_cannot_be_rotated_is_named(width):
    with pytest.raises(ValueError, match=f"`width` .* d = 8, but is {width}$"):
        weights.rotary_permutation(8, width)


def test_an_unknown_pairing_is_named():
    with pytest.raises(ValueError, match="`pairing` must be interleaved or halves"):
        weights.paired({}, "neox")


# ------------------------------------------------------------------------------- errors


def test_a_missing_entry_is_named():
    state = bert_state()
    del state[f"{PREFIX}self.key.bias"]
    with pytest.raises(ValueError, match=rf"no `{PREFIX}self\.key\.bias`"):
        bert(state)


@pytest.mark.parametrize("heads", [4, 5])
def test_a_width_that_does_not_split_is_named_with_the_heads(heads):
    with pytest.raises(ValueError, match=rf"query\.weight.*n = {heads} heads.* 6$"):
        bert(bert_state(), heads=heads)


@pytest.mark.parametrize("heads", [0, -2])
def test_there_is_a_head(heads):
    with pytest.raises(ValueError, match=f"n ≥ 1 .*{heads}$"):
        bert(bert_state(), heads=heads)


def test_the_number_of_heads_must_be_given_where_the_arrays_do_not_show_it():
    with pytest.raises(ValueError, match=r"query\.weight` does not show .*`heads`"):
        bert(bert_state(), heads=None)


STATES = {
    name: dump(layout, parameters(layout.entries, c=6, m=6, n=2, h=2, d=3, e=3))
    for name, layout in LAYOUTS.items()
}


@pytest.mark.parametrize(
    ("name", "changed", "heads", "words"),
    [
        (
            "torch",
            {"bias_k": integers(0, 1, 1, 6)},
            2,
            "bias_k`, which add_bias_kv=True",
        ),
        ("flax-nnx", {"query_ln/scale": integers(0, 3)}, 2, "normalize_qk=True"),
        ("keras", {"gate/kernel": integers(0, 6, 2, 3)}, 2, "use_gate=True"),
        ("llama", {"q_norm.weight": integers(0, 3)}, 2, "no part of layout `llama`"),
        (
            "torch",
            {"in_proj_bias": None},
            2,
            "no `in_proj_bias` beside `out_proj.bias`",
        ),
        ("llama", {"k_proj.bias": None}, 2, "no `k_proj.bias` beside `q_proj.bias`"),
        (
            "flax-linen",
            {},
            3,
            "n = 3 query heads were asked for, but the arrays have 2",
        ),
        ("torch", {}, 4, r"\(n d\) \+ \(h d\) \+ \(h e\) that n = 4, h = 4 .* 18$"),
        ("bert", {"self.query.weight": integers(0, 6)}, 2, r"axes \(n d\) c.*\(6,\)"),
        (
            "torch-separate",
            {"k_proj_weight": integers(0, 6, 4), "v_proj_weight": integers(0, 6, 5)},
            2,
            "`w_v` must have context width m = 4 like `w_k`, but has 5",
        ),
        (
            "llama",
            {"k_proj.weight": integers(0, 8, 6)},
            2,
            "`w_k` must have query/key width d = 3 like `w_q`, but has 4",
        ),
        (
            "bert",
            {"output.dense.weight": integers(0, 4, 6)},
            2,
            "`w_o` must have model width c = 6 like `w_q`, but has 4",
        ),
    ],
)
def test_what_is_no_multi_head_attention_says_why(name, changed, heads, words):
    state = {k: x for k, x in (STATES[name] | changed).items() if x is not None}
    with pytest.raises(ValueError, match=words):
        load(LAYOUTS[name], state, heads=heads)


def test_a_layer_of_the_same_prefix_is_not_taken_for_its_own():
    state = {**STATES["torch"], "norm.weight": integers(0, 6)}
    with pytest.raises(ValueError, match=r"`norm.weight`, which is no part .*`prefix`"):
        load(weights.TORCH, state, heads=2)


@pytest.mark.parametrize(
    ("name", "sizes", "words"),
    [
        ("torch", {"n": 4, "d": 3, "c": 12, "m": 12}, "n = h only, .* n = 4, h = 2$"),
        ("torch", {"e": 5}, "d = e only, .* d = 3, e = 5$"),
        ("torch", {"m": 7}, "c = m only, .* c = 6, m = 7$"),
        ("torch-separate", {"c": 7}, "c = n d only, .* n = 2, d = 3, c = 7$"),
        ("keras", {"n": 4}, "n = h only"),
        ("keras-grouped", {"e": 5}, "d = e only"),
        ("flax-nnx", {"n": 3}, "n = 3 must be a multiple of key/value heads h = 2"),
    ],
)
def test_sizes_that_a_library_cannot_have_are_named(name, sizes, words):
    usual = {"c": 6, "m": 6, "n": 2, "h": 2, "d": 3, "e": 3}
    layout = LAYOUTS[name]
    with pytest.raises(ValueError, match=words):
        dump(layout, parameters(layout.entries, **usual | sizes))


def test_a_parameter_without_a_place_or_missing_is_named():
    params = parameters(c=6, m=6, n=2, h=2, d=3, e=3)
    with pytest.raises(ValueError, match="`llama-meta` has no place for `b_q`"):
        dump(weights.LLAMA_META, params)
    del params["b_k"]
    with pytest.raises(ValueError, match="no `b_k` beside `b_q`"):
        dump(weights.TORCH, params)
    with pytest.raises(ValueError, match="no `w_q` of layout `torch`"):
        dump(weights.TORCH, {})


def test_a_setting_that_no_array_shows_is_refused_by_the_module():
    weights.check_module(weights.TORCH, SimpleNamespace(add_zero_attn=False))
    with pytest.raises(ValueError, match=r"Attention with `add_zero_attn` = True app"):
        weights.check_module(weights.TORCH, SimpleNamespace(add_zero_attn=True))
    scaled = SimpleNamespace(scale_attn_weights=False)
    with pytest.raises(ValueError, match=r"`scale_attn_weights` = False .*`scale`"):
        weights.check_module(weights.GPT2, scaled)


def test_parameters_of_one_array_cannot_be_missing_apart():
    entries = weights.TORCH.entries
    with pytest.raises(ValueError, match="`in_proj_bias` holds b_q, b_k, b_v, which"):
        weights.Layout("mine", "a model", entries, optional=("b_q", "b_k", "b_v"))


def test_layouts_are_well_formed():
    for layout in LAYOUTS.values():
        assert set(layout.entries) >= {"w_q", "w_k", "w_v", "w_o"}, layout.name
        for parts in layout.arrays.values():
            assert len({axes.count("(") for axes in parts.values()}) == 1
            assert len(parts) == 1 or all("(" in axes for axes in parts.values())
        grouped = " ".join(layout.optional).split()
        assert len(set(grouped)) == len(grouped)
        assert set(grouped) <= set(layout.entries)

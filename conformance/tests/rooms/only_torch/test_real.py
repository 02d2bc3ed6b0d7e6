"""The encoder, with a room's attention in every layer, is the model of transformers."""

import numpy as np
import pytest

from attncheck import minilm

pytestmark = pytest.mark.skipif(
    minilm.available() is not None, reason=str(minilm.available())
)


@pytest.fixture(scope="module")
def expected():
    """The embeddings by transformers' tokenizer and BertModel, in float32."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    source = {
        "pretrained_model_name_or_path": minilm.folder(),
        "local_files_only": True,
    }
    model = AutoModel.from_pretrained(
        **source, attn_implementation="eager", dtype=torch.float32
    ).eval()
    tokenizer = AutoTokenizer.from_pretrained(**source)
    tokens = tokenizer(list(minilm.SENTENCES), padding=True, return_tensors="pt")
    with torch.no_grad():
        hidden = model(**tokens).last_hidden_state
    real = tokens["attention_mask"][..., None]
    mean = (hidden * real).sum(1) / real.sum(1)
    return torch.nn.functional.normalize(mean, dim=-1).numpy()


def plain(params, x, mask):
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


def allowed(expected):
    """What rounding explains, and never more than 1e-5 of the largest entry."""
    return min(minilm.rounding(expected.size), 1e-5 * np.abs(expected).max())


def test_the_encoder_is_that_of_transformers(expected):
    error = np.abs(minilm.embed(plain) - expected).max()
    assert error <= allowed(expected)


def test_with_the_rooms_attention_too(room, expected):
    def attention_layer(params, x, mask):
        arrays = {name: room.array(array) for name, array in params.items()}
        params = room.MultiHeadParams(**arrays)
        x, mask = room.array(x), room.array(mask)
        return room.numpy(room.multi_head_attention(params, x, mask=mask))

    error = np.abs(minilm.embed(attention_layer) - expected).max()
    assert error <= allowed(expected)

"""Variants are what transformers computes, from its own code and with its names.

Both sides are in float32, and may differ by `UNITS` of its rounding, for sizes as small
as those that it is derived for.
"""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from attnref.spec import alibi_slopes, causal, t5_bucket
from attnref.torch import variants

from ..variant_calls import UNITS

B, H, G, L, D = 2, 3, 2, 7, 8
N = H * G
ALLOWED = UNITS * 2.0**-24


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def drawn(h=H):
    return normal(B, N, L, D), normal(B, h, L, D, seed=1), normal(B, h, L, D, seed=2)


def assert_near(got, want):
    assert got.shape == want.shape
    assert (got - want).abs().max() <= ALLOWED * max(1, want.abs().max())


def of_logits(logits, v):
    """Causal attention from logits, by torch alone."""
    future = torch.ones(L, L, dtype=torch.bool).triu(1)
    return torch.softmax(logits.masked_fill(future, -torch.inf), -1) @ v


def t5(buckets, farthest, *, decoder):
    from transformers.models.t5.modeling_t5 import T5Attention, T5Config

    config = T5Config(
        d_model=N * D,
        d_kv=D,
        num_heads=N,
        is_decoder=decoder,
        relative_attention_num_buckets=buckets,
        relative_attention_max_distance=farthest,
    )
    return T5Attention(config, has_relative_attention_bias=True, layer_idx=0)


@pytest.mark.parametrize("bidirectional", [True, False])
def test_every_t5_distance_has_transformers_bucket(bidirectional):
    every = torch.arange(-1000, 1001)
    layer = t5(32, 128, decoder=not bidirectional)
    want = layer._relative_position_bucket(every, bidirectional, 32, 128)
    got = [t5_bucket(x, 32, 128, bidirectional) for x in range(-1000, 1001)]
    assert got == want.tolist()
    assert t5_bucket(every, 32, 128, bidirectional).tolist() == got


@pytest.mark.parametrize("decoder", [True, False])
def test_t5s_bias_is_transformers(decoder):
    layer = t5(8, 5, decoder=decoder)
    q, k, v = drawn(N)
    with torch.no_grad():
        logits = q @ k.mT + layer.compute_bias(L, L)
    table = layer.relative_attention_bias.weight.detach()
    options = {"bidirectional": not decoder, "max_distance": 5, "scale": 1.0}
    got, _ = variants.t5_attention(q, k, v, table=table, mask=causal(), **options)
    assert_near(got, of_logits(logits, v))


@pytest.mark.parametrize("n", range(1, 65))
def test_alibis_slopes_are_blooms(n):
    """Powers in float32 of a rounded base: as many units as there are factors."""
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    alibi = build_alibi_tensor(torch.ones(1, 2, dtype=torch.long), n, torch.float32)
    np.testing.assert_allclose(alibi_slopes(n), alibi[:, 0, 1], rtol=(n + 2) * 2**-23)


def test_alibi_is_blooms():
    """Which adds m·j alone: under a causal mask that is −m·(i − j), but for a shift."""
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    q, k, v = drawn(N)
    ones = torch.ones(B, L, dtype=torch.long)
    bias = build_alibi_tensor(ones, N, torch.float32).view(B, N, 1, L)
    got, _ = variants.alibi_attention(q, k, v, mask=causal())
    assert_near(got, of_logits(q @ k.mT / math.sqrt(D) + bias, v))


@pytest.mark.parametrize("start", [0, 1000])
def test_halves_turn_as_llamas_do(start):
    from transformers.models.llama import modeling_llama

    config = modeling_llama.LlamaConfig(
        hidden_size=N * D, num_attention_heads=N, max_position_embeddings=2048
    )
    positions = torch.arange(start, start + L)
    q, k, _ = drawn()
    rotary = modeling_llama.LlamaRotaryEmbedding(config)
    cos_sin = rotary(q, positions[None].expand(B, L))
    for x, want in zip(
        (q, k), modeling_llama.apply_rotary_pos_emb(q, k, *cos_sin), strict=True
    ):
        got = variants.rotate(x, positions, pairing="halves")
        # Of an angle, θ is rounded and the product is, on either side.
        allowed = ALLOWED + 4 * 2.0**-24 * (start + L) * x.abs().max()
        assert (got - want).abs().max() <= allowed


@pytest.mark.parametrize("width", [4, D])
def test_interleaved_pairs_turn_as_gpt_js_do(width):
    from transformers.models.gptj import modeling_gptj

    positions = torch.arange(100, 100 + L)
    x, _, _ = drawn()
    table = modeling_gptj.create_sinusoidal_positions(128, width)[positions]
    sin, cos = (t[None] for t in table.chunk(2, dim=-1))
    turned = x.transpose(1, 2)[..., :width]
    turned = modeling_gptj.apply_rotary_pos_emb(turned, sin, cos).transpose(1, 2)
    want = torch.cat([turned, x[..., width:]], dim=-1)
    got = variants.rotate(x, positions, width=width, pairing="interleaved")
    allowed = ALLOWED + 4 * 2.0**-24 * 107 * x.abs().max()
    assert (got - want).abs().max() <= allowed


def test_sinks_are_gpt_osss():
    from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward

    q, k, v = drawn()
    sinks = normal(N, seed=3)
    module = SimpleNamespace(num_key_value_groups=G, sinks=sinks, training=False)
    bias = torch.full((L, L), -torch.inf).triu(1)[None, None]
    want, _ = eager_attention_forward(module, q, k, v, bias, D**-0.5)
    got, _ = variants.sink_attention(q, k, v, sinks=sinks, mask=causal())
    assert_near(got, want.transpose(1, 2))


def test_cosines_are_swin_v2s():
    """Whose position bias, of weights 0, is the same for all and cancels."""
    from transformers.models.swinv2.modeling_swinv2 import (
        Swinv2Config,
        Swinv2SelfAttention,
    )

    width = N * D
    layer = Swinv2SelfAttention(Swinv2Config(), width, N, window_size=2).eval()
    temperature = normal(N, seed=4).exp()
    with torch.no_grad():
        layer.logit_scale.copy_(temperature.log().view(N, 1, 1))
        for parameter in layer.continuous_position_bias_mlp.parameters():
            parameter.zero_()
        x = normal(B, 4, width)
        q, k, v = (
            part(x).view(B, 4, N, D).transpose(1, 2)
            for part in (layer.query, layer.key, layer.value)
        )
        want = layer(x)[0].view(B, 4, N, D).transpose(1, 2)
        got, _ = variants.cosine_attention(q, k, v, temperature=temperature)
    assert_near(got, want)


@pytest.mark.parametrize("absorbed", [False, True])
def test_latent_attention_is_deepseek_v2s(absorbed):
    """Without its normalisation of what is compressed, which we have not."""
    from transformers.models.deepseek_v2 import modeling_deepseek_v2 as deepseek

    c, r, p, e = 24, 6, 4, 3  # whose strides must be even
    config = deepseek.DeepseekV2Config(
        hidden_size=c,
        num_attention_heads=N,
        num_key_value_heads=N,
        q_lora_rank=None,
        kv_lora_rank=r,
        qk_nope_head_dim=D,
        qk_rope_head_dim=p,
        head_dim=p,
        v_head_dim=e,
        attn_implementation="eager",
    )
    layer = deepseek.DeepseekV2Attention(config, layer_idx=0).eval()
    layer.kv_a_layernorm = torch.nn.Identity()
    x = normal(B, L, c)
    positions = torch.arange(L)[None].expand(B, L)
    bias = torch.full((L, L), -torch.inf).triu(1)[None, None]
    with torch.no_grad():
        angles = deepseek.DeepseekV2RotaryEmbedding(config)(x, positions)
        want, _ = layer(x, attention_mask=bias, position_embeddings=angles)
    w_q = layer.q_proj.weight.T.view(c, N, D + p)
    w_kv = layer.kv_b_proj.weight.T.view(r, N, D + e)
    w_c = layer.kv_a_proj_with_mqa.weight.T
    params = variants.LatentParams(
        w_q=w_q[..., :D],
        w_qr=w_q[..., D:],
        w_kr=w_c[:, r:],
        w_c=w_c[:, :r],
        w_k=w_kv[..., :D],
        w_v=w_kv[..., D:],
        w_o=layer.o_proj.weight.T.view(N, e, c),
    )
    got = variants.latent_attention(
        params, x, pairing="interleaved", mask=causal(), absorbed=absorbed
    )
    assert_near(got.detach(), want)

"""The layouts of libraries and models, each written down once.

Names of nested states are joined: with dots in the PyTorch world, with slashes in that
of JAX.  A layout of one's own is `Layout(name, of, entries)`, with the axes of `LINEAR`
or `MATMUL` for layers that know no heads.
"""

from collections.abc import Mapping
from types import MappingProxyType

from attnref.spec.weights.layout import PARAMETERS, Entry, Layout

Axes = Mapping[str, str]

_BIASES: Axes = {"b_q": "(n d)", "b_k": "(h d)", "b_v": "(h e)", "b_o": "c"}

LINEAR: Axes = MappingProxyType(
    {"w_q": "(n d) c", "w_k": "(h d) m", "w_v": "(h e) m", "w_o": "c (n e)", **_BIASES}
)
"""Parameter → its axes in linear layers x Wᵀ + b, with weights `(out, in)`."""

MATMUL: Axes = MappingProxyType(
    {"w_q": "c (n d)", "w_k": "m (h d)", "w_v": "m (h e)", "w_o": "(n e) c", **_BIASES}
)
"""Parameter → its axes in products x W + b, with weights `(in, out)`."""


def _entries(axes: Axes, weights: str, biases: str = "") -> Mapping[str, Entry]:
    """The entries with the names of four weights, and of four biases, in order."""
    names = dict(zip(PARAMETERS, (weights + " " + biases).split(), strict=False))
    return MappingProxyType({p: Entry(name, axes[p]) for p, name in names.items()})


def _layers(axes: Axes, layers: str, weight: str, bias: str) -> Mapping[str, Entry]:
    """The entries of four layers, each with a weight and a bias."""
    kinds = (" ".join(x + kind for x in layers.split()) for kind in (weight, bias))
    return _entries(axes, *kinds)


TOGETHER = ("b_q b_k b_v b_o",)
EACH = ("b_q", "b_k", "b_v", "b_o")
INNER_AND_OUTER = ("b_q b_k b_v", "b_o")

_ADDS_KEY = (
    "add_bias_kv=True appends to every sequence: a key and a value that are learned"
)
_NORMALISES = (
    "normalize_qk=True has: queries and keys are normalised before their product"
)

TORCH = Layout(
    "torch",
    "torch.nn.MultiheadAttention",
    _entries(
        LINEAR,
        "in_proj_weight in_proj_weight in_proj_weight out_proj.weight",
        "in_proj_bias in_proj_bias in_proj_bias out_proj.bias",
    ),
    equal=("n = h", "d = e", "c = m", "c = n d"),
    optional=TOGETHER,
    refused={"bias_k": _ADDS_KEY, "bias_v": _ADDS_KEY},
    settings={
        "add_zero_attn": (False, "appends a key and a value of zeros to every sequence")
    },
)

TORCH_SEPARATE = Layout(
    "torch-separate",
    "torch.nn.MultiheadAttention with kdim and vdim",
    _entries(
        LINEAR,
        "q_proj_weight k_proj_weight v_proj_weight out_proj.weight",
        "in_proj_bias in_proj_bias in_proj_bias out_proj.bias",
    ),
    equal=("n = h", "d = e", "c = n d"),
    optional=TOGETHER,
    refused=TORCH.refused,
    settings=TORCH.settings,
)

_FLAX = _layers(PARAMETERS, "query key value out", "/kernel", "/bias")

FLAX_LINEN = Layout(
    "flax-linen",
    "flax.linen.MultiHeadDotProductAttention",
    _FLAX,
    equal=("n = h", "d = e"),
    optional=TOGETHER,
    refused={"query_ln/scale": _NORMALISES, "key_ln/scale": _NORMALISES},
)

FLAX_NNX = Layout(
    "flax-nnx",
    "flax.nnx.MultiHeadAttention",
    _FLAX,
    equal=("d = e",),
    optional=TOGETHER,
    refused=FLAX_LINEN.refused,
)

_GATE = "use_gate=True has: the output is gated before its projection"
_KERAS = _layers(PARAMETERS, "query key value attention_output", "/kernel", "/bias")

KERAS = Layout(
    "keras",
    "keras.layers.MultiHeadAttention",
    _KERAS,
    equal=("n = h",),
    optional=TOGETHER,
    refused={"gate/kernel": _GATE, "gate/bias": _GATE},
)

KERAS_GROUPED = Layout(
    "keras-grouped",
    "keras.layers.GroupQueryAttention",
    _KERAS,
    equal=("d = e",),
    optional=TOGETHER,
    refused=KERAS.refused,
)

EQUINOX = Layout(
    "equinox",
    "equinox.nn.MultiheadAttention",
    _layers(LINEAR, "query_proj key_proj value_proj output_proj", "/weight", "/bias"),
    equal=("n = h",),
    optional=EACH,
)

HAIKU = Layout(
    "haiku",
    "haiku.MultiHeadAttention",
    _layers(MATMUL, "query key value linear", "/w", "/b"),
    equal=("n = h",),
    optional=TOGETHER,
)

ONNX_ATTENTION = Layout(
    "onnx-attention",
    "com.microsoft.Attention, then MatMul and Add",
    _entries(
        MATMUL,
        "weights weights weights output.weights",
        "bias bias bias output.bias",
    ),
    equal=("n = h", "c = m"),
    optional=INNER_AND_OUTER,
)

ONNX_MULTI_HEAD = Layout(
    "onnx-multi-head",
    "MatMul, com.microsoft.MultiHeadAttention, MatMul and Add",
    _entries(
        MATMUL,
        "query.weights key.weights value.weights output.weights",
        "bias bias bias output.bias",
    ),
    equal=("n = h",),
    optional=INNER_AND_OUTER,
)

BERT = Layout(
    "bert",
    "transformers BertAttention",
    _layers(LINEAR, "self.query self.key self.value output.dense", ".weight", ".bias"),
    equal=("n = h", "d = e", "c = n d"),
    beside=("output.LayerNorm.weight", "output.LayerNorm.bias"),
)

_SCALES = "has another scale: pass `scale` to the attention"

GPT2 = Layout(
    "gpt2",
    "transformers GPT2Attention",
    _layers(MATMUL, "c_attn c_attn c_attn c_proj", ".weight", ".bias"),
    equal=("n = h", "d = e", "c = m", "c = n d"),
    beside=("bias", "masked_bias"),  # its causal mask, in older files
    settings={
        "scale_attn_weights": (True, _SCALES),
        "scale_attn_by_inverse_layer_idx": (False, _SCALES),
    },
)

GPT2_CROSS = Layout(
    "gpt2-cross",
    "transformers GPT2Attention for a context",
    _layers(MATMUL, "q_attn c_attn c_attn c_proj", ".weight", ".bias"),
    equal=GPT2.equal,
    beside=GPT2.beside,
    settings=GPT2.settings,
)

LLAMA = Layout(
    "llama",
    "transformers LlamaAttention, and those with its names",
    _layers(LINEAR, "q_proj k_proj v_proj o_proj", ".weight", ".bias"),
    equal=("c = m", "d = e"),
    optional=INNER_AND_OUTER,
    beside=("rotary_emb.inv_freq",),
    pairing="halves",
)

LLAMA_META = Layout(
    "llama-meta",
    "Meta's own files of Llama",
    _entries(LINEAR, "wq.weight wk.weight wv.weight wo.weight"),
    equal=("c = m", "d = e"),
    pairing="interleaved",
)

LAYOUTS: Mapping[str, Layout] = MappingProxyType(
    {
        layout.name: layout
        for layout in (
            TORCH,
            TORCH_SEPARATE,
            FLAX_LINEN,
            FLAX_NNX,
            KERAS,
            KERAS_GROUPED,
            EQUINOX,
            HAIKU,
            ONNX_ATTENTION,
            ONNX_MULTI_HEAD,
            BERT,
            GPT2,
            GPT2_CROSS,
            LLAMA,
            LLAMA_META,
        )
    }
)
"""Every layout, by its name."""

"""Weights that travel: from any library's multi-head attention to any other's.

A `Layout` says, as data, under which names and along which axes a library keeps the
parameters.  `load` takes a library's arrays to those of `MultiHeadParams`, `dump` takes
them back:

    params = MultiHeadParams(**load(TORCH, layer.state_dict(), heads=8))
    state = dump(EQUINOX, params._asdict())

Arrays may be of any framework that einops knows, and stay in it.  A state is flat, as
in a safetensors file: reading and writing files is the caller's.
"""

from attnref.spec.weights.heads import ungrouped
from attnref.spec.weights.layout import (
    PARAMETERS,
    Entry,
    Layout,
    check_module,
    dump,
    load,
)
from attnref.spec.weights.libraries import (
    BERT,
    EQUINOX,
    FLAX_LINEN,
    FLAX_NNX,
    GPT2,
    GPT2_CROSS,
    HAIKU,
    KERAS,
    KERAS_GROUPED,
    LAYOUTS,
    LINEAR,
    LLAMA,
    LLAMA_META,
    MATMUL,
    ONNX_ATTENTION,
    ONNX_MULTI_HEAD,
    TORCH,
    TORCH_SEPARATE,
)
from attnref.spec.weights.rotary import paired, rotary_permutation

__all__ = [
    "BERT",
    "EQUINOX",
    "FLAX_LINEN",
    "FLAX_NNX",
    "GPT2",
    "GPT2_CROSS",
    "HAIKU",
    "KERAS",
    "KERAS_GROUPED",
    "LAYOUTS",
    "LINEAR",
    "LLAMA",
    "LLAMA_META",
    "MATMUL",
    "ONNX_ATTENTION",
    "ONNX_MULTI_HEAD",
    "PARAMETERS",
    "TORCH",
    "TORCH_SEPARATE",
    "Entry",
    "Layout",
    "check_module",
    "dump",
    "load",
    "paired",
    "rotary_permutation",
    "ungrouped",
]

"""Multi-head attention of libraries, as they build, fill and call it themselves."""

import os
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from attnref.spec import weights
from attnref.spec.weights import Layout

SELF = {"c": 10, "m": 10, "n": 3, "h": 3, "d": 4, "e": 4}
CROSS = SELF | {"m": 14}
SQUARE = SELF | {"c": 12, "m": 12}
"""The model as wide as all heads."""
GROUPED = {"n": 4, "h": 2}
WIDE = {"e": 5}


class Library(NamedTuple):
    """One kind of layer of a library, in the arrays of a room."""

    layout: Layout
    room: str
    package: str
    sizes: Mapping[str, int]
    make: Callable
    """`make(**sizes)` → a layer with biases."""
    state: Callable
    """`state(layer)` → name → array, names as in the layout."""
    fill: Callable
    """`fill(layer, state)` → the layer with these arrays."""
    call: Callable
    """`call(layer, x, context)` → `b i c`; for self-attention, `context` is x."""

    @property
    def heads(self) -> dict[str, int]:
        """What `load` has to be told."""
        told = {"heads": self.sizes["n"], "kv_heads": self.sizes["h"]}
        packed = self.layout is weights.ONNX_ATTENTION
        return told | ({"width": self.sizes["d"]} if packed else {})


# ------------------------------------------------------------------------- PyTorch


def torch_state(layer):
    return {name: array.detach() for name, array in layer.state_dict().items()}


def torch_fill(layer, state):
    """Loaded strictly: what is left out must be the layer's own, beside."""
    layer.load_state_dict({**layer.state_dict(), **state}, strict=True)
    return layer


def torch_layer(c, m, n, **_):
    from torch.nn import MultiheadAttention

    widths = {} if m == c else {"kdim": m, "vdim": m}
    return MultiheadAttention(c, n, batch_first=True, **widths)


def torch_call(layer, x, context):
    return layer(x, context, context, need_weights=False)[0]


def transformers_config(kind, **options):
    import transformers

    return getattr(transformers, kind)(attn_implementation="eager", **options)


def bert_layer(c, n, cross, **_):
    from transformers.models.bert.modeling_bert import BertAttention

    config = transformers_config(
        "BertConfig", hidden_size=c, num_attention_heads=n, is_decoder=cross
    )
    return BertAttention(config, is_cross_attention=cross).eval()


def bert_call(layer, x, context):
    """Without the residual and the norm, which the same class adds."""
    given = {"encoder_hidden_states": context} if layer.is_cross_attention else {}
    return layer.output.dense(layer.self(x, **given)[0])


def gpt2_layer(c, n, cross, **_):
    from transformers.models.gpt2.modeling_gpt2 import GPT2Attention

    config = transformers_config("GPT2Config", n_embd=c, n_head=n)
    return GPT2Attention(config, is_cross_attention=cross, layer_idx=0).eval()


def gpt2_call(layer, x, context):
    given = {"encoder_hidden_states": context} if layer.is_cross_attention else {}
    return layer(x, **given)[0]


def llama_layer(c, n, h, d, **_):
    from transformers.models.llama.modeling_llama import LlamaAttention

    sizes = {"hidden_size": c, "head_dim": d, "num_attention_heads": n}
    config = transformers_config(
        "LlamaConfig", **sizes, num_key_value_heads=h, attention_bias=True
    )
    return LlamaAttention(config, layer_idx=0).eval()


def llama_call(layer, x, _):
    """At position 0 of every rotation, where cos = 1 and sin = 0."""
    cos = x.new_ones(1, x.shape[1], layer.head_dim)
    return layer(x, position_embeddings=(cos, 0 * cos))[0]


# ----------------------------------------------------------------------------- JAX


def flat(tree, before=""):
    """A nested dict as a flat one, its names joined by slashes."""
    found = {}
    for name, value in tree.items():
        path = f"{before}{name}"
        found |= flat(value, f"{path}/") if isinstance(value, dict) else {path: value}
    return found


def nested(state):
    """The nested dict of a flat one."""
    tree = {}
    for path, value in state.items():
        *parents, last = path.split("/")
        inner = tree
        for name in parents:
            inner = inner.setdefault(name, {})
        inner[last] = value
    return tree


def linen_layer(c, m, n, d, **_):
    import jax
    from flax import linen

    layer = linen.MultiHeadDotProductAttention(n, qkv_features=n * d, out_features=c)
    x, context = (jax.numpy.zeros((1, 1, size)) for size in (c, m))
    return layer, layer.init(jax.random.key(0), x, context)["params"]


def linen_call(made, x, context):
    layer, params = made
    return layer.apply({"params": params}, x, context)


def nnx_layer(c, m, n, h, d, **_):
    from flax import nnx

    sizes = {"qkv_features": n * d, "num_kv_heads": h, "in_kv_features": m}
    return nnx.MultiHeadAttention(n, c, **sizes, decode=False, rngs=nnx.Rngs(0))


def nnx_state(layer):
    from flax import nnx

    return flat(nnx.to_pure_dict(nnx.state(layer, nnx.Param)))


def nnx_fill(layer, state):
    from flax import nnx

    params = nnx.state(layer, nnx.Param)
    assert flat(nnx.to_pure_dict(params)).keys() == state.keys()
    nnx.replace_by_pure_dict(params, nested(state))
    nnx.update(layer, params)
    return layer


def keras_layer(c, m, n, h, d, e, grouped):
    os.environ["KERAS_BACKEND"] = "jax"
    import keras

    assert keras.backend.backend() == "jax"
    layer = (
        keras.layers.GroupQueryAttention(d, n, h)
        if grouped
        else keras.layers.MultiHeadAttention(n, d, value_dim=e)
    )
    layer.build((1, 1, c), (1, 1, m))
    return layer


def keras_state(layer):
    return {w.path.partition("/")[2]: w.value for w in layer.weights}


def keras_fill(layer, state):
    assert keras_state(layer).keys() == state.keys()
    for variable in layer.weights:
        variable.assign(state[variable.path.partition("/")[2]])
    return layer


def equinox_layer(c, m, n, d, e, **_):
    import equinox
    import jax

    sizes = {"key_size": m, "value_size": m, "output_size": c}
    biases = {f"use_{x}_bias": True for x in ("query", "key", "value", "output")}
    return equinox.nn.MultiheadAttention(
        n, c, **sizes, qk_size=d, vo_size=e, **biases, key=jax.random.key(0)
    )


def equinox_arrays(layer):
    layers = ("query_proj", "key_proj", "value_proj", "output_proj")
    kinds = ("weight", "bias")
    return {f"{x}/{y}": getattr(getattr(layer, x), y) for x in layers for y in kinds}


def equinox_fill(layer, state):
    import equinox

    names = list(equinox_arrays(layer))
    assert set(names) == state.keys()
    return equinox.tree_at(
        lambda layer: list(equinox_arrays(layer).values()),
        layer,
        [state[name] for name in names],
    )


def equinox_call(layer, x, context):
    import jax

    return jax.vmap(layer)(x, context, context)


def haiku_layer(c, m, n, d, e, **_):
    import haiku
    import jax

    def attention(*arrays):
        init = haiku.initializers.RandomNormal()
        sizes = {"value_size": e, "model_size": c}
        return haiku.MultiHeadAttention(n, d, w_init=init, **sizes)(*arrays)

    run = haiku.without_apply_rng(haiku.transform(attention))
    x, context = (jax.numpy.zeros((1, 1, size)) for size in (c, m))
    return run, run.init(jax.random.key(0), x, context, context)


def haiku_state(made):
    """The state's names begin with the name of the layer."""
    before = "multi_head_attention/"
    return {k.removeprefix(before): x for k, x in flat(made[1]).items()}


def haiku_fill(made, state):
    assert haiku_state(made).keys() == state.keys()
    params = {}
    for name, array in state.items():
        layer, kind = name.split("/")
        params.setdefault(f"multi_head_attention/{layer}", {})[kind] = array
    return made[0], params


def haiku_call(made, x, context):
    run, params = made
    return run.apply(params, x, context, context)


# ---------------------------------------------------------------------------- ONNX


class Graph(NamedTuple):
    """A graph with its initializers, which are its state."""

    nodes: list
    state: dict


def onnx_multi_head(c, m, n, d, e, **_):
    from onnx import helper

    domain = {"domain": "com.microsoft", "num_heads": n}
    nodes = [
        helper.make_node("MatMul", [source, f"{name}.weights"], [name])
        for name, source in (("query", "x"), ("key", "context"), ("value", "context"))
    ]
    inputs = ["query", "key", "value", "bias"]
    nodes.append(helper.make_node("MultiHeadAttention", inputs, ["heads"], **domain))
    widths = {"query": (c, n * d), "key": (m, n * d), "value": (m, n * e)}
    state = {f"{name}.weights": np.zeros(size) for name, size in widths.items()}
    return graph(nodes, state | {"bias": np.zeros(n * (2 * d + e))}, n * e, c)


def onnx_attention(c, n, d, e, **_):
    from onnx import helper

    sizes = [n * d, n * d, n * e]
    domain = {"domain": "com.microsoft", "num_heads": n, "qkv_hidden_sizes": sizes}
    inputs = ["x", "weights", "bias"]
    node = helper.make_node("Attention", inputs, ["heads"], **domain)
    state = {"weights": np.zeros((c, sum(sizes))), "bias": np.zeros(sum(sizes))}
    return graph([node], state, n * e, c)


def graph(nodes, state, width, c):
    """The nodes, and after them the output projection."""
    from onnx import helper

    nodes = [
        *nodes,
        helper.make_node("MatMul", ["heads", "output.weights"], ["merged"]),
        helper.make_node("Add", ["merged", "output.bias"], ["output"]),
    ]
    outer = {"output.weights": np.zeros((width, c)), "output.bias": np.zeros(c)}
    return Graph(nodes, state | outer)


def onnx_fill(made, state):
    assert made.state.keys() == state.keys()
    for name, array in state.items():
        assert made.state[name].shape == array.shape, name
    return made._replace(state=state)


def onnx_call(made, x, context):
    from onnx import TensorProto, helper, numpy_helper
    from onnxruntime import InferenceSession, SessionOptions

    given = {"x": x, "context": context}
    given = {k: a for k, a in given.items() if any(k in y.input for y in made.nodes)}
    infos = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape)
        for name, array in given.items()
    ]
    output = helper.make_tensor_value_info("output", TensorProto.FLOAT, None)
    arrays = [
        numpy_helper.from_array(np.ascontiguousarray(array), name)
        for name, array in made.state.items()
    ]
    whole = helper.make_graph(made.nodes, "layer", infos, [output], arrays)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(whole, opset_imports=opsets, ir_version=10)
    options = SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    run = InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return run.run(None, given)[0]


# -------------------------------------------------------------------------- all of them

TORCH = ("torch", "torch"), (torch_state, torch_fill)
TRANSFORMERS = ("torch", "transformers"), (torch_state, torch_fill)
LINEN = ("jax", "flax"), (lambda made: flat(made[1]), lambda m, s: (m[0], nested(s)))
NNX = ("jax", "flax"), (nnx_state, nnx_fill)
KERAS = ("jax", "keras"), (keras_state, keras_fill)
EQUINOX = ("jax", "equinox"), (equinox_arrays, equinox_fill)
HAIKU = ("jax", "haiku"), (haiku_state, haiku_fill)
ONNX = ("numpy", "onnxruntime"), (lambda made: made.state, onnx_fill)


def of(layout, ways, sizes, make, call, **options):
    """A library's layer of some sizes."""
    (room, package), (state, fill) = ways
    made = lambda: make(**sizes, **options)  # noqa: E731
    return Library(layout, room, package, sizes, made, state, fill, call)


def plain(layer, x, context):
    return layer(x, context)


LIBRARIES = {
    "torch self": of(weights.TORCH, TORCH, SQUARE, torch_layer, torch_call),
    "torch cross": of(
        weights.TORCH_SEPARATE, TORCH, SQUARE | {"m": 14}, torch_layer, torch_call
    ),
    "bert self": of(
        weights.BERT, TRANSFORMERS, SQUARE, bert_layer, bert_call, cross=False
    ),
    "bert cross": of(
        weights.BERT, TRANSFORMERS, SQUARE, bert_layer, bert_call, cross=True
    ),
    "gpt2 self": of(
        weights.GPT2, TRANSFORMERS, SQUARE, gpt2_layer, gpt2_call, cross=False
    ),
    "gpt2 cross": of(
        weights.GPT2_CROSS, TRANSFORMERS, SQUARE, gpt2_layer, gpt2_call, cross=True
    ),
    "llama": of(weights.LLAMA, TRANSFORMERS, SQUARE | GROUPED, llama_layer, llama_call),
    "flax-linen self": of(weights.FLAX_LINEN, LINEN, SELF, linen_layer, linen_call),
    "flax-linen cross": of(weights.FLAX_LINEN, LINEN, CROSS, linen_layer, linen_call),
    "flax-nnx self": of(weights.FLAX_NNX, NNX, SELF | GROUPED, nnx_layer, plain),
    "flax-nnx cross": of(weights.FLAX_NNX, NNX, CROSS | GROUPED, nnx_layer, plain),
    "keras self": of(weights.KERAS, KERAS, SELF, keras_layer, plain, grouped=False),
    "keras cross": of(weights.KERAS, KERAS, CROSS, keras_layer, plain, grouped=False),
    "keras-grouped self": of(
        weights.KERAS_GROUPED, KERAS, SELF | GROUPED, keras_layer, plain, grouped=True
    ),
    "keras-grouped cross": of(
        weights.KERAS_GROUPED, KERAS, CROSS | GROUPED, keras_layer, plain, grouped=True
    ),
    "equinox self": of(
        weights.EQUINOX, EQUINOX, SELF | WIDE, equinox_layer, equinox_call
    ),
    "equinox cross": of(
        weights.EQUINOX, EQUINOX, CROSS | WIDE, equinox_layer, equinox_call
    ),
    "haiku self": of(weights.HAIKU, HAIKU, SELF | WIDE, haiku_layer, haiku_call),
    "haiku cross": of(weights.HAIKU, HAIKU, CROSS | WIDE, haiku_layer, haiku_call),
    "onnx-attention": of(
        weights.ONNX_ATTENTION, ONNX, SELF | WIDE, onnx_attention, onnx_call
    ),
    "onnx-multi-head self": of(
        weights.ONNX_MULTI_HEAD, ONNX, SELF | WIDE, onnx_multi_head, onnx_call
    ),
    "onnx-multi-head cross": of(
        weights.ONNX_MULTI_HEAD, ONNX, CROSS | WIDE, onnx_multi_head, onnx_call
    ),
}
"""Layout and way of attention → the layer of the library."""

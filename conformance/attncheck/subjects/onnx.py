"""ONNX's Attention operator, as its own reference evaluator runs it."""

from functools import cache, partial

from attncheck.library import Library
from attnref.spec import Conventions

PACKAGES = ("onnx",)
DOCS = "https://onnx.ai/onnx/operators/onnx__Attention.html"


def inferred(load, opset, q, k, v, mask=None, **options):
    """The output of a model that is one Attention node; `load` makes what runs it."""
    arrays = {"Q": q, "K": k, "V": v, "attn_mask": mask}
    return result_of(load, ("Attention", "", opset), arrays, options)


def result_of(load, operator, arrays, options):
    """The output of an operator: name, domain, opset; what is None is not given."""
    given = {name: x for name, x in arrays.items() if x is not None}
    types = tuple((n, given[n].dtype, given[n].shape) for n in given)
    attributes = tuple((n, x) for n, x in options.items() if x is not None)
    places = tuple(name if name in given else "" for name in arrays)
    run = load(_model(*operator, places, types, attributes))
    return run(None, given)[0]


@cache
def _model(operator, domain, opset, names, types, attributes):
    """A model of one node, as bytes."""
    from onnx import helper

    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), s)
        for name, dtype, s in types
    ]
    kind = inputs[0].type.tensor_type.elem_type
    output = helper.make_tensor_value_info("Y", kind, None)
    node = helper.make_node(operator, names, ["Y"], domain=domain, **dict(attributes))
    graph = helper.make_graph([node], "attention", inputs, [output])
    opsets = [helper.make_opsetid(domain, opset)]
    if domain:
        opsets.append(helper.make_opsetid("", 21))
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return model.SerializeToString()


def operator(name, load, opset, packages, dtypes) -> Library:
    """The operator of one opset, run by what `load` makes."""

    def attention(q, k, v, mask=None, *, is_causal=None, scale=None, softcap=None):
        words = {"is_causal": is_causal and int(is_causal), "scale": scale}
        return inferred(load, opset, q, k, v, mask, softcap=softcap, **words)

    return Library(
        name=name,
        function=attention,
        framework="numpy",
        packages=packages,
        conventions=Conventions(mask_float="add"),
        dtypes=dtypes,
        profile="eager",
    )


@cache
def _evaluator(model):
    from onnx import load_model_from_string
    from onnx.reference import ReferenceEvaluator

    return ReferenceEvaluator(load_model_from_string(model)).run


TYPES = ("F64", "F32", "BF16", "F16")

SUBJECTS = {
    f"onnx:attention-{opset}": partial(
        operator, f"onnx:attention-{opset}", _evaluator, opset, PACKAGES, TYPES
    )
    for opset in (23, 24)
}

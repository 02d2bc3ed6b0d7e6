"""ONNX Runtime on a CPU: the Attention operator, and the one of com.microsoft."""

from functools import cache, partial

from attncheck.library import Library
from attncheck.subjects.onnx import operator, result_of
from attnref.spec import Conventions

PACKAGES = ("onnxruntime", "onnx")
DOCS = "https://onnxruntime.ai/docs/reference/operators/ContribOperators.html"

TYPES = ("F64", "F32", "F16")


@cache
def _session(model):
    from onnxruntime import InferenceSession, SessionOptions

    options = SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    return InferenceSession(model, options, ["CPUExecutionProvider"]).run


def _attend(q, k, v, bias=None, *, is_causal=None, scale=None):
    """MultiHeadAttention of com.microsoft, its heads side by side."""
    b, i, n, _ = q.shape
    flat = (x.reshape(*x.shape[:2], n * x.shape[3]) for x in (q, k, v))
    arrays = dict(zip(("query", "key", "value"), flat, strict=True))
    arrays |= {"bias": None, "key_padding_mask": None, "attention_bias": bias}
    options = {"num_heads": n, "scale": scale, "unidirectional": is_causal and 1}
    node = "MultiHeadAttention", "com.microsoft", 1
    return result_of(_session, node, arrays, options).reshape(b, i, n, v.shape[3])


def microsoft() -> Library:
    """The operator of com.microsoft; a mask is −∞ in its bias."""
    return Library(
        name="onnxruntime:multi-head",
        function=_attend,
        framework="numpy",
        packages=PACKAGES,
        conventions=Conventions(layout="b i n d", mask_true=None, heads=None),
        full="ij",
        dtypes=("F32", "F16"),
        profile="eager",
    )


SUBJECTS = {
    f"onnxruntime:attention-{opset}": partial(
        operator, f"onnxruntime:attention-{opset}", _session, opset, PACKAGES, TYPES
    )
    for opset in (23, 24)
} | {"onnxruntime:multi-head": microsoft}

"""ONNX Runtime on a CPU: the Attention operator, and the one of com.microsoft."""

from functools import cache, partial

from attncheck.subjects.onnx import operator

PACKAGES = ("onnxruntime", "onnx")
DOCS = "https://onnxruntime.ai/docs/reference/operators/ContribOperators.html"

TYPES = ("F64", "F32", "F16")


@cache
def _session(model):
    from onnxruntime import InferenceSession, SessionOptions

    options = SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    return InferenceSession(model, options, ["CPUExecutionProvider"]).run


SUBJECTS = {
    f"onnxruntime:attention-{opset}": partial(
        operator, f"onnxruntime:attention-{opset}", _session, opset, PACKAGES, TYPES
    )
    for opset in (23, 24)
}

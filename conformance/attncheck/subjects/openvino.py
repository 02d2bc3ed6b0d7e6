"""OpenVINO's Attention, compiled for a CPU from ONNX's operator."""

from functools import cache, partial

from attncheck.subjects.onnx import operator

PACKAGES = ("openvino", "onnx")
DOCS = "https://docs.openvino.ai/"


@cache
def _compiled(model):
    from openvino import Core

    core = Core()
    # Else a CPU that can multiply bfloat16 does, whatever the model's type is.
    options = {"INFERENCE_PRECISION_HINT": "f32"}
    ready = core.compile_model(core.read_model(model), "CPU", options)
    return lambda _, given: list(ready(given).values())


SUBJECTS = {
    "openvino:attention-23": partial(
        operator,
        "openvino:attention-23",
        _compiled,
        23,
        PACKAGES,
        ("F64", "F32", "F16"),
    )
}

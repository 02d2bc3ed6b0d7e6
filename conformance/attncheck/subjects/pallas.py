"""The flash kernels that come with JAX, in Pallas' interpreter."""

from functools import partial

from attncheck.library import Library
from attnref.spec import Conventions

PACKAGES = ("jax", "jaxlib")
DOCS = "https://docs.jax.dev/en/latest/pallas/index.html"

MULTIPLE = 128
BOARD_SET = "forward"  # a case takes seconds in the interpreter


def gpu() -> Library:
    """The kernel for GPUs."""
    from jax.experimental.pallas.ops.gpu.attention import mha

    function = partial(mha, segment_ids=None, interpret=True)
    ours = Conventions(
        layout="b i n d", scale="one", heads=None, value_width="same", mask_true=None
    )
    return Library(
        name="pallas:gpu",
        function=function,
        framework="jax",
        packages=PACKAGES,
        conventions=ours,
        multiple=MULTIPLE,
        profile="tensor-core+dP",
    )


def tpu() -> Library:
    """The kernel for TPUs."""
    from jax.experimental.pallas import tpu as pltpu
    from jax.experimental.pallas.ops.tpu.flash_attention import flash_attention

    def interpreted(q, k, v, ab=None, *, causal=False, sm_scale=1.0):
        with pltpu.force_tpu_interpret_mode():
            return flash_attention(q, k, v, ab, causal=causal, sm_scale=sm_scale)

    ours = Conventions(scale="one", heads=None, value_width="same", mask_true=None)
    return Library(
        name="pallas:tpu",
        function=interpreted,
        framework="jax",
        packages=PACKAGES,
        keywords={"bias": "ab"},
        conventions=ours,
        full="bnij",
        differentiable=False,  # its gradient runs outside of the interpreter
        multiple=MULTIPLE,
        profile="tensor-core+dP",
    )


SUBJECTS = {"pallas:gpu": gpu, "pallas:tpu": tpu}

"""MLX's fused attention, on a CPU."""

import numpy as np

from attncheck.library import Library
from attnref.spec import Conventions

PACKAGES = ("mlx",)
DOCS = (
    "https://ml-explore.github.io/mlx/build/html/python/_autosummary/"
    "mlx.core.fast.scaled_dot_product_attention.html"
)


def _array(x):
    import mlx.core as mx

    if x.dtype.name == "bfloat16":  # which NumPy has no type for
        return mx.array(x.view(np.uint16)).view(mx.bfloat16)
    return mx.array(x, mx.float64) if x.dtype == np.float64 else mx.array(x)


def fast() -> Library:
    """`mx.fast.scaled_dot_product_attention`, arrays copied in and out."""
    import mlx.core as mx

    def attention(q, k, v, *, scale, mask=None, causal=False, sinks=None):
        if causal and mask is not None:
            raise ValueError("`mask` is an array or 'causal', not both")
        masks = "causal" if causal else mask if mask is None else _array(mask)
        sinks = sinks if sinks is None else _array(sinks)
        run = mx.fast.scaled_dot_product_attention
        with mx.stream(mx.cpu):
            arrays = map(_array, (q, k, v))
            out = run(*arrays, scale=scale, mask=masks, sinks=sinks)
            if out.dtype == mx.bfloat16:
                return np.array(out.view(mx.uint16)).view(q.dtype)
            return np.array(out)

    ours = Conventions(scale="required", causal="lower-right", mask_float="add")
    return Library(
        name="mlx:fast",
        function=attention,
        framework="numpy",
        packages=PACKAGES,
        conventions=ours,
        profile="eager",
    )


SUBJECTS = {"mlx:fast": fast}

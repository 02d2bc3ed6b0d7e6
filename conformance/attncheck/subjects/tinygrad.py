"""tinygrad's `Tensor.scaled_dot_product_attention`, on a CPU."""

import os

from attncheck.library import Library
from attnref.spec import Conventions

PACKAGES = ("tinygrad",)
DOCS = "https://docs.tinygrad.org/tensor/ops/"


def attention() -> Library:
    """The method, arrays copied in and out."""
    os.environ.setdefault("DEV", "CPU")
    from tinygrad import Tensor

    def array(x):
        return x if x is None else Tensor(x)

    def scaled_dot_product_attention(query, key, value, attn_mask=None, **options):
        q, k, v, mask = map(array, (query, key, value, attn_mask))
        out = q.scaled_dot_product_attention(k, v, mask, **options)
        return out.numpy().astype(query.dtype, copy=False)

    keywords = {"mask": "attn_mask", "causal": "is_causal", "grouped": "enable_gqa"}
    return Library(
        name="tinygrad:sdpa",
        function=scaled_dot_product_attention,
        framework="numpy",
        packages=PACKAGES,
        keywords=keywords,
        conventions=Conventions(mask_float="add"),
        dtypes=("F64", "F32", "F16"),
        profile="eager",
    )


SUBJECTS = {"tinygrad:sdpa": attention}

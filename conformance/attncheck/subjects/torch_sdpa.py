"""PyTorch's scaled_dot_product_attention as it is, by each backend alone."""

from functools import partial

from attncheck.library import Library
from attnref.spec import Conventions

PACKAGES = ("torch",)
DOCS = (
    "https://docs.pytorch.org/docs/stable/generated/"
    "torch.nn.functional.scaled_dot_product_attention.html"
)

BACKENDS = {
    "math": "MATH",
    "flash": "FLASH_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
    "cudnn": "CUDNN_ATTENTION",
}
PROFILES = {"math": "strict", "flash": "tensor-core+exp", "auto": "tensor-core+exp"}


def library(name: str) -> Library:
    """The function with one backend allowed, or with those that PyTorch allows."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention as attend

    def forced(query, key, value, attn_mask=None, *, is_causal, scale, enable_gqa):
        options = {"is_causal": is_causal, "scale": scale, "enable_gqa": enable_gqa}
        if name == "auto":
            return attend(query, key, value, attn_mask, **options)
        with sdpa_kernel(getattr(SDPBackend, BACKENDS[name])):
            return attend(query, key, value, attn_mask, **options)

    return Library(
        name=f"torch:sdpa-{name}",
        function=partial(forced, is_causal=False, scale=None, enable_gqa=False),
        framework="torch",
        packages=PACKAGES,
        conventions=Conventions(
            mask_float="add",
            value_width="same" if name == "flash" else "any",
            window=None,
        ),
        profile=PROFILES.get(name, "tensor-core"),
    )


SUBJECTS = {
    f"torch:sdpa-{name}": partial(library, name) for name in (*BACKENDS, "auto")
}

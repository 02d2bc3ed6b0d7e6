"""The attention functions that Transformers' models choose from."""

from types import SimpleNamespace
from typing import Any

from attncheck.library import Library
from attnref.spec import Conventions

PACKAGES = ("transformers", "torch")
DOCS = "https://huggingface.co/docs/transformers/attention_interface"

LOWEST = -3.4028234663852886e38


def eager() -> Library:
    """The one written out, of Llama; masks are added, and block with the lowest."""
    from transformers.models.llama.modeling_llama import eager_attention_forward

    def attention(query, key, value, attention_mask=None, *, scaling):
        groups = query.shape[1] // key.shape[1]
        layer: Any = SimpleNamespace(num_key_value_groups=groups, training=False)
        arrays = (query, key, value, attention_mask)
        return eager_attention_forward(layer, *arrays, scaling)[0].transpose(1, 2)

    ours = Conventions(scale="required", mask_true=None, mask_float="add", fill=LOWEST)
    return Library(
        name="transformers:eager",
        function=attention,
        framework="torch",
        packages=PACKAGES,
        conventions=ours,
        profile="eager",
    )


def sdpa() -> Library:
    """The one that calls PyTorch's."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    def attention(query, key, value, attention_mask=None, **options):
        groups = query.shape[1] // key.shape[1]
        layer: Any = SimpleNamespace(num_key_value_groups=groups, is_causal=False)
        arrays = (layer, query, key, value, attention_mask)
        return sdpa_attention_forward(*arrays, **options)[0].transpose(1, 2)

    words = {"scale": "scaling", "causal": "is_causal", "bias": "position_bias"}
    return Library(
        name="transformers:sdpa",
        function=attention,
        framework="torch",
        packages=PACKAGES,
        keywords={"mask": "attention_mask", **words},
        conventions=Conventions(mask_float="add"),
        profile="tensor-core+exp",
    )


SUBJECTS = {"transformers:eager": eager, "transformers:sdpa": sdpa}

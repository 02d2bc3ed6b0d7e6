"""PyTorch's attention layer, its projections the identity, and FlexAttention."""

from functools import partial

from attncheck.library import Library
from attnref.spec import Conventions

PACKAGES = ("torch",)
DOCS = "https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiheadAttention.html"
FLEX = "https://docs.pytorch.org/docs/stable/nn.attention.flex_attention.html"


def _attend(query, key, value, attn_mask=None, *, need_weights, training):
    """The layer, with as many heads as q has."""
    import torch

    n, d = query.shape[2:]
    options = {"bias": False, "batch_first": True, "dtype": query.dtype}
    layer = torch.nn.MultiheadAttention(n * d, n, **options).train(training)
    eye = torch.eye(n * d, dtype=query.dtype)
    layer.load_state_dict({"in_proj_weight": eye.repeat(3, 1), "out_proj.weight": eye})
    mask = attn_mask if attn_mask is None else attn_mask.flatten(0, 1)
    flat = (x.flatten(2) for x in (query, key, value))
    out, _ = layer(*flat, attn_mask=mask, need_weights=need_weights)
    return out.unflatten(2, (n, d))


def _layer(name: str, *, need_weights: bool, training: bool) -> Library:
    """`nn.MultiheadAttention`."""
    ours = Conventions(
        layout="b i n d",
        mask_true="block",
        mask_float="add",
        heads=None,
        value_width="same",
    )
    return Library(
        name=name,
        function=partial(_attend, need_weights=need_weights, training=training),
        framework="torch",
        packages=PACKAGES,
        conventions=ours,
        projects=True,
        full="bnij",
        profile="eager",
    )


def flex() -> Library:
    """`flex_attention`, eager: a mask and a bias through its two functions."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def attention(query, key, value, mask=None, bias=None, **options):
        def biased(score, b, n, i, j):
            return score + bias[b, n, i, j]

        def seen(b, n, i, j):
            return mask[b, n, i, j]

        mod, blocks = None if bias is None else biased, None
        if mask is not None:
            b, n, i, j = mask.shape
            blocks = create_block_mask(seen, b, n, i, j, device="cpu")
        return flex_attention(query, key, value, mod, blocks, **options)

    keywords = {"scale": "scale", "grouped": "enable_gqa", "lse": "return_lse"}
    return Library(
        name="torch:flex",
        function=attention,
        framework="torch",
        packages=PACKAGES,
        keywords=keywords,
        full="bnij",
        returns=("output", "lse"),
        differentiable=False,  # on a CPU
    )


SUBJECTS = {
    "torch:mha": partial(_layer, "torch:mha", need_weights=False, training=True),
    "torch:mha-weights": partial(
        _layer, "torch:mha-weights", need_weights=True, training=False
    ),
    "torch:flex": flex,
}

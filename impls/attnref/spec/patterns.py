"""The einops patterns, each written once, and the steps of attention in order.

A pattern is the shape contract of its step: the rooms contract and rearrange with
these very strings, and the tests check every step's shapes against them.
"""

from types import MappingProxyType
from typing import NamedTuple

# Arguments and results, as (letter per axis).
QUERY = "b n i d"
KEY = "b h j d"
VALUE = "b h j e"
OUTPUT = "b n i e"
LOGITS = "b n i j"
LSE = "b n i"

# Rearrangements: query heads n as (h g) and back.
GROUP = "b (h g) i x -> b h g i x"
UNGROUP = "b h g i x -> b (h g) i x"
SEEN = "b (h g) j -> b h j"  # a reduction: seen by any query head of the group

# Rotary positions turn pairs of components: the pairs, and where they lie in a width.
PAIRS = "two b n i t"
PAIRINGS = MappingProxyType({"halves": "b n i (two t)", "interleaved": "b n i (t two)"})

# Contractions, forward.
PROJECT = "b i c, c n d -> b n i d"  # of a context: b j m, m h d -> b h j d
SCORES = "b h g i d, b h j d -> b h g i j"
ATTEND = "b h g i j, b h j e -> b h g i e"
MERGE = "b n i e, n e c -> b i c"

# Variants: what a pair of a query and a key has of its own, shared by the heads, …
RELATIVE_SCORES = "b n i d, b i j d -> b n i j"
RELATIVE_ATTEND = "b n i j, b i j e -> b n i e"
TABLE_BIAS = "b i j n -> b n i j"  # … and a bias that a table has for each head

# Additive scores: queries and keys go into a hidden layer, and out as one number.
HIDDEN_QUERY = "b n i d, n d a -> b n i a"
HIDDEN_KEY = "b h j d, h d a -> b h j a"
ADDITIVE_SCORES = "b h g i j a, h g a -> b h g i j"
GROUP_WEIGHTS = "(h g) a -> h g a"
UNGROUP_WEIGHTS = "h g a -> (h g) a"

# Latent attention: into a compressed width r, and the weights that absorb its ends.
COMPRESS = "b i c, c r -> b i r"
ABSORB_KEY = "b n i d, r n d -> b n i r"
ABSORB_VALUE = "b n i r, r n e -> b n i e"

# Contractions, backward: the two forward products, each with one operand's place taken
# by the gradient of the result.
GRAD_QUERY = "b h g i j, b h j d -> b h g i d"
GRAD_KEY = "b h g i j, b h g i d -> b h j d"
GRAD_WEIGHTS = "b h g i e, b h j e -> b h g i j"
GRAD_VALUE = "b h g i j, b h g i e -> b h j e"
GRAD_PROJECT = "b n i d, c n d -> b i c"
GRAD_PROJECT_WEIGHTS = "b i c, b n i d -> c n d"
GRAD_MERGE = "b i c, n e c -> b n i e"
GRAD_MERGE_WEIGHTS = "b n i e, b i c -> n e c"
GRAD_COMPRESS = "b i r, c r -> b i c"
GRAD_COMPRESS_WEIGHTS = "b i c, b i r -> c r"
GRAD_RELATIVE_QUERY = "b n i j, b i j d -> b n i d"
GRAD_RELATIVE_KEY = "b n i j, b n i d -> b i j d"
GRAD_RELATIVE_WEIGHTS = "b n i e, b i j e -> b n i j"
GRAD_RELATIVE_VALUE = "b n i j, b n i e -> b i j e"
GRAD_ADDITIVE_HIDDEN = "b h g i j, h g a -> b h g i j a"
GRAD_ADDITIVE_WEIGHTS = "b h g i j, b h g i j a -> h g a"
GRAD_HIDDEN_QUERY = "b n i a, n d a -> b n i d"
GRAD_HIDDEN_QUERY_WEIGHTS = "b n i d, b n i a -> n d a"
GRAD_HIDDEN_KEY = "b h j a, h d a -> b h j d"
GRAD_HIDDEN_KEY_WEIGHTS = "b h j d, b h j a -> h d a"
GRAD_TABLE = "b n i j -> b i j n"


class Step(NamedTuple):
    """One step of attention, as data that the docs and the judge read."""

    name: str
    function: str
    """The name of the function in every room."""
    pattern: str
    """einops pattern, or the axes that an elementwise step keeps."""
    formula: str
    """LaTeX."""
    meaning: str


STEPS = (
    Step(
        "project",
        "project",
        PROJECT,
        r"q = x W_q + b_q",
        "Each head reads the model width through its own matrix; keys and values come "
        "from x or from a context.",
    ),
    Step(
        "scores",
        "scores",
        SCORES,
        r"s_{ij} = q_i \cdot k_j",
        "Raw dot products of every query with every key.",
    ),
    Step(
        "scale",
        "apply_scale",
        LOGITS,
        r"s \cdot \text{scale}, \quad \text{scale} = 1/\sqrt{d} \text{ by default}",
        "Keeps the variance of the scores independent of the width.",
    ),
    Step(
        "softcap",
        "apply_softcap",
        LOGITS,
        r"c \tanh(s / c)",
        "Bounds the logits smoothly to ±c.",
    ),
    Step(
        "bias",
        "add_bias",
        LOGITS,
        r"s + \text{bias}",
        "Adds a prior over positions, after the softcap and before the mask.",
    ),
    Step(
        "mask",
        "apply_mask",
        LOGITS,
        r"s_{ij} = -\infty \text{ where key } j \text{ is blocked for query } i",
        "A blocked key does not exist for that query. True = may attend.",
    ),
    Step(
        "softmax",
        "softmax",
        LOGITS,
        r"p_{ij} = e^{s_{ij}} / \sum_{j'} e^{s_{ij'}}, \quad "
        r"\text{lse}_i = \ln \sum_j e^{s_{ij}}",
        "Logits become weights that sum to 1 over the keys; an empty row has weights 0 "
        "and log-sum-exp −∞.",
    ),
    Step(
        "dropout",
        "apply_dropout",
        LOGITS,
        r"p_{ij} \cdot \text{keep}_{ij} / (1 - \text{rate})",
        "Drops the weights that the given boolean says, so that every framework drops "
        "the same ones.",
    ),
    Step(
        "attend",
        "attend",
        ATTEND,
        r"o_i = \sum_j p_{ij} v_j",
        "The weighted sum of the values.",
    ),
    Step(
        "merge",
        "merge",
        MERGE,
        r"y = \sum_n o_n W_o + b_o",
        "The heads' outputs go through one matrix back to the model width.",
    ),
)
"""The steps in the order in which they are computed."""

"""Cases about whole multi-head attention: projections, context and merge."""

from attncheck.suite.recipe import Recipe, lengths, upper_left
from attncheck.suite.shapes import COINCIDENCE, PRIMES
from attncheck.suite.values import around, weight
from attnref.spec import padding

WEIGHTS = ("w_q", "w_k", "w_v", "w_o")
BIASES = ("b_q", "b_k", "b_v", "b_o")
SELF = ("x", *WEIGHTS)
CROSS = ("x", "context", *WEIGHTS)

DRAW = dict.fromkeys(WEIGHTS, weight)

NARROW_MODEL = COINCIDENCE._replace(c=10, m=10)
PRIME_MODEL = PRIMES._replace(c=17, m=19)
COINCIDENT_MODEL = COINCIDENCE._replace(c=4, m=4)

RECIPES = (
    Recipe(
        "multi-head-self",
        ("project", "self-attention", "merge"),
        "The model width is split into heads without a transpose.",
        NARROW_MODEL,
        arrays=SELF,
        draw=DRAW,
    ),
    Recipe(
        "multi-head-coincidence",
        ("project", "self-attention", "merge", "head-order"),
        "A weight is applied transposed.",
        COINCIDENT_MODEL,
        arrays=SELF,
        draw=DRAW,
    ),
    Recipe(
        "multi-head-cross",
        ("project", "cross-attention", "value-width"),
        "Keys or values are projected from x though there is a context.",
        PRIME_MODEL,
        arrays=CROSS,
        draw=DRAW,
    ),
    Recipe(
        "multi-head-cross-coincidence",
        ("cross-attention",),
        "Keys come from the context and values from x, which equal widths hide.",
        COINCIDENT_MODEL,
        arrays=CROSS,
        draw=DRAW,
    ),
    # Without the softcap b_k would move all scores of a query alike, and not be seen.
    Recipe(
        "multi-head-biases",
        ("projection-bias", "merge-bias"),
        "A projection's bias is left out, or b_o is added once a head.",
        PRIME_MODEL,
        arrays=(*CROSS, *BIASES),
        draw=DRAW,
        softcap=0.5,
    ),
    Recipe(
        "multi-head-grouped",
        ("project", "projection-bias", "head-order", "merge"),
        "The merged heads are laid out (g h) for the output projection.",
        COINCIDENT_MODEL,
        arrays=(*SELF, *BIASES),
        draw=DRAW,
        causal=upper_left,
        softcap=1.0,
    ),
    Recipe(
        "multi-head-padding",
        ("padding", "self-attention"),
        "The padding of the sequence is taken as its mask of queries.",
        NARROW_MODEL,
        arrays=SELF,
        draw=DRAW,
        mask=lambda sizes: padding(lengths(sizes)),
    ),
    Recipe(
        "multi-head-empty-rows",
        ("merge-bias", "empty-row-output"),
        "A query without keys gives NaN or 0, where b_o is left.",
        PRIME_MODEL,
        arrays=(*CROSS, *BIASES),
        draw={**DRAW, "b_o": around(2)},
        mask=lambda sizes: lambda b, n, i, j: (b + i) % 2 > 0,
    ),
    Recipe(
        "multi-head-bias",
        ("bias", "cross-attention"),
        "The bias of the logits is mixed up with that of a projection.",
        PRIME_MODEL,
        arrays=CROSS,
        draw={**DRAW, "bias": around(0, 2)},
        bias="bnij",
        scale=0.8,
    ),
)

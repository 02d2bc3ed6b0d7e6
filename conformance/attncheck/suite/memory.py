"""Cases about how arrays lie in memory: in another order, in slices, expanded."""

from attncheck.suite.multihead import CROSS, DRAW, PRIME_MODEL
from attncheck.suite.recipe import WITH_LSE, Recipe, lengths
from attncheck.suite.values import alike, around, constant
from attnref.spec import padding

RECIPES = (
    Recipe(
        "memory-heads-last",
        ("scores", "attend", "head-order", "dq", "dk", "dv"),
        "Arrays whose heads lie behind their positions are read as if they were "
        "contiguous.",
        strides={"q": "b i n d", "k": "b j h d", "v": "b j h e", "d_out": "b i n e"},
    ),
    Recipe(
        "memory-packed",
        ("scores", "attend", "dq", "dk", "dv"),
        "Queries, keys and values are slices of a packed projection, and what lies "
        "between is read.",
        strides={
            "q": "b i 3 n d",
            "k": "b j 3 h d",
            "v": "b j 3 h e",
            "d_out": "b i n 2 e",
        },
    ),
    Recipe(
        "memory-channels-first",
        ("scores", "attend", "bias", "mask", "dk", "dbias"),
        "The last axis of a transposed cache, mask or bias is taken to have stride 1.",
        bias="bnij",
        mask=lambda sizes: padding(lengths(sizes)),
        strides={
            "k": "b h d j",
            "v": "e h b j",
            "mask": "b n j i",
            "bias": "j i n b",
        },
    ),
    Recipe(
        "memory-expanded-heads",
        ("multi-query", "group-gradients", "dk", "dv"),
        "Keys and values expanded over heads, with stride 0, are written to or read "
        "past their end.",
        draw={"k": alike("bjd", "bhjd"), "v": alike("bje", "bhje")},
        strides={"k": "b j d", "v": "b j e"},
    ),
    Recipe(
        "memory-expanded-gradient",
        ("dq", "dk", "dv", "lse-gradient"),
        "The gradient that comes from a sum is one number expanded to the whole "
        "output, and is read as if it were contiguous.",
        arrays=WITH_LSE,
        draw={"d_out": constant(1), "d_lse": constant(0.5)},
        strides={"d_out": "", "d_lse": ""},
    ),
    Recipe(
        "memory-expanded-bias",
        ("bias", "dbias", "mask"),
        "A bias and a mask expanded over batch and heads have gradients summed over "
        "them, or strides that are guessed.",
        bias="bnij",
        draw={"bias": alike("ij", "bnij", around(0, 3))},
        mask=lambda sizes: lambda b, n, i, j: (i + 2 * j) % 3 > 0,
        strides={"bias": "i j", "mask": "i j"},
    ),
    Recipe(
        "memory-multi-head",
        ("project", "cross-attention"),
        "The batch lies behind the sequence, and weights are stored transposed.",
        PRIME_MODEL,
        arrays=CROSS,
        draw=DRAW,
        strides={"x": "i b c", "context": "j b m", "w_q": "n d c", "w_o": "c n e"},
    ),
)

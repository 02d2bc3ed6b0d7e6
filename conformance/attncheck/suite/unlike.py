"""Cases about another denominator, or other scores: sinks, cosines, additive scores."""

from attncheck.suite.recipe import WITH_LSE, Arrays, Recipe, upper_left
from attncheck.suite.relative import ALL_OPTIONS, every_other
from attncheck.suite.rotary import nan_in_unseen_keys
from attncheck.suite.shapes import DECODE, LONG, PRIMES, UNGROUPED
from attncheck.suite.values import around, positive, weight

SINK, COSINE, ADDITIVE = "sink_attention", "cosine_attention", "additive_attention"
LATENT = "latent_attention"

WEIGHTS = ("w_q", "w_k", "w_s")
WIDE = {"a": 9}

LATENT_WEIGHTS = ("w_q", "w_qr", "w_kr", "w_c", "w_k", "w_v", "w_o")
LATENT_SIZES = {"r": 8, "p": 6}
MODEL = PRIMES._replace(h=6, g=1, j=5, c=17)
CROSS = MODEL._replace(i=7, j=7)


def _short(arrays: Arrays) -> None:
    """Every second query and key is short, and one of each is nothing."""
    for name in "qk":
        arrays[name][..., ::2, :] *= 0.01
    arrays["q"][0, 0, 0], arrays["k"][0, 0, 1] = 0.0, 0.0


RECIPES = (
    Recipe(
        "sinks",
        ("sink", "sink-gradient"),
        "The sink is multiplied by the scale, or left out of the log-sum-exp.",
        PRIMES,
        op=SINK,
        arrays=(*WITH_LSE, "sinks"),
    ),
    Recipe(
        "sinks-large",
        ("sink",),
        "The sink has no part in the maximum, and its exponential overflows.",
        PRIMES,
        op=SINK,
        arrays=("q", "k", "v", "d_out", "sinks"),
        draw={"sinks": around(95, 2), "bias": around(94, 2)},
        bias="nij",
    ),
    Recipe(
        "sinks-small",
        ("sink",),
        "The sink is shifted by a maximum in which it has a part of 0.",
        PRIMES,
        op=SINK,
        arrays=("q", "k", "v", "d_out", "sinks"),
        draw={"sinks": around(-40, 5)},
        smoke=False,
    ),
    Recipe(
        "sinks-empty-rows",
        ("sink-empty-row", "empty-row-output"),
        "Where no key is left the output is NaN, or the log-sum-exp −∞.",
        PRIMES,
        op=SINK,
        arrays=(*WITH_LSE, "sinks"),
        mask=every_other,
    ),
    Recipe(
        "sinks-decode",
        ("sink",),
        "Every head has the sink of its key/value head.",
        DECODE,
        op=SINK,
        arrays=("q", "k", "v", "d_out", "sinks"),
        draw={"sinks": around(0, 3)},
    ),
    Recipe(
        "sinks-long",
        ("sink", "sink-gradient"),
        "The sink joins the sum of every block of keys.",
        LONG,
        op=SINK,
        arrays=("q", "k", "v", "d_out", "sinks"),
        draw={"sinks": around(2, 1)},
        causal=upper_left,
        smoke=False,
    ),
    Recipe(
        "sinks-all-options",
        ("sink",),
        "The sink is capped, biased or dropped like a score.",
        PRIMES,
        op=SINK,
        arrays=(*WITH_LSE, "sinks"),
        **ALL_OPTIONS | {"draw": {"bias": around(0, 2), "sinks": around(2, 1)}},
    ),
    Recipe(
        "cosine",
        ("cosine", "cosine-gradient"),
        "Keys are not divided by their length, or scores by √d as well.",
        PRIMES,
        op=COSINE,
        arrays=(*WITH_LSE, "temperature"),
        draw={"temperature": around(6, 1), "k": around(1, 2)},
    ),
    Recipe(
        "cosine-default",
        ("cosine-temperature",),
        "The temperature is another than the default where none is given.",
        UNGROUPED,
        op=COSINE,
    ),
    Recipe(
        "cosine-short",
        ("cosine-eps", "cosine-gradient"),
        "eps is added to a length instead of being the least, or has no gradient.",
        PRIMES,
        op=COSINE,
        arrays=("q", "k", "v", "d_out", "temperature"),
        draw={"temperature": around(3, 1)},
        settings={"eps": 0.5},
        edit=_short,
    ),
    Recipe(
        "cosine-blocked-key-nan",
        ("cosine", "blocked-key"),
        "NaN in a key that nobody sees is spread by its length.",
        PRIMES,
        op=COSINE,
        causal=upper_left,
        edit=nan_in_unseen_keys,
    ),
    Recipe(
        "cosine-all-options",
        ("cosine-temperature",),
        "The temperature comes after the softcap.",
        PRIMES,
        op=COSINE,
        arrays=(*WITH_LSE, "temperature"),
        **ALL_OPTIONS
        | {"scale": None, "draw": {"bias": around(0, 2), "temperature": around(4, 1)}},
    ),
    Recipe(
        "cosine-empty-rows",
        ("cosine", "empty-row-output", "empty-row-gradients"),
        "A query without keys gives its temperature a gradient.",
        PRIMES,
        op=COSINE,
        arrays=(*WITH_LSE, "temperature"),
        draw={"temperature": positive},
        mask=every_other,
        smoke=False,
    ),
    Recipe(
        "additive",
        ("additive", "additive-gradient"),
        "The tanh is left out, or scores are divided by a root.",
        PRIMES,
        op=ADDITIVE,
        arrays=(*WITH_LSE, *WEIGHTS),
        draw={"w_q": weight, "w_k": weight},
        own_sizes=WIDE,
    ),
    Recipe(
        "additive-ungrouped",
        ("additive",),
        "Queries are projected by the weights of the keys.",
        UNGROUPED,
        op=ADDITIVE,
        arrays=("q", "k", "v", "d_out", *WEIGHTS),
        own_sizes=WIDE,
        causal=upper_left,
    ),
    Recipe(
        "additive-decode",
        ("additive", "additive-gradient"),
        "Every query head has the key weights of its own instead of its group's.",
        DECODE,
        op=ADDITIVE,
        arrays=("q", "k", "v", "d_out", *WEIGHTS),
        own_sizes={"a": 1},
        smoke=False,
    ),
    Recipe(
        "additive-all-options",
        ("additive",),
        "Bias, softcap or dropout are lost where scores are no products.",
        PRIMES,
        op=ADDITIVE,
        arrays=(*WITH_LSE, *WEIGHTS),
        own_sizes=WIDE,
        **ALL_OPTIONS | {"scale": None},
    ),
    Recipe(
        "additive-empty-rows",
        ("additive", "empty-row-output", "empty-row-gradients"),
        "A query without keys gives its weights a gradient.",
        PRIMES,
        op=ADDITIVE,
        arrays=(*WITH_LSE, *WEIGHTS),
        own_sizes=WIDE,
        mask=every_other,
    ),
    Recipe(
        "latent",
        ("latent", "latent-rotary"),
        "The scale is that of the content alone, or the rotary part is not turned.",
        MODEL,
        op=LATENT,
        arrays=("x", "d_out", *LATENT_WEIGHTS),
        draw=dict.fromkeys(LATENT_WEIGHTS, weight),
        own_sizes=LATENT_SIZES,
        causal=upper_left,
        resizable=False,
    ),
    Recipe(
        "latent-absorbed",
        ("latent-absorbed",),
        "Absorbed weights are those of another head, or the scale is of their width.",
        MODEL,
        op=LATENT,
        arrays=("x", "d_out", *LATENT_WEIGHTS),
        draw=dict.fromkeys(LATENT_WEIGHTS, weight),
        own_sizes=LATENT_SIZES,
        settings={"absorbed": True, "pairing": "interleaved"},
        resizable=False,
    ),
    Recipe(
        "latent-cross",
        ("latent", "latent-rotary"),
        "Keys and values come from x, or stand where the queries do.",
        CROSS,
        op=LATENT,
        arrays=("x", "context", "d_out", *LATENT_WEIGHTS),
        draw=dict.fromkeys(LATENT_WEIGHTS, weight),
        own_sizes=LATENT_SIZES,
        settings={"offset": [4, -2], "base": 100.0},
        random_mask=True,
        resizable=False,
    ),
    Recipe(
        "latent-cross-absorbed",
        ("latent-absorbed", "latent-rotary"),
        "The rotary part of the keys is absorbed as well.",
        CROSS._replace(i=4),
        op=LATENT,
        arrays=("x", "context", "d_out", *LATENT_WEIGHTS),
        draw=dict.fromkeys(LATENT_WEIGHTS, weight),
        own_sizes=LATENT_SIZES,
        settings={"offset": 3, "absorbed": True},
        mask=every_other,
        resizable=False,
    ),
    Recipe(
        "latent-one-head",
        ("latent",),
        "A single head, and a compressed width above the model's, are another case.",
        MODEL._replace(h=1, c=5),
        op=LATENT,
        arrays=("x", "d_out", *LATENT_WEIGHTS),
        draw=dict.fromkeys(LATENT_WEIGHTS, weight),
        own_sizes={"r": 9, "p": 2},
        resizable=False,
        smoke=False,
    ),
)

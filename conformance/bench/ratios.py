"""The ratios that were measured, beside their targets."""

import statistics
from typing import NamedTuple

from contenders import Setup


class Target(NamedTuple):
    """A ratio of two contenders' times, and the most that it is to be."""

    name: str
    over: str
    most: float
    backward: bool = False


FLASH, LIMIT = "torch flash", "matmul limit"
TARGETS = (
    Target("numpy blocked", FLASH, 0.9),
    Target("numpy blocked", FLASH, 0.95, backward=True),
    Target("numpy blocked", "numpy textbook", 0.45),
    Target("numpy blocked", LIMIT, 1.5),
    Target("jax blocked", "jax.nn", 0.33),
    Target("jax blocked", "jax.nn", 0.45, backward=True),
    Target("jax blocked", FLASH, 0.85),
    Target("jax blocked", FLASH, 0.95, backward=True),
    Target("torch blocked", FLASH, 1.2),
    Target("best of ours", "onnxruntime", 1.3),
    Target("numpy textbook", "numpy by hand", 1.05),
    Target("torch textbook", "torch by hand", 1.05),
    Target("jax textbook", "jax by hand", 1.05),
)
LENGTHS = (2048, 4096)
ROOMS = ("numpy", "torch", "jax")
CAUSAL_MOST, GROWTH_MOST, MEMORY_LEAST = 0.65, 17, 300


def read(found):
    """Setup → contender → seconds, and the memory, of the evidence."""
    points = {Setup(**point["setup"]): point["seconds"] for point in found["points"]}
    return points, found["memory"]


def table(points, memories):
    """The lines of a Markdown table: what, at each length, target, met or missed."""
    lengths = " | ".join(f"L = {length}" for length in LENGTHS)
    yield f"| time of … over that of … | {lengths} | target | |"
    yield "|---|" + "---|" * (len(LENGTHS) + 2)
    for target in TARGETS:
        passes = "forward + backward" if target.backward else "forward"
        setups = [Setup(8, x, backward=target.backward) for x in LENGTHS]
        ratios = [ratio(points, x, target.name, target.over) for x in setups]
        yield row(f"{target.name} / {target.over}, {passes}", ratios, target.most)
    for room in ROOMS:
        ratios = [causal_ratio(points, f"{room} blocked", length) for length in LENGTHS]
        yield row(f"{room} blocked, causal / not causal", ratios, CAUSAL_MOST)
    for room in ROOMS:
        grown = [None, growth(points, f"{room} blocked")]
        yield row(f"{room} blocked, L = 16384 / L = 4096, one head", grown, GROWTH_MOST)
    for room in ROOMS:
        saved = [None, memory_ratio(memories, room)]
        what = f"{room}, memory of textbook / of blocked, L = 16384, one head"
        yield row(what, saved, MEMORY_LEAST, least=True)


def row(what, ratios, bound, *, least=False):
    """One line; what was not measured is a dash."""
    cells = ["–" if x is None else f"{x:.3g}" for x in ratios]
    known = [x for x in ratios if x is not None]
    kept = all(x >= bound if least else x <= bound for x in known)
    verdict = ("met" if kept else "missed") if known else "not measured"
    # With a space at which no line breaks.
    target = f"{'≥' if least else '≤'}\N{NO-BREAK SPACE}{bound}"
    return f"| {what} | {' | '.join(cells)} | {target} | {verdict} |"


def ratio(points, setup, name, over):
    """The median of the rounds' ratios."""
    seconds = points.get(setup, {})
    if name == "best of ours":
        ours = [n for n in (f"{room} blocked" for room in ROOMS) if n in seconds]
        name = min(ours, key=lambda n: statistics.median(seconds[n]), default="")
    if name not in seconds or over not in seconds:
        return None
    pairs = zip(seconds[name], seconds[over], strict=True)
    return statistics.median(x / y for x, y in pairs)


def causal_ratio(points, name, length):
    """Causal over not causal; they are points of their own, so medians are compared."""
    times = [median(points, Setup(8, length, causal=x), name) for x in (True, False)]
    return None if None in times else times[0] / times[1]


def growth(points, name):
    """How much longer the longest input takes than a quarter of it."""
    times = [median(points, Setup(1, length), name) for length in (16384, 4096)]
    return None if None in times else times[0] / times[1]


def memory_ratio(memories, room):
    """What the process grew by, of the longest input measured there."""
    for one in memories:
        if one["room"] == room and one["length"] == 16384:
            return one["textbook"]["peak"] / max(one["blocked"]["peak"], 1)
    return None


def median(points, setup, name):
    """Seconds of a contender at a point, or None."""
    seconds = points.get(setup, {}).get(name)
    return None if seconds is None else statistics.median(seconds)

"""Error against cost, drawn from the evidence: a line for each family of points.

```{tradeoff} approximations.real
Linformer, means; Nyström; Performer      the families that are drawn
```

```{costs} approximations.real
Linformer, means; Nyström                 the same points, as a table
```

A place holds family → points, each with `operations` (a share of exact attention's),
`error`, and `low` and `high`, between which most errors lie.
"""

import math

from docutils.parsers.rst import directives
from drawings import figure, svg, text
from evidence import at, table, written
from sphinx.util.docutils import SphinxDirective

WIDE, HIGH = 430, 300
LEFT, TOP, RIGHT = 62, 34, 170

MARKS = (
    "M-5,0a5,5 0 1,0 10,0a5,5 0 1,0 -10,0z",
    "M-4.5,-4.5h9v9h-9z",
    "M0,-6L5.5,4.5H-5.5z",
    "M0,-6.5L6.5,0L0,6.5L-6.5,0z",
    "M-5.5,-4.5H5.5L0,6z",
    "M-5.5,-1.8h3.7v-3.7h3.6v3.7h3.7v3.6h-3.7v3.7h-3.6v-3.7h-3.7z",
    "M-5,-5L5,5L5,-5L-5,5z",
)
"""A shape for each family, so that none is told by its colour alone."""


def drawing(families):
    """Both axes logarithmic; exact attention is where the operations are 1."""
    points = [point for group in families.values() for point in group]
    costs = [math.log2(p["operations"]) for p in points]
    x_low, x_high = math.floor(min(costs) + 1e-9), max(0, math.ceil(max(costs) - 1e-9))
    errors = ticks([p[end] for p in points for end in ("low", "high")])
    y_low, y_high = (math.log(errors[place]) for place in (0, -1))

    def x(value):
        return LEFT + WIDE * (math.log2(value) - x_low) / (x_high - x_low)

    def y(value):
        return TOP + HIGH * (y_high - math.log(value)) / (y_high - y_low)

    body = [text(4, 16, "relative error of a head's output", font_size=13)]
    for error in errors:
        body.append(rule(LEFT, LEFT + WIDE, y(error), y(error)))
        name, place = f"{100 * error:g} %", y(error) + 4
        body.append(text(LEFT - 8, place, name, text_anchor="end", font_size=12))
    for power in range(x_low, x_high + 1):
        name = f"{2**power}" if power >= 0 else f"1/{2**-power}"
        place = x(2.0**power)
        body.append(
            text(place, TOP + HIGH + 18, name, text_anchor="middle", font_size=12)
        )
    body.append(rule(x(1), x(1), TOP, TOP + HIGH))
    body.append(
        text(LEFT, TOP + HIGH + 38, "operations, of exact attention's", font_size=13)
    )
    for n, (family, group) in enumerate(families.items(), 1):
        mark = MARKS[n - 1]
        places = [(x(p["operations"]), y(p["error"])) for p in group]
        line = " ".join(f"{a:.1f},{b:.1f}" for a, b in places)
        body.append(f'<polyline points="{line}" class="line-{n}"/>')
        for p, (a, b) in zip(group, places, strict=True):
            body.append(rule(a, a, y(p["low"]), y(p["high"]), f"line-{n}"))
            body.append(marked(mark, a, b, n))
        below = TOP + 22 * n
        body.append(marked(mark, LEFT + WIDE + 24, below - 4, n))
        body.append(text(LEFT + WIDE + 38, below, family, font_size=13))
    label = "relative error and share of the operations: " + "; ".join(
        f"{family} "
        + ", ".join(f"{p['error']:.2g} at {p['operations']:.2g}" for p in group)
        for family, group in families.items()
    )
    return svg(LEFT + WIDE + RIGHT, TOP + HIGH + 46, label, "".join(body))


def ticks(values):
    """1, 2, 5, 10, … from below all values to above them."""
    steps = [m * 10.0**power for power in range(-6, 6) for m in (1, 2, 5)]
    low = max(step for step in steps if step <= min(values))
    high = min(step for step in steps if step >= max(values))
    return [step for step in steps if low <= step <= high]


def rule(x0, x1, y0, y1, kind="rule"):
    """A straight line."""
    ends = f'x1="{x0:.1f}" x2="{x1:.1f}" y1="{y0:.1f}" y2="{y1:.1f}"'
    return f'<line {ends} class="{kind}"/>'


def marked(mark, x, y, n):
    """The shape of a family."""
    return f'<path d="{mark}" transform="translate({x:.1f} {y:.1f})" class="mark-{n}"/>'


class Families(SphinxDirective):
    """What both directives read: a place, and names by semicolons."""

    required_arguments = 1
    has_content = True

    def families(self):
        """Family → points, in the order of the content."""
        found = at(self.arguments[0])
        names = [name.strip() for name in " ".join(self.content).split(";")]
        return {name: found[name] for name in names}


class Tradeoff(Families):
    """`{tradeoff} PLACE`."""

    option_spec = {"caption": directives.unchanged}  # noqa: RUF012

    def run(self):
        """The figure."""
        return [figure(drawing(self.families()), self.options.get("caption", ""))]


class Costs(Families):
    """`{costs} PLACE`."""

    def run(self):
        """The table."""
        head = ["", "size", "operations", "numbers", "error", "of 8 heads in 10"]
        body = [
            [
                family if place == 0 else "",
                point["size"],
                written(point["operations"], ".1%"),
                written(point["numbers"], ".1%"),
                written(point["error"], ".1%"),
                f"{written(point['low'], '.1%')} to {written(point['high'], '.1%')}",
            ]
            for family, group in self.families().items()
            for place, point in enumerate(group)
        ]
        return self.parse_text_to_nodes(table(head, body))


def setup(app):
    """Registers the directives."""
    app.add_directive("tradeoff", Tradeoff)
    app.add_directive("costs", Costs)
    return {"parallel_read_safe": True}

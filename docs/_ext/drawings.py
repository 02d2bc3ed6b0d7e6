"""Figures, drawn from the evidence as SVG whose colours are those of the page.

```{weights} pronoun                  the weights of a head on the ten tokens
```{curve} answers.scale_by_width     lines over a width
```{maskgrid} causal 5 7 2             a mask: visible, or blocked and hatched
```{values} variants.shown.shaw_rows .0f     numbers for queries and keys
"""

import html
import math

from docutils import nodes
from docutils.parsers.rst import directives
from evidence import at, read, written
from sphinx.util.docutils import SphinxDirective

CELL, SMALL = 40, 24
LEFT, TOP = 74, 62


def svg(width, height, label, body):
    """The drawing; what a reader hears of it is its label."""
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" role="img" '
        f'aria-label="{html.escape(label, quote=True)}" '
        f'xmlns="http://www.w3.org/2000/svg">{HATCH}{body}</svg>'
    )


HATCH = (
    '<defs><pattern id="hatch" width="7" height="7" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)"><rect width="7" height="7" class="blocked"/>'
    '<line x1="0" y1="0" x2="0" y2="7" class="hatch"/></pattern></defs>'
)
"""What blocked cells are filled with: no weight, however small, looks like it."""


def text(x, y, words, **attributes):
    """One line of text."""
    extra = "".join(f' {k.replace("_", "-")}="{v}"' for k, v in attributes.items())
    return f'<text x="{x:g}" y="{y:g}"{extra}>{html.escape(words)}</text>'


def cell(x, y, side, value, words=None):
    """One weight from 0 to 1, or None where the key is blocked."""
    box = f'x="{x}" y="{y}" width="{side - 2}" height="{side - 2}" rx="3" class="edge"'
    if value is None:
        return f'<rect {box} fill="url(#hatch)"/>'
    fill = f"color-mix(in oklab,var(--high) {100 * value:.0f}%,var(--low))"
    drawn = f'<rect {box} style="fill:{fill}"/>'
    if side < CELL:  # too small for a number
        return drawn
    number = f"{value:.2f}".lstrip("0") if value < 0.995 else "1"
    number = number if words is None else words
    return drawn + text(
        x + side / 2 - 1,
        y + side / 2 + 4,
        number,
        text_anchor="middle",
        font_size=12,
        style=f"--share:{value:.2f}",
        **{"class": "ink"},
    )


def heat(rows, down, across, label, side=CELL, words=None):
    """A matrix of weights with a name for each row and column; or of other words."""
    middle = side / 2 + 4
    body = [
        text(LEFT - 8, TOP + side * i + middle, name, text_anchor="end", font_size=13)
        for i, name in enumerate(down)
    ]
    for j, name in enumerate(across):
        x, y = LEFT + side * j + middle, TOP - 8
        turned = f"rotate(-50 {x} {y})"
        body.append(text(x, y, name, font_size=13, transform=turned))
    for i, row in enumerate(rows):
        for j, value in enumerate(row):
            said = None if words is None else words[i][j]
            body.append(cell(LEFT + side * j, TOP + side * i, side, value, said))
    width = LEFT + side * len(across) + 34
    return svg(width, TOP + side * len(down) + 4, label, "".join(body))


def figure(drawing, caption=""):
    """The drawing as a figure of the page."""
    note = f"<figcaption>{html.escape(caption)}</figcaption>" if caption else ""
    markup = f'<figure class="drawing">{drawing}{note}</figure>'
    return nodes.raw("", markup, format="html")


class Weights(SphinxDirective):
    """`{weights} HEAD`: free, or `:causal:`; `:small:` has no numbers."""

    required_arguments = 1
    option_spec = {"causal": directives.flag, "small": directives.flag}  # noqa: RUF012
    has_content = True

    def run(self):
        """The figure."""
        evidence, name = read("sentence"), self.arguments[0]
        head, tokens = evidence["heads"][name], evidence["tokens"]
        rows = head["weights"]
        if "causal" in self.options:
            rows = [
                [value if j <= i else None for j, value in enumerate(row)]
                for i, row in enumerate(evidence["steps"]["causal"])
            ]
        where = f"layer {head['layer']}, head {head['head']}"
        label = f"weights of {where}, queries down, keys across: " + "; ".join(
            f"{token} looks most at {tokens[top]} ({row[top]:.2f})"
            for token, row in zip(tokens, rows, strict=True)
            for top in [max(range(10), key=lambda j: row[j] or 0)]
        )
        caption = " ".join(self.content) or f"{where}: queries down, keys across."
        side = SMALL if "small" in self.options else CELL
        return [figure(heat(rows, tokens, tokens, label, side), caption)]


class Values(SphinxDirective):
    """`{values} PLACE STYLE`: a number for each query and key, the greatest darkest."""

    required_arguments = 2
    has_content = True

    def run(self):
        """The figure."""
        place, style = self.arguments
        rows = at(place)
        words = [[written(value, style) for value in row] for row in rows]
        least, most = min(map(min, rows)), max(map(max, rows))
        shares = [[(value - least) / (most - least) for value in row] for row in rows]
        label = "; ".join(f"query {i}: {', '.join(row)}" for i, row in enumerate(words))
        down, across = (list(map(str, range(len(x)))) for x in (rows, rows[0]))
        drawing = heat(shares, down, across, label, words=words)
        return [figure(drawing, " ".join(self.content))]


class Grid(SphinxDirective):
    """`{maskgrid} NAME QUERIES KEYS`: a mask; its rule is a word of `MASKS`."""

    required_arguments = 1
    final_argument_whitespace = True
    has_content = True

    def run(self):
        """The figure."""
        name, queries, keys, *numbers = self.arguments[0].split()
        rule = MASKS[name]
        sizes = int(queries), int(keys)
        rows = [
            [rule(i, j, *map(int, numbers)) for j in range(sizes[1])]
            for i in range(sizes[0])
        ]
        body = []
        for i, row in enumerate(rows):
            body.append(text(18, 30 + 24 * i + 15, str(i), text_anchor="end"))
            for j, seen in enumerate(row):
                fill = 'class="seen"' if seen else 'fill="url(#hatch)"'
                x, y = 26 + 24 * j, 30 + 24 * i
                body.append(
                    f'<rect x="{x}" y="{y}" width="22" height="22" rx="3" {fill}/>'
                )
        body += [
            text(26 + 24 * j + 11, 22, str(j), text_anchor="middle")
            for j in range(sizes[1])
        ]
        label = "; ".join(
            f"query {i} sees keys {', '.join(str(j) for j, s in enumerate(row) if s)}"
            if any(row)
            else f"query {i} sees no key"
            for i, row in enumerate(rows)
        )
        drawing = svg(34 + 24 * sizes[1], 34 + 24 * sizes[0], label, "".join(body))
        return [figure(drawing, " ".join(self.content))]


MASKS = {
    "causal": lambda i, j, offset=0: j <= i + offset,
    "window": lambda i, j, left, right: i - left <= j <= i + right,
    "padding": lambda i, j, length: j < length,
    "causal-padding": lambda i, j, length: j <= i and j < length,
    "prefix": lambda i, j, n: j <= i or j < n,
    "all": lambda i, j: True,
    "strided": lambda i, j, n: j <= i and (i - j < n or (i - j) % n == 0),
    "fixed": lambda i, j, n, c: j <= i and (i // n == j // n or j % n >= n - c),
    "block-local": lambda i, j, size: i // size == j // size,
    "dilated": lambda i, j, left, right, r: (
        -left * r <= j - i <= right * r and (j - i) % r == 0
    ),
    "longformer": lambda i, j, w: abs(i - j) <= w or 0 in (i, j),
}


class Curve(SphinxDirective):
    """`{curve} PLACE`: lines over `d`; in its content `key heading` by semicolons.

    `:x: key heading` names another axis; `:log:` is that of the values.
    """

    required_arguments = 1
    option_spec = {  # noqa: RUF012
        "x": directives.unchanged_required,
        "y": directives.unchanged_required,
        "log": directives.flag,
    }
    has_content = True

    def run(self):
        """The figure."""
        records = at(self.arguments[0])
        lines = [part.split(None, 1) for part in " ".join(self.content).split(";")]
        across, x_name = self.options.get("x", "d width d").split(None, 1)
        drawing = chart(
            [record[across] for record in records],
            {name: [r[key] for r in records] for key, name in lines},
            (x_name, self.options["y"]),
            "log" in self.options,
        )
        return [figure(drawing)]


def chart(widths, series, names, is_log):
    """Lines over a logarithmic axis of widths, or of what is named."""
    x_name, y_name = names
    wide, high, left, top = 640, 250, 60, 30
    values = [value for line in series.values() for value in line]
    if is_log:
        low, most = math.floor(math.log10(min(values))), math.log10(max(values))
        most = math.ceil(most)
        ticks = {10.0**n: f"1e{n}" if n else "1" for n in range(low, most + 1, 2)}
        height = lambda v: (math.log10(v) - low) / (most - low)  # noqa: E731
    else:
        step = 10 ** math.floor(math.log10(max(values)))
        most = step * math.ceil(max(values) / step)
        below = min(0, math.floor(4 * min(values) / most))
        low, ticks = most * below / 4, [most * n / 4 for n in range(below, 5)]
        ticks = {value: f"{value:g}".replace("-", "−") for value in ticks}
        height = lambda v: (v - low) / (most - low)  # noqa: E731
    first, last = math.log(widths[0]), math.log(widths[-1])

    def x(d):
        return left + (wide - left - 150) * (math.log(d) - first) / (last - first)

    def y(value):
        return top + high * (1 - height(value))

    body = [text(4, 14, y_name, font_size=13)]
    for value, name in ticks.items():
        body.append(
            f'<line x1="{left}" x2="{wide - 150}" y1="{y(value):.1f}" '
            f'y2="{y(value):.1f}" class="rule"/>'
        )
        body.append(text(left - 8, y(value) + 4, name, text_anchor="end", font_size=12))
    few = widths if len(widths) < 12 else [4**n for n in range(9) if 4**n <= widths[-1]]
    for d in few:
        body.append(
            text(x(d), top + high + 18, str(d), text_anchor="middle", font_size=12)
        )
    body.append(text(wide - 110, top + high + 18, x_name, font_size=13))
    for n, (name, line) in enumerate(series.items(), 1):
        points = " ".join(
            f"{x(d):.1f},{y(v):.1f}" for d, v in zip(widths, line, strict=True)
        )
        dashes = ' stroke-dasharray="6 4"' if n % 2 == 0 else ""
        body.append(f'<polyline points="{points}" class="line-{n}"{dashes}/>')
        body.append(text(x(widths[-1]) + 8, y(line[-1]) + 4, name, font_size=13))
    label = f"{y_name}, over {x_name}: " + "; ".join(
        f"{name} {line[0]:.3g} at {widths[0]}, {line[-1]:.3g} at {widths[-1]}"
        for name, line in series.items()
    )
    return svg(wide, top + high + 28, label, "".join(body))


def setup(app):
    """Registers the directives."""
    app.add_directive("weights", Weights)
    app.add_directive("values", Values)
    app.add_directive("maskgrid", Grid)
    app.add_directive("curve", Curve)
    return {"parallel_read_safe": True}

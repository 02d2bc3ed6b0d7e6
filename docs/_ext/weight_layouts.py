"""The layouts of weights as tables, from the data itself.

```{layouts}
```

The spec is imported: it needs the standard library only, and its data is not text.
"""

import sys
from pathlib import Path

from evidence import UNBROKEN, read, table, written
from sphinx.util.docutils import SphinxDirective

sys.path.insert(0, str(Path(__file__).parents[2] / "impls"))

from attnref.spec.weights import LAYOUTS

WEIGHTS = ("w_q", "w_k", "w_v", "w_o")
BIASES = ("b_q", "b_k", "b_v", "b_o")
WAYS = ("loaded_theirs", "loaded_ours", "dumped_theirs", "dumped_ours")


def coded(words):
    """Each as code, on a line of its own."""
    return "<br>".join(f"`{word.replace(' ', UNBROKEN)}`" for word in words) or "–"


def place(layout, parameter):
    """The name and the axes of one parameter's array."""
    if parameter not in layout.entries:
        return "–"
    name, axes = layout.entries[parameter]
    return f"`{name}`<br>`{axes}`"


def rows():
    """Three tables: what the layouts are, where weights are, where biases are."""
    head = ["layout", "of", "takes to be equal", "may be missing, together", "rotary"]
    yield (
        head,
        [
            [
                f"`{name}`",
                layout.of,
                coded(layout.equal),
                coded(layout.optional),
                layout.pairing or "–",
            ]
            for name, layout in LAYOUTS.items()
        ],
    )
    for parameters in (WEIGHTS, BIASES):
        yield (
            ["layout", *(f"`{x}`" for x in parameters)],
            [
                [f"`{name}`", *(place(layout, x) for x in parameters)]
                for name, layout in LAYOUTS.items()
            ],
        )


class Layouts(SphinxDirective):
    """`{layouts}`: the tables."""

    def run(self):
        """One after the other."""
        tables = (table(head, body).replace("--:", "---") for head, body in rows())
        return self.parse_text_to_nodes("\n\n".join(tables))


class Carried(SphinxDirective):
    """`{carried}`: how far library and room are from the definition."""

    def run(self):
        """A row a layer, and what was measured."""
        found = read("weights")
        head = ["layer", *(way.replace("_", ", ") for way in WAYS)]
        body = [
            [f"{layer['of']}<br>({name})", *(written(layer[x], ".1%") for x in WAYS)]
            for name, layer in found["layers"].items()
        ]
        versions = ", ".join(f"{name} {v}" for name, v in found["versions"].items())
        note = (
            "The greatest share of its budget that an element of the output uses. "
            f"float32, profile {found['profile']}. {versions}. {found['date']}. "
            "Source: `docs/evidence/weights.json`."
        )
        return self.parse_text_to_nodes(f"{table(head, body)}\n\n{note}\n")


def setup(app):
    """Registers the directives."""
    app.add_directive("layouts", Layouts)
    app.add_directive("carried", Carried)
    return {"parallel_read_safe": True}

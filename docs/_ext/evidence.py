"""Numbers on pages, read from the evidence files and from nowhere else.

{n}`answers.scale_by_width.5.std .1f`     one number, in a line
```{measured} scores                      how far the rooms are, in a table
```{agreement} rotary_attention           the same of a variant, in cases of its own
```{libraries} causal window              what two libraries do, in a table
```{records} answers.scale_by_width       a list of records, as a table, and its
d d width; std .1f standard deviation     columns: key, style, heading
"""

import json
from functools import cache
from pathlib import Path

from docutils import nodes
from rooms_side_by_side import NAMES, rooms
from sphinx.util.docutils import SphinxDirective, SphinxRole

FOLDER = Path(__file__).parents[1] / "evidence"
TYPES = {"F64": "float64", "F32": "float32", "BF16": "bfloat16", "F16": "float16"}


UNBROKEN = "\N{NO-BREAK SPACE}"


@cache
def read(name):
    """An evidence file."""
    return json.loads((FOLDER / f"{name}.json").read_text("utf-8"))


def at(place):
    """What lies at `file.key.0.key`.

    Raises:
        KeyError, IndexError: there is no such place.
    """
    name, *keys = place.split(".")
    found = read(name)
    for key in keys:
        found = found[int(key) if isinstance(found, list) else key]
    return found


def written(value, style=""):
    """A number as it is read: `1.2 × 10⁻⁷`, `37 %`, or in a style of Python's."""
    if isinstance(value, str):
        return value
    if style.startswith("e"):
        digits, power = f"{value:.{style[1:] or 1}e}".split("e")
        if float(digits) == 0:
            return "0"
        raised = str(int(power)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
        return f"{digits} × 10{raised}"
    if style.endswith("%"):
        return f"{value:{style}}".replace("%", " %")
    return f"{value:{style}}".replace("-", "−")


def shared(cell):
    """An error, and what share of its budget it is."""
    share = written(cell["used"], ".1%").replace(" ", UNBROKEN)
    return f"{written(cell['error'], 'e').replace(' ', UNBROKEN)}<br>{share}"


class Number(SphinxRole):
    """`{n}` with a place, and a style if it has one."""

    def run(self):
        """The number as text."""
        place, _, style = self.text.partition(" ")
        return [nodes.Text(written(at(place), style))], []


class Measured(SphinxDirective):
    """`{measured} RESULT`: the greatest error of each room, and what share it is."""

    required_arguments = 1

    def run(self):
        """A table, and what was measured."""
        name, steps = self.arguments[0], read("steps")
        cells = {room: steps["rooms"][room][name] for room in rooms()}
        types = [t for t in TYPES if all(t in cell for cell in cells.values())]
        head = ["", *(TYPES[t] for t in types)]
        body = [
            [NAMES.get(room, room), *(shared(cell[t]) for t in types)]
            for room, cell in cells.items()
        ]
        sizes = steps["sizes"]
        axes = ", ".join(f"{axis} {sizes[axis]}" for axis in "bnhijde")
        versions = ", ".join(steps["versions"][room] for room in rooms())
        note = (
            "The greatest error, and the greatest share of a budget that is used. "
            f"“{steps['sentence']}”, ten tokens in the last layer of all-MiniLM-L6-v2, "
            f"causal: {axes}. Profile {steps['profile']}, seed {steps['seed']} for "
            f"incoming gradients. {versions}. {steps['date']}. "
            "Source: `docs/evidence/steps.json`."
        )
        markdown = f"{table(head, body)}\n\n{note}\n"
        box = nodes.container(classes=["measured"])
        box += self.parse_text_to_nodes(markdown)
        return [box]


class Agreement(SphinxDirective):
    """`{agreement} FUNCTION`: likewise of a variant, in cases of the judge."""

    required_arguments = 1

    def run(self):
        """A table, and what was measured."""
        name, found = self.arguments[0], read("variants")
        own = [room for room in rooms() if room in found["rooms"]]
        cells = {room: found["rooms"][room][name] for room in own}
        cases = [f"`{case}`" for case in found["measured"][name]]
        head = ["", *TYPES.values()]
        body = [
            [
                f"{words}, {NAMES.get(room, room)}",
                *(
                    shared(cell[x][t]) if t in cell[x] else "not measured"
                    for t in TYPES
                ),
            ]
            for x, words in RESULTS.items()
            for room, cell in cells.items()
            if x in cell
        ]
        versions = ", ".join(found["versions"][room] for room in own)
        note = (
            "The greatest error, and the greatest share of a budget that is used. "
            f"Of the cases of `attncheck`: {' and '.join(cases)}. "
            f"Profile {found['profile']}. "
            f"{versions}. {found['date']}. Source: `docs/evidence/variants.json`."
        )
        box = nodes.container(classes=["measured"])
        box += self.parse_text_to_nodes(f"{table(head, body)}\n\n{note}\n")
        return [box]


RESULTS = {"output": "output", "lse": "log-sum-exp", "gradients": "gradients"}


class Records(SphinxDirective):
    """`{records} PLACE`, and in its content the columns: key, style, heading."""

    required_arguments = 1
    has_content = True

    def run(self):
        """The table."""
        records = at(self.arguments[0])
        if isinstance(records, dict):
            records = [
                {"name": key, **values} for key, values in sorted(records.items())
            ]
        columns = [part.split(None, 2) for part in " ".join(self.content).split(";")]
        head = [heading for _, _, heading in columns]
        body = [
            [
                str(record[key]) if style == "s" else written(record[key], style)
                for key, style, _ in columns
            ]
            for record in records
        ]
        return self.parse_text_to_nodes(table(head, body))


class Libraries(SphinxDirective):
    """`{libraries} FIELD…`: what two functions do in fields of the conventions."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self):
        """A row a field, in each cell the value and what showed it."""
        subjects = [read("diff")[letter] for letter in "ab"]
        head = ["convention", "the spec", *(NAMES[s["framework"]] for s in subjects)]
        body = []
        for field in self.arguments[0].split():
            found = [subject["conventions"][field] for subject in subjects]
            spec = found[0]["spec"]
            cells = [
                self.said(one["value"] if one["measured"] else "not measured", one)
                for one in found
            ]
            body.append([f"`{field}`", f"`{spec}`", *cells])
        functions = " and ".join(
            f"`{subject['name'].replace(':', '.')}` ({subject['version']})"
            for subject in subjects
        )
        lines = table(head, body).replace("--:", "---")
        note = f"{functions}, measured by `attncheck diff`: `docs/evidence/diff.json`."
        box = nodes.container(classes=["measured"])
        box += self.parse_text_to_nodes(f"{lines}\n\n{note}\n")
        return [box]

    @staticmethod
    def said(value, field):
        """The value, and what showed it."""
        shown = field["shown"].replace("|", "\\|")
        return f"**{'none' if value is None else value}**: {shown}"


class Board(SphinxDirective):
    """`{board} FIELD…`: what every library on the board does in those fields."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self):
        """A row a library; what differs from the spec is marked."""
        fields, rows = self.arguments[0].split(), read("board")["rows"]
        body = [
            [f"`{row['name']}`", *(self.said(row["conventions"][f]) for f in fields)]
            for row in rows
        ]
        head = ["implementation", *(f"`{field}`" for field in fields)]
        lines = table(head, body).replace("--:", "---")
        note = (
            "≠ differs from the spec; ? could not be measured. [The board](/board.md)."
        )
        box = nodes.container(classes=["measured"])
        box += self.parse_text_to_nodes(f"{lines}\n\n{note}\n")
        return [box]

    @staticmethod
    def said(one):
        """One value."""
        if not one["measured"]:
            return "?"
        value = "none" if one["value"] is None else str(one["value"])
        return value if one["value"] == one["spec"] else f"≠ **{value}**"


def table(head, body):
    """A table in Markdown, numbers to the right."""
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def setup(app):
    """Registers role and directives."""
    app.add_role("n", Number())
    app.add_directive("measured", Measured)
    app.add_directive("agreement", Agreement)
    app.add_directive("records", Records)
    app.add_directive("libraries", Libraries)
    app.add_directive("board", Board)
    return {"parallel_read_safe": True}

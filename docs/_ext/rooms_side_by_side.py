"""The same step in every framework, in tabs that stay in step with each other.

    ```{rooms} softmax.py softmax
    ```

shows that function of every room, and under "All" one under the other.  The rooms are
found by their folders, so a new one has its tab by being there.  `?framework=jax` in
the address opens a tab; the choice is remembered.  A function that only some rooms have
is shown in those.
"""

import re
from pathlib import Path

from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).parents[2]
IMPLS = ROOT / "impls" / "attnref"
NAMES = {"numpy": "NumPy", "torch": "PyTorch", "jax": "JAX"}
"""Folder → how its framework is written; these first, and in this order."""

FENCE = "`" * 3


def rooms():
    """The folders of the rooms."""
    found = {path.parent.name for path in IMPLS.glob("*/attention.py")}
    return [*(n for n in NAMES if n in found), *sorted(found - NAMES.keys())]


def code(room, file, functions):
    """Those of the functions that a room has, pulled from its file."""
    defined = set(re.findall(r"^(?:def|class) (\w+)", source(room, file), re.MULTILINE))
    functions = [function for function in functions if function in defined]
    caption = f":caption: impls/attnref/{room}/{file}"
    return "\n".join(
        f"{FENCE}{{literalinclude}} /../impls/attnref/{room}/{file}\n"
        f":pyobject: {function}\n{caption if not n else ''}\n{FENCE}\n"
        for n, function in enumerate(functions)
    )


def source(room, file):
    """The text of a room's file."""
    return (IMPLS / room / file).read_text("utf-8")


def tab(title, sync, content):
    """One tab."""
    fence = FENCE + "`"
    return f"{fence}{{tab-item}} {title}\n:sync: {sync}\n\n{content}\n{fence}\n"


class Rooms(SphinxDirective):
    """`{rooms} FILE FUNCTION…`."""

    required_arguments = 2
    optional_arguments = 0
    final_argument_whitespace = True

    def run(self):
        """The tabs."""
        file, functions = self.arguments[0], self.arguments[1].split()
        shared = "".join(source(room, file) for room in rooms())
        for function in functions:
            if not re.search(rf"^(def|class) {function}\b", shared, re.MULTILINE):
                raise self.error(f"no room has {function} in {file}")
        codes = {room: code(room, file, functions) for room in rooms()}
        tabs = [
            *(tab(NAMES.get(r, r), r, text) for r, text in codes.items()),
            tab("All", "all", "\n".join(codes.values())),
        ]
        fence = FENCE + "``"
        head = f"{fence}{{tab-set}}\n:sync-group: framework\n\n"
        for room in rooms():
            self.env.note_dependency(str(IMPLS / room / file))
        return self.parse_text_to_nodes(head + "\n".join(tabs) + f"{fence}\n")


class Mistake(SphinxDirective):
    """`{mistake} NAME`: what is wrong and what is right, from the file that is run."""

    required_arguments = 1
    optional_arguments = 9

    def run(self):
        """The functions `wrong` and `right`, or those that are named."""
        name, *functions = self.arguments
        file = f"conformance/pages/mistakes/{name}.py"
        self.env.note_dependency(str(ROOT / file))
        return self.parse_text_to_nodes(
            "\n".join(
                f"{FENCE}{{literalinclude}} /../{file}\n:pyobject: {function}\n"
                f":class: {function}\n{FENCE}\n"
                for function in functions or ("wrong", "right")
            )
        )


def setup(app):
    """Registers the directives."""
    app.add_directive("rooms", Rooms)
    app.add_directive("mistake", Mistake)
    return {"parallel_read_safe": True}

"""Reference pages from signatures and docstrings, read as text: nothing is imported.

    ```{api} impls/attnref/torch
    ```

shows every public name of a package: those in its `__all__`, in the files that its
`__init__.py` takes them from.
"""

import ast
import re
import textwrap
from pathlib import Path

from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).parents[2]
SECTION = re.compile(r"(Args|Returns|Raises|Source|Yields):\s*")
LISTED = ("Args", "Raises")
ITEM = re.compile(r"(\w[\w, ]*): ")


def home_of(node, file):
    """The file that `from … import` in `file` takes its names from."""
    if node.level:
        path = file.parent / node.module.replace(".", "/")
    else:
        root = next(r for r in ("impls", "conformance") if (ROOT / r) in file.parents)
        path = ROOT / root / node.module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def imports(file):
    """Name → the file that it is imported from."""
    return {
        alias.name: home_of(node, file)
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }


def public(file):
    """The names in `__all__`."""
    for node in ast.parse(file.read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and node.targets[0].id == "__all__":
            return sorted(ast.literal_eval(node.value), key=str.lower)
    raise ValueError(f"{file} has no __all__")


def definition(name, file):
    """The node that defines a name, and its file; imports are followed."""
    for node in ast.parse(file.read_text("utf-8")).body:
        if getattr(node, "name", None) == name:
            return node, file
        targets = getattr(node, "targets", None) or [getattr(node, "target", None)]
        if name in [getattr(target, "id", None) for target in targets]:
            return node, file
    return definition(name, imports(file)[name])


def signature(node):
    """As it is called."""
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(map(ast.unparse, node.bases))
        return f"class {node.name}({bases})" if bases else f"class {node.name}"
    one_line = f"{node.name}({ast.unparse(node.args)})"
    if len(one_line) <= 76:
        return one_line
    arguments = re.sub(r", (?![^\[(]*[\])])", ",\n    ", ast.unparse(node.args))
    return f"{node.name}(\n    {arguments},\n)"


def markdown(docstring):
    """Sections as bold words, arguments and errors in them as lists."""
    lines, section = [], None
    for line in docstring.splitlines():
        if found := SECTION.match(line):
            section = found.group(1)
            words = line[found.end() :]
            lines += ["", f"**{section}** {words}".rstrip(), *([] if words else [""])]
        elif section and line.startswith("    "):
            text = line.removeprefix("    ")
            item = ITEM.match(text) if section in LISTED else None
            if item:
                text = f"* `{item.group(1)}`: {text[item.end() :]}"
            else:
                text = textwrap.indent(text.lstrip(), "  " if lines[-1] else "")
            lines.append(text)
        else:
            section = section if not line.strip() else None
            lines.append(line)
    return "\n".join(lines)


def fields(node):
    """The fields of a class, each with its type and the string below it."""
    said = zip(node.body, [*node.body[1:], None], strict=True)
    for field, below in said:
        if isinstance(field, ast.AnnAssign) and not field.target.id.startswith("_"):
            value = getattr(getattr(below, "value", None), "value", "")
            text = " ".join(value.split()) if isinstance(value, str) else ""
            kind = ast.unparse(field.annotation).replace("|", "or")
            yield f"* `{field.target.id}` ({kind}): {text}".rstrip(": ")


class Api(SphinxDirective):
    """`{api} FOLDER`."""

    required_arguments = 1

    def run(self):
        """A section a name."""
        parts, front = [], ROOT / self.arguments[0] / "__init__.py"
        for name in public(front):
            node, home = definition(name, front)
            self.env.note_dependency(str(home))
            place = home.relative_to(ROOT)
            if not isinstance(node, ast.FunctionDef | ast.ClassDef):
                parts.append(f"## {name}\n\nA constant, in `{place}`.\n")
                continue
            docs = markdown(ast.get_docstring(node) or "")
            rows = list(fields(node)) if isinstance(node, ast.ClassDef) else []
            parts.append(
                f"## {name}\n\n```python\n{signature(node)}\n```\n\n{docs}\n\n"
                + "\n".join(rows)
                + f"\n\n`{place}`\n"
            )
        return self.parse_text_to_nodes("\n".join(parts), allow_section_headings=True)


def setup(app):
    """Registers the directive."""
    app.add_directive("api", Api)
    return {"parallel_read_safe": True}

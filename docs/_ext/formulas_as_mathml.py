"""Formulas as MathML, which browsers draw themselves: no script and no font to load."""

import html
import re

from docutils import nodes
from latex2mathml.converter import convert

REWRITES = (
    (re.compile(r"\\[bB]ig[lr]?(?![a-zA-Z])"), ""),  # MathML stretches by itself
    (re.compile(r"\\!"), ""),
    (re.compile(r"_\{\\max\}"), r"_{\\mathrm{max}}"),  # a name, not an operator
)
"""LaTeX that the converter has no words for, or draws badly."""

BAR = '<mo stretchy="false">&#x0007C;</mo>'
"""The converter's bar of an absolute value, which an operator's spaces surround."""


def mathml(latex, display="inline"):
    """The `<math>` element, with its LaTeX for those who copy or hear it."""
    plain = latex
    for pattern, words in REWRITES:
        plain = pattern.sub(words, plain)
    element = convert(plain, display=display).replace(BAR, "<mi>|</mi>")
    if re.search(r"\\[a-zA-Z]+", element):
        raise ValueError(f"a formula that MathML has no words for: {latex}")
    label = html.escape(" ".join(latex.split()), quote=True)
    return element.replace("<math ", f'<math alttext="{label}" ', 1)


def visit_inline(translator, node):
    """`$x$` in a line."""
    translator.body.append(mathml(node.astext()))
    raise nodes.SkipNode


def visit_display(translator, node):
    """`$$x$$` in a block of its own, which scrolls where it is too wide."""
    block = mathml(node.astext(), "block")
    translator.body.append(
        f'<div class="formula" tabindex="0" role="group">{block}</div>\n'
    )
    raise nodes.SkipNode


def setup(app):
    """Makes `html_math_renderer = "mathml"` known."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_display, None))
    return {"parallel_read_safe": True}

"""`{explorer}`: the page that computes, with its numbers in it; works from a file."""

import json

from docutils import nodes
from evidence import read
from sphinx.util.docutils import SphinxDirective

HEADS = {
    "pronoun": "layer 5, head 11: looks at “cat”",
    "next": "layer 1, head 8: the token after",
    "previous": "layer 0, head 2: the token before",
    "first": "layer 2, head 9: mostly [CLS]",
}
STEPS = {
    "scores": "scores",
    "logits": "scale and softcap",
    "masked": "mask",
    "weights": "softmax",
    "output": "· V",
}
MASKS = {
    "none": "none",
    "causal": "causal",
    "window": "window of 3 keys, causal",
    "padding": "padding: the last two",
}
FAULTS = {
    "": "nothing",
    "no-scale": "leave out the scale",
    "polarity": "take True for blocked",
    "after": "mask after softmax",
    "twice": "softmax, mask, softmax",
}


def choice(name, label, options, chosen):
    """A labelled list."""
    lines = "".join(
        f'<option value="{key}"{" selected" if key == chosen else ""}>{text}</option>'
        for key, text in options.items()
    )
    return f'<label>{label}<select name="{name}">{lines}</select></label>'


def number(name, label, low, high, step, value):
    """A labelled slider that shows its value."""
    return (
        f'<label>{label} <output for="{name}">{value}</output>'
        f'<input type="range" name="{name}" min="{low}" max="{high}" step="{step}" '
        f'value="{value}"></label>'
    )


class Explorer(SphinxDirective):
    """The element; the script gives it life."""

    def run(self):
        """Form, table and numbers."""
        evidence = read("sentence")
        data = {key: evidence[key] for key in ("tokens", "inputs")}
        fields = (
            choice("head", "head", HEADS, "pronoun")
            + choice("step", "step", STEPS, "weights")
            + choice("mask", "mask", MASKS, "none")
            + number("offset", "offset", -4, 4, 1, 0)
            + number("scale", "scale, times 1/√d", -1, 4, 0.25, 1)
            + number("softcap", "softcap, 0 for none", 0, 10, 0.5, 0)
            + choice("fault", "break it", FAULTS, "")
        )
        markup = (
            f"<attention-explorer><form>{fields}</form>"
            '<div class="matrix" tabindex="0" role="group" aria-label="matrix">'
            "<table></table></div>"
            '<p data-say aria-live="polite"></p>'
            f'<script type="application/json">{json.dumps(data)}</script>'
            "</attention-explorer>"
        )
        return [nodes.raw("", markup, format="html")]


def setup(app):
    """Registers the directive, and the script for the pages that have it."""
    app.add_directive("explorer", Explorer)
    app.connect("html-page-context", with_script)
    return {"parallel_read_safe": True}


def with_script(app, page, template, context, doctree):
    """Adds the script to the page of the explorer."""
    if page == "explorer":
        app.add_js_file("explorer.js", loading_method="defer")

"""The report as one HTML page that needs nothing else."""

import base64
import hashlib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from attncheck.report import drawing, words

PLACE = files("attncheck.report")
STYLE, SCRIPT = ((PLACE / f"page.{kind}").read_text("utf-8") for kind in ("css", "js"))
"""They hold nothing of a report: no text of a subject ever stands in one."""

SHOWN_KINDS = 40
"""Kinds of failures of a subject that are shown one by one; the others are listed."""


def as_html(report: Mapping[str, Any]) -> str:
    """The page; made of the report alone.

    Its policy lets the one script run that is the page's own, and loads nothing.
    """
    environment = Environment(
        loader=PackageLoader("attncheck.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    named = (
        *(words.share, words.of_budget, words.percent, words.amount, words.counted),
        *(words.diagnosis, words.element, words.excess, words.law, words.shares),
        *(words.counts, words.used, words.outcome, words.by_kind, words.was_judged),
        *(
            words.noisy,
            words.causes,
            words.left_out,
            drawing.width,
            drawing.layers,
            drawing.caption,
            drawing.parts,
        ),
    )
    environment.filters |= {function.__name__: function for function in named}
    dtypes = dict.fromkeys(d for s in report["subjects"] for d in s["dtypes"])
    return environment.get_template("page.html.j2").render(
        report,
        dtypes=list(dtypes),
        shades=list(enumerate(drawing.WORDS)),
        failing=words.is_failing,
        shown_kinds=SHOWN_KINDS,
        style=Markup(STYLE),
        script=Markup(SCRIPT),
        policy=_policy(),
    )


def _policy() -> str:
    """Nothing is loaded, and no script runs but the page's own."""
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )

"""The report as one HTML page that needs nothing else."""

from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from attncheck.report import words


def as_html(report: Mapping[str, Any]) -> str:
    """The page; made of the report alone."""
    environment = Environment(
        loader=PackageLoader("attncheck.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "share": words.share,
        "of_budget": words.of_budget,
        "percent": words.percent,
        "amount": words.amount,
        "diagnosis": words.diagnosis,
        "element": words.element,
        "excess": words.excess,
        "law": words.law,
        "noisy": words.noisy,
        "shares": words.shares,
        "counts": words.counts,
    }
    dtypes = dict.fromkeys(d for s in report["subjects"] for d in s["dtypes"])
    return environment.get_template("page.html.j2").render(report, dtypes=list(dtypes))

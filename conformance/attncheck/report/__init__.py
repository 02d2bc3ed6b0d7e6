"""A run as documents: JSON for machines, text for terminals, HTML for readers.

`summary` makes the JSON document; the others render that document and nothing else, so
no two of them can disagree.
"""

from attncheck.report.html import as_html
from attncheck.report.summary import summary
from attncheck.report.text import print_text

__all__ = ["as_html", "print_text", "summary"]

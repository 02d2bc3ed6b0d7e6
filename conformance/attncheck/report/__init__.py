"""A run as documents: JSON for machines, text for terminals, HTML for readers.

`summary` makes the JSON document; the others render that document and nothing else, so
no two of them can disagree.
"""

from attncheck.report.board import board_as_html, print_board
from attncheck.report.diff import diff_summary, print_diff
from attncheck.report.fingerprint import fingerprint_summary, print_fingerprint
from attncheck.report.html import as_html
from attncheck.report.summary import summary
from attncheck.report.text import print_text

__all__ = [
    "as_html",
    "board_as_html",
    "diff_summary",
    "fingerprint_summary",
    "print_board",
    "print_diff",
    "print_fingerprint",
    "print_text",
    "summary",
]

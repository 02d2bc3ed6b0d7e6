"""What the libraries do that are installed here: measured, judged, in one table."""

from attncheck.board.against import changes
from attncheck.board.measure import BOARD, installed, measure
from attncheck.board.row import SCHEMA, board, merged, read

__all__ = [
    "BOARD",
    "SCHEMA",
    "board",
    "changes",
    "installed",
    "measure",
    "merged",
    "read",
]

"""What the rooms share: letters, patterns, masks, conventions, and the words of errors.

Standard library and einops only; importing it imports no framework.
"""

from attnref.spec.axes import AXES
from attnref.spec.batches import (
    Layout,
    Waste,
    by_bucket,
    by_length,
    first_fit_decreasing,
    in_order,
    layout,
    waste_of_batches,
    waste_of_rows,
)
from attnref.spec.conventions import SPEC, Conventions
from attnref.spec.layouts import gather_pages, pack, unpack
from attnref.spec.masks import Mask, causal, padding, prefix, segments, window
from attnref.spec.patterns import STEPS, Step
from attnref.spec.relative import alibi_slopes, shaw_row, t5_bucket
from attnref.spec.rings import balanced_order
from attnref.spec.sparse import (
    block_local,
    dilated_window,
    fixed,
    global_positions,
    listed_blocks,
    strided,
)

__all__ = [
    "AXES",
    "SPEC",
    "STEPS",
    "Conventions",
    "Layout",
    "Mask",
    "Step",
    "Waste",
    "alibi_slopes",
    "balanced_order",
    "block_local",
    "by_bucket",
    "by_length",
    "causal",
    "dilated_window",
    "first_fit_decreasing",
    "fixed",
    "gather_pages",
    "global_positions",
    "in_order",
    "layout",
    "listed_blocks",
    "pack",
    "padding",
    "prefix",
    "segments",
    "shaw_row",
    "strided",
    "t5_bucket",
    "unpack",
    "waste_of_batches",
    "waste_of_rows",
    "window",
]

"""What the rooms share: letters, patterns, masks, conventions, and the words of errors.

Standard library and einops only; importing it imports no framework.
"""

from attnref.spec.axes import AXES
from attnref.spec.conventions import SPEC, Conventions
from attnref.spec.layouts import gather_pages, pack, unpack
from attnref.spec.masks import Mask, causal, padding, prefix, segments, window
from attnref.spec.patterns import STEPS, Step
from attnref.spec.relative import alibi_slopes, shaw_row, t5_bucket
from attnref.spec.rings import balanced_order

__all__ = [
    "AXES",
    "SPEC",
    "STEPS",
    "Conventions",
    "Mask",
    "Step",
    "alibi_slopes",
    "balanced_order",
    "causal",
    "gather_pages",
    "pack",
    "padding",
    "prefix",
    "segments",
    "shaw_row",
    "t5_bucket",
    "unpack",
    "window",
]

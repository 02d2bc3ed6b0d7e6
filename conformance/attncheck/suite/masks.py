"""Cases about which key is visible to which query."""

import numpy as np

from attncheck.case import FORWARD
from attncheck.suite.recipe import (
    WITH_LSE,
    Recipe,
    Sizes,
    lengths,
    lower_right,
    upper_left,
)
from attncheck.suite.shapes import COINCIDENCE, DECODE, LONG, UNGROUPED
from attncheck.suite.values import around
from attnref.spec import (
    Mask,
    block_local,
    causal,
    dilated_window,
    fixed,
    global_positions,
    layout,
    listed_blocks,
    padding,
    prefix,
    segments,
    strided,
    window,
)


def _packed(sizes: Sizes) -> Mask:
    """Three segments in a row, of which the last has no queries."""
    q_ids = [_segment_ids(sizes["i"], 2)] * sizes["b"]
    k_ids = [_segment_ids(sizes["j"], 3)] * sizes["b"]
    return segments(np.array(q_ids), np.array(k_ids))


def _scattered(sizes: Sizes) -> Mask:
    """Ids that come back, and differ from one batch element to the next."""
    b, i, j = (np.arange(sizes[axis]) for axis in "bij")
    return segments((i + b[:, None]) % 3, (2 * j - b[:, None]) % 3)


def _segment_ids(length: int, count: int) -> list[int]:
    return [count * position // length for position in range(length)]


def _offsets(sizes: Sizes) -> Mask:
    """A causal mask that begins elsewhere in each batch element."""
    return causal([element + 1 for element in range(sizes["b"])])


def _lengths_and_nothing(sizes: Sizes) -> Mask:
    """The first batch element has no key at all, the others have some."""
    return padding([0, *lengths(sizes)[1:]])


def _prefixes(sizes: Sizes) -> Mask:
    return causal() | prefix(lengths(sizes))


def _rows(sizes: Sizes) -> Mask:
    """Rows of two sequences and padding; the queries are the last positions of each."""
    b, i, j = (sizes[axis] for axis in "bij")
    each = [length for row in range(b) for length in (1 + row, max(0, j - 5 - row))]
    plan = [[2 * row, 2 * row + 1] for row in range(b)]
    q_ids = [ids[-i:] for ids in layout(plan, each, j).ids]
    k_ids = [[-2 if x < 0 else x for x in ids] for ids in layout(plan, each, j).ids]
    return segments(q_ids, k_ids)


def _big_bird(sizes: Sizes) -> Mask:
    """A block of 4 keys and the one before, one elsewhere, and the first position."""
    rows, columns = (-(-sizes[axis] // 4) for axis in "ij")
    listed = [[(5 * x + 2) % columns] for x in range(rows)]
    return block_local(4, 1, 0) | listed_blocks(listed, 4) | global_positions([0])


RECIPES = (
    Recipe(
        "mask-random",
        ("mask", "blocked-weight", "dq", "dk", "dv"),
        "True is read as blocked.",
        random_mask=True,
        arrays=WITH_LSE,
    ),
    Recipe(
        "mask-coincidence",
        ("mask",),
        "The mask is applied transposed, or with the heads in another order.",
        COINCIDENCE,
        random_mask=True,
    ),
    Recipe(
        "mask-all-true",
        ("mask",),
        "A mask that blocks nothing blocks something.",
        mask=lambda sizes: lambda b, n, i, j: j >= 0,
    ),
    Recipe(
        "mask-shared-by-batch",
        ("mask-broadcast-b",),
        "A mask without a batch axis is read as one for each batch element.",
        COINCIDENCE,
        random_mask=True,
        mask_axes="nij",
    ),
    Recipe(
        "mask-shared-by-heads",
        ("mask-broadcast-n",),
        "A mask without a head axis is read as one for each head.",
        COINCIDENCE,
        random_mask=True,
        mask_axes="bij",
    ),
    Recipe(
        "mask-shared-by-queries",
        ("mask-broadcast-i",),
        "A mask of the keys is applied to the queries.",
        COINCIDENCE,
        random_mask=True,
        mask_axes="bj",
    ),
    Recipe(
        "mask-shared-by-keys",
        ("mask-broadcast-j", "empty-row-output", "empty-row-lse"),
        "A mask of the queries is applied to the keys.",
        COINCIDENCE,
        random_mask=True,
        mask_axes="bni",
    ),
    Recipe(
        "mask-of-heads",
        ("mask", "blocked-for-one-head"),
        "A mask that differs by head only is averaged over the heads of a group.",
        mask=lambda sizes: lambda b, n, i, j: n % 2 == 0,
    ),
    Recipe(
        "mask-single",
        ("mask-broadcast-j", "mask-broadcast-i", "empty-row-output"),
        "A single False is not spread over the whole call.",
        mask=lambda sizes: lambda b, n, i, j: j < 0,
        mask_axes="",
    ),
    Recipe(
        "one-key-each",
        ("softmax", "lse", "blocked-weight"),
        "A row with a single key gets another weight than 1.",
        mask=lambda sizes: lambda b, n, i, j: j == (i + 2 * n) % sizes["j"],
        arrays=WITH_LSE,
    ),
    Recipe(
        "causal-square",
        ("causal",),
        "The diagonal is blocked, or the key after it is visible.",
        COINCIDENCE,
        causal=upper_left,
    ),
    Recipe(
        "causal-upper-left",
        ("causal",),
        "A causal mask with more keys than queries is aligned to the lower-right "
        "corner.",
        causal=upper_left,
    ),
    Recipe(
        "causal-lower-right",
        ("causal-offset",),
        "A causal mask with more keys than queries is aligned to the upper-left "
        "corner.",
        causal=lower_right,
        arrays=WITH_LSE,
    ),
    Recipe(
        "causal-more-queries",
        ("causal",),
        "With more queries than keys, the first queries are left no key.",
        UNGROUPED,
        causal=upper_left,
    ),
    Recipe(
        "causal-more-queries-lower-right",
        ("causal-offset", "empty-row-output", "empty-row-lse", "empty-row-gradients"),
        "The queries before the first key get the mean of the values, or NaN.",
        UNGROUPED,
        causal=lower_right,
    ),
    Recipe(
        "causal-negative-offset",
        ("causal-offset", "empty-row-output"),
        "A negative offset is read as 0, or counted from the end.",
        causal=lambda sizes: -2,
    ),
    Recipe(
        "causal-decode",
        ("causal",),
        "A single query sees the whole cache though offset 0 leaves it the first key.",
        DECODE,
        causal=upper_left,
        wants=FORWARD,
    ),
    Recipe(
        "causal-decode-lower-right",
        ("causal-offset",),
        "The last query is kept from its own key, or from all but the first.",
        DECODE,
        causal=lower_right,
        wants=FORWARD,
    ),
    Recipe(
        "causal-offset-by-batch",
        ("causal-offset",),
        "The offset of the first batch element is used for all.",
        COINCIDENCE,
        mask=_offsets,
    ),
    Recipe(
        "causal-long",
        ("causal-offset",),
        "The diagonal is shifted in the tiles after the first.",
        LONG,
        causal=lower_right,
    ),
    Recipe(
        "window",
        ("window",),
        "An end of the window is exclusive.",
        window=(2, 1),
    ),
    Recipe(
        "window-wide",
        ("window",),
        "Left and right are exchanged.",
        window=(1, 4),
    ),
    Recipe(
        "window-self",
        ("window",),
        "A window of 0 keys on either side hides the query's own key, or means no "
        "window.",
        window=(0, 0),
    ),
    Recipe(
        "window-left-open",
        ("window-open",),
        "A window without a left end begins at the query.",
        window=(None, 1),
    ),
    Recipe(
        "window-right-open",
        ("window-open",),
        "A window without a right end stops at the query.",
        window=(1, None),
    ),
    Recipe(
        "window-causal",
        ("window", "window-open", "masks-combined"),
        "The causal mask is dropped because there is a window.",
        causal=upper_left,
        window=(3, None),
    ),
    Recipe(
        "window-lower-right",
        ("window", "causal-offset"),
        "The window stays at the upper-left corner while the causal mask moves.",
        mask=lambda sizes: window(1, 0, offset=lower_right(sizes)),
    ),
    Recipe(
        "window-long",
        ("window",),
        "A tile is skipped in which the window begins.",
        LONG,
        mask=lambda sizes: window(17, 0, offset=lower_right(sizes)),
    ),
    Recipe(
        "prefix",
        ("prefix", "masks-combined"),
        "The prefix of a prefix language model is causal too.",
        mask=lambda sizes: causal() | prefix(4),
    ),
    Recipe(
        "prefix-by-batch",
        ("prefix", "masks-combined"),
        "The prefix of the first batch element is used for all.",
        COINCIDENCE,
        mask=_prefixes,
    ),
    Recipe(
        "padding",
        ("padding", "blocked-weight"),
        "The padding is attended, and the keys are not.",
        mask=lambda sizes: padding(lengths(sizes)),
    ),
    Recipe(
        "padding-coincidence",
        ("padding",),
        "The padding of the keys is applied to the queries, or to the heads.",
        COINCIDENCE,
        mask=lambda sizes: padding(lengths(sizes)),
    ),
    Recipe(
        "padding-empty",
        ("padding", "empty-row-output", "empty-row-lse", "empty-row-gradients"),
        "A batch element without keys gets the mean of its padding, or NaN.",
        mask=_lengths_and_nothing,
        draw={"v": around(8)},
    ),
    Recipe(
        "padding-long",
        ("padding",),
        "The padding begins inside a tile and is counted in its sum.",
        LONG,
        mask=lambda sizes: padding(lengths(sizes)),
    ),
    Recipe(
        "segments",
        ("segments",),
        "Packed sequences see each other.",
        LONG,
        mask=_packed,
    ),
    Recipe(
        "segments-scattered",
        ("segments",),
        "Segments are taken for runs, or those of one batch element for all.",
        mask=_scattered,
    ),
    Recipe(
        "segments-causal",
        ("segments", "masks-combined"),
        "Of two masks only one is applied.",
        mask=lambda sizes: _packed(sizes) & causal(),
    ),
    Recipe(
        "padding-causal",
        ("padding", "masks-combined"),
        "The causal mask takes the place of the padding.",
        COINCIDENCE,
        mask=lambda sizes: causal() & padding(lengths(sizes)),
    ),
    Recipe(
        "window-not",
        ("masks-combined",),
        "Not is ignored.",
        mask=lambda sizes: causal() & ~window(2, 0),
    ),
    Recipe(
        "segments-packed",
        ("segments", "empty-row-output", "empty-row-lse", "empty-row-gradients"),
        "The padding at the end of a packed row sees itself, or the last sequence sees "
        "it.",
        LONG,
        mask=_rows,
        resizable=False,
        smoke=False,
    ),
    Recipe(
        "sparse-strided",
        ("mask", "causal-offset"),
        "The keys of a stride are counted from the first key, and not back from the "
        "query.",
        LONG,
        mask=lambda sizes: strided(5, lower_right(sizes)),
        smoke=False,
    ),
    Recipe(
        "sparse-fixed",
        ("mask", "causal-offset"),
        "The summary is the first key of a block, or the block of the query is looked "
        "up by its index.",
        LONG,
        mask=lambda sizes: fixed(8, 2, lower_right(sizes)),
        smoke=False,
    ),
    Recipe(
        "sparse-block-local",
        ("mask",),
        "A block of keys is skipped because its first query sees none of it.",
        LONG,
        mask=lambda sizes: block_local(3, 1, 0, lower_right(sizes)),
        smoke=False,
    ),
    Recipe(
        "sparse-dilated",
        ("mask", "window"),
        "The ends of a dilated window are counted in keys, and not in steps.",
        LONG,
        mask=lambda sizes: dilated_window(6, 2, 3, lower_right(sizes) - 8),
        smoke=False,
    ),
    Recipe(
        "sparse-listed",
        ("mask", "masks-combined"),
        "Of local, listed and global keys only one kind is seen, or a key of two kinds "
        "counts twice.",
        LONG,
        mask=_big_bird,
        arrays=WITH_LSE,
        smoke=False,
    ),
)

"""Draws how much of the budget correct implementations use, from the evidence.

    python conformance/soundness/plot.py

Reads docs/evidence/soundness-*.json and writes docs/evidence/soundness.svg.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from tables import DTYPES, EVIDENCE, evidence, family

LOWEST = 1e-3
"""The left end of the axis; cases that use less are drawn there."""

PROFILE_COLOURS = {
    "strict": "#0072B2",
    "tf32": "#CC79A7",
    "tensor-core": "#D55E00",
    "tensor-core+dP": "#E69F00",
    "eager": "#009E73",
}
"""Okabe and Ito's palette, told apart with every kind of colour vision."""

GREY = "#808080"
"""Is read on white and on black."""


def main() -> None:
    """Reads the evidence and writes the picture."""
    found = [json.loads(path.read_text("utf-8")) for path in evidence()]
    plt.style.use(Path(__file__).parents[1] / "plots.mplstyle")
    mpl.rcParams["svg.hashsalt"] = "soundness"
    figure = draw([row for one in found for row in one["implementations"]])
    path = EVIDENCE / "soundness.svg"
    figure.savefig(path, metadata={"Date": None})
    print(path)


def draw(rows: Sequence[Mapping]) -> plt.Figure:
    """One panel a storage type, one line an implementation."""
    panels = {
        dtype: [row for row in rows if row["dtype"] == dtype and row["checks"]]
        for dtype in DTYPES
    }
    heights = [max(map(len, (panels[a], panels[b]))) + 1 for a, b in columns()]
    figure, axes = plt.subplots(
        2,
        2,
        figsize=(12, 0.24 * sum(heights) + 1.6),
        height_ratios=heights,
        sharex=True,
        layout="constrained",
    )
    for ax, dtype in zip(
        axes.flat, [d for pair in columns() for d in pair], strict=True
    ):
        panel(ax, DTYPES[dtype], panels[dtype])
    for ax in axes[-1]:
        ax.set_xlabel("share of the budget that a case uses, its worst result")
    legend(figure, rows)
    return figure


def columns() -> list[tuple[str, str]]:
    """The storage types that stand beside each other."""
    names = list(DTYPES)
    return list(zip(names[::2], names[1::2], strict=True))


def panel(ax: Axes, title: str, rows: Sequence[Mapping]) -> None:
    """The spread over cases: 5 to 95 %, the middle half, the median, the greatest."""
    ordered = sorted(rows, key=lambda row: (order(row), row["implementation"]))
    for y, row in enumerate(ordered):
        shares = row["used"]["any result"]["quantiles"]
        p5, p25, p50, p75, p95, top = (max(share, LOWEST) for share in shares)
        colour = PROFILE_COLOURS[family(row)]
        ax.hlines(y, p5, p95, color=colour, linewidth=1.2)
        ax.hlines(y, p25, p75, color=colour, linewidth=6, alpha=0.55)
        ax.plot(p50, y, "o", color="white", markeredgecolor=colour, markersize=5)
        ax.plot(top, y, "|", color=colour, markersize=9, markeredgewidth=2)
    ax.axvline(1, color=GREY, linewidth=1)
    ax.set(xscale="log", xlim=(LOWEST * 0.85, 2.2), ylim=(len(ordered) - 0.4, -0.6))
    ax.set_yticks(range(len(ordered)), [row["implementation"] for row in ordered])
    ax.tick_params(axis="y", length=0, labelsize=8.5)
    ax.tick_params(axis="x", labelbottom=True)
    ax.set_xticks([1e-3, 1e-2, 1e-1, 1], ["0.1 %", "1 %", "10 %", "100 %"])
    ax.set_title(title, loc="left", fontweight="bold")
    ax.grid(axis="x")
    ax.set_axisbelow(True)
    ax.spines[["top", "right", "left"]].set_visible(False)


def legend(figure: plt.Figure, rows: Sequence[Mapping]) -> None:
    """The colours of the profiles, and what the marks are."""
    present = {family(row) for row in rows}
    marks = [
        plt.Line2D([], [], color=colour, linewidth=6, alpha=0.55, label=name)
        for name, colour in PROFILE_COLOURS.items()
        if name in present
    ]
    grey = {"color": GREY}
    marks += [
        plt.Line2D([], [], **grey, linewidth=1.2, label="5 to 95 % of cases"),
        plt.Line2D([], [], **grey, linewidth=6, alpha=0.55, label="middle half"),
        plt.Line2D(
            [], [], **grey, marker="o", mfc="white", linestyle="", label="median"
        ),
        plt.Line2D([], [], **grey, marker="|", mew=2, linestyle="", label="greatest"),
        plt.Line2D([], [], **grey, linewidth=1, label="what is allowed"),
    ]
    figure.legend(handles=marks, loc="outside upper center", ncols=5, frameon=False)


def order(row: Mapping) -> int:
    """The place of the row's profile in the table of profiles."""
    return list(PROFILE_COLOURS).index(family(row))


if __name__ == "__main__":
    main()

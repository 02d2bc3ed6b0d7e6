"""Draws what every rule finds, beside its false alarms, from the evidence.

    python conformance/faults/plot.py

Reads docs/evidence/faults.json and writes docs/evidence/faults.svg.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

EVIDENCE = Path(__file__).parents[2] / "docs" / "evidence"
DTYPES = {"F64": "float64", "F32": "float32", "BF16": "bfloat16", "F16": "float16"}
COLOURS = {"F64": "#0072B2", "F32": "#009E73", "BF16": "#D55E00", "F16": "#CC79A7"}
"""Of Okabe and Ito's palette, told apart with every kind of colour vision."""

GREY = "#808080"
"""Is read on white and on black."""

APART = 0.17
"""Of the lines of two storage types, where rules are 1 apart."""


def main() -> None:
    """Reads the evidence and writes the picture."""
    report = json.loads((EVIDENCE / "faults.json").read_text("utf-8"))
    plt.style.use(Path(__file__).parents[1] / "plots.mplstyle")
    mpl.rcParams["svg.hashsalt"] = "faults"
    path = EVIDENCE / "faults.svg"
    draw(report).savefig(path, metadata={"Date": None})
    print(path)


def draw(report: Mapping[str, Any]) -> plt.Figure:
    """Two panels, a row a rule: what it finds, and how often it is wrong."""
    rules = list(report["rules"])
    figure, (found, alarms) = plt.subplots(
        1,
        2,
        figsize=(11, 0.72 * len(rules) + 1.4),
        width_ratios=(2, 1),
        sharey=True,
        layout="constrained",
    )
    for dtype, y, summary, one in rows(report):
        colour, of = COLOURS[dtype], summary["changing"]
        usual, ours = (one[where]["found"] / of for where in ("usual", "smoke"))
        found.hlines(y, usual, ours, color=colour, linewidth=1.2)
        found.plot(usual, y, "o", mfc="none", mec=colour, markersize=6)
        found.plot(ours, y, "o", color=colour, markersize=6)
        share = one["smoke"]["alarms"] / one["smoke"]["checks"]
        alarms.hlines(y, 0, share, color=colour, linewidth=1.2)
        alarms.plot(share, y, "s", color=colour, markersize=5)
    found.set_title("faults found, of those that change a result", loc="left")
    alarms.set_title("correct results called wrong", loc="left")
    found.set_yticks(range(len(rules)), rules)
    found.set_ylim(len(rules) - 0.5, -0.5)
    for ax in (found, alarms):
        _plain(ax)
    figure.get_layout_engine().set(wspace=0.06)
    _legend(figure)
    return figure


def rows(report: Mapping[str, Any]) -> Iterator[tuple[str, float, Mapping, Mapping]]:
    """Storage type, place, summary of the type, and what is known of the rule there."""
    dtypes = list(report["summary"])
    for place, rule in enumerate(report["rules"]):
        for turn, dtype in enumerate(dtypes):
            summary = report["summary"][dtype]
            if rule in summary["rules"]:
                y = place + (turn - (len(dtypes) - 1) / 2) * APART
                yield dtype, y, summary, summary["rules"][rule]


def _plain(ax: Axes) -> None:
    ax.set_xlim(-0.03, 1.03)
    shares = [0, 0.25, 0.5, 0.75, 1]
    ax.set_xticks(shares, [f"{share:.0%}" for share in shares])
    ax.tick_params(length=0)
    ax.grid(axis="x")
    ax.set_axisbelow(True)
    ax.spines[:].set_visible(False)


def _legend(figure: plt.Figure) -> None:
    """The colours of the storage types, and what the marks are."""
    marks = [
        plt.Line2D([], [], color=COLOURS[dtype], linewidth=4, label=name)
        for dtype, name in DTYPES.items()
    ]
    grey = {"color": GREY, "linestyle": "", "marker": "o"}
    marks += [
        plt.Line2D([], [], **grey, mfc="none", label="on the usual test"),
        plt.Line2D([], [], **grey, label="on our cases"),
    ]
    figure.legend(handles=marks, loc="outside upper left", ncols=6, frameon=False)


if __name__ == "__main__":
    main()

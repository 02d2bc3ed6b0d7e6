"""The table of ratios beside their targets, and the plots, of what was measured.

    python conformance/bench/results.py docs/evidence/bench.json

Prints the table as Markdown, and writes bench-time.svg and bench-memory.svg beside the
file.
"""

import json
import sys
from pathlib import Path

import matplotlib as mpl
from contenders import Setup
from matplotlib import pyplot as plt
from ratios import LIMIT, ROOMS, median, read, table

COLOURS = {"numpy": "#0072B2", "torch": "#D55E00", "jax": "#009E73", "onnx": "#CC79A7"}
"""Okabe and Ito's palette; a line is dashed where it is no code of this project."""


def main():
    """Prints the table and draws the plots."""
    path = Path(sys.argv[1])
    points, memories = read(json.loads(path.read_text("utf-8")))
    print("\n".join(table(points, memories)))
    plt.style.use(Path(__file__).parents[1] / "plots.mplstyle")
    mpl.rcParams["svg.hashsalt"] = "bench"
    draw_time(points, path.with_name("bench-time.svg"))
    draw_memory(memories, path.with_name("bench-memory.svg"))


def draw_time(points, path):
    """Time against length, forward and with backward, one head, with slopes."""
    figure, axes = plt.subplots(
        1, 2, figsize=(10, 4), sharey=True, layout="constrained"
    )
    for ax, backward in zip(axes, (False, True), strict=True):
        lengths = sorted(x.length for x in points if x.heads == 1)
        every = [
            Setup(1, length, backward=backward) for length in dict.fromkeys(lengths)
        ]
        curves = [setup for setup in every if setup in points]
        names = dict.fromkeys(name for setup in curves for name in points[setup])
        for name in (n for n in names if n != LIMIT):
            times = [(s.length, median(points, s, name)) for s in curves]
            line(ax, name, [(x, y) for x, y in times if y is not None])
        slopes(ax, [s.length for s in curves], 2e-5, (1, 2))
        ax.set_title("forward and backward" if backward else "forward")
        ax.set_xlabel("length")
    axes[0].set_ylabel("seconds, one head of width 64")
    axes[0].legend(fontsize=7)
    finish(figure, path)


def draw_memory(memories, path):
    """Peak memory beyond arguments and output against length."""
    figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
    for room in ROOMS:
        for kind in ("textbook", "blocked"):
            peaks = [
                (one["length"], one[kind]["peak"] / 2**20)
                for one in memories
                if one["room"] == room and one[kind]["peak"] > 0
            ]
            style = "-" if kind == "blocked" else "--"
            line(ax, f"{room} {kind}", peaks, style)
    slopes(ax, sorted({one["length"] for one in memories}), 0.25, (1, 2))
    ax.set_xlabel("length")
    ax.set_ylabel("MiB beyond arguments and output, one head")
    ax.legend(fontsize=7)
    finish(figure, path)


def line(ax, name, places, style=None):
    """One contender's line; blocked ones are thicker."""
    if style is None:
        style = "-" if name.endswith(("textbook", "blocked")) else "--"
    width = 2 if name.endswith("blocked") else 1
    ax.loglog(
        *zip(*places, strict=True),
        style,
        color=COLOURS[next(room for room in COLOURS if name.startswith(room))],
        linewidth=width,
        marker=".",
        label=name,
    )


def slopes(ax, lengths, first, powers):
    """Thin lines that grow as n and as n², and a tick at every length."""
    for power in powers:
        values = [first * (length / lengths[0]) ** power for length in lengths]
        ax.loglog(lengths, values, ":", color="grey", linewidth=1)
        ax.annotate(f"n{'²' if power == 2 else ''}", (lengths[-1], values[-1]))
    ax.set_xticks(lengths, labels=map(str, lengths))
    ax.minorticks_off()


def finish(figure, path):
    """Writes a picture that is the same bytes for the same numbers."""
    figure.savefig(path, metadata={"Date": None})
    print(path, file=sys.stderr)


if __name__ == "__main__":
    main()

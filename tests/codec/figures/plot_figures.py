#!/usr/bin/env python3
"""Draws the figures of docs/codecs.md from the CSV files that codec_figures wrote: plot_figures.py FOLDER. Computes nothing but
the curves that captions give as formulas. Needs matplotlib (Debian: python3-matplotlib)."""
import csv
import math
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.ticker  # noqa: E402
import matplotlib.pyplot as plt  # noqa: E402  (after the choice of a backend without a screen)

COLORS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#000000"]
MARKERS = "os^Dv<>P"
# The same bytes for the same data: no time and no version inside.
METADATA = {"Software": None}


def rows_of(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def new_plot(title, across, up, size=(7.2, 4.8)):
    figure, axes = plt.subplots(figsize=size, dpi=110)
    axes.set_title(title, fontsize=11)
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.grid(True, which="major", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    return figure, axes


def save(figure, path):
    figure.tight_layout()
    figure.savefig(path, metadata=METADATA)
    plt.close(figure)
    print(path)


def by(rows, key):
    groups = {}
    for row in rows:
        groups.setdefault(row[key], []).append(row)
    return groups


def sparsifiers(folder):
    curves = by(rows_of(folder / "topk_randk.csv"), "curve")
    figure, axes = new_plot("Top-k against Rand-k, vectors of 10,000 standard normal numbers", "bits per element of the vector (payload, headers included)",
                            "normalized variance  ‖C(x) − x‖² / ‖x‖²")
    for name, color, marker in (("Top-k", COLORS[0], "o"), ("Rand-k", COLORS[1], "s")):
        rows = curves[name]
        codecs = {row["codec"].split("(")[0] for row in rows}
        how = f"codec {codecs.pop()}(k/d) | f32"
        axes.plot([float(row["bits_per_element"]) for row in rows], [float(row["normalized_error"]) for row in rows], marker, color=color,
                  markersize=4, label=f"{name} ({how})")
    bits = [0.1 * step for step in range(321)]
    axes.plot(bits, [0.86**b for b in bits], color=COLORS[0], linewidth=1, label=r"$0.86^{\,b/d}$")
    axes.plot(bits, [1 - b / 32 for b in bits], color=COLORS[1], linewidth=1, label=r"$1 - (b/d)/32$")
    axes.set_xlim(0, 33)
    axes.set_ylim(0, 1.02)
    axes.legend(fontsize=9)
    save(figure, folder / "topk_randk.png")


def energies(folder):
    problems = by(rows_of(folder / "energy.csv"), "problem")
    figure, grid = plt.subplots(2, 2, figsize=(8.4, 6.4), dpi=110, sharex=True, sharey=True)
    for axes, (name, rows) in zip(grid.flat, problems.items()):
        steps = [int(row["step"]) for row in rows]
        ratio = sum(float(row["top5"]) / float(row["rand5"]) for row in rows) / len(rows)
        axes.plot(steps, [float(row["top5"]) for row in rows], color=COLORS[0], label="Top-5 (codec topk(0.1) | f32)")
        axes.plot(steps, [float(row["rand5"]) for row in rows], color=COLORS[1], linestyle="--", label="Rand-5, expected (5/50, arithmetic)")
        axes.set_title(f"{name}\nTop-5 keeps {ratio:.1f} times as much", fontsize=10)
        axes.grid(True, color="#dddddd", linewidth=0.6)
        axes.set_ylim(0, 1)
    for axes in grid[1]:
        axes.set_xlabel("step of gradient descent")
    for axes in grid[:, 0]:
        axes.set_ylabel("share of ‖gradient‖² kept")
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncol=2, fontsize=9, frameon=False)
    figure.tight_layout(rect=(0, 0.05, 1, 1))
    figure.savefig(folder / "energy.png", metadata=METADATA)
    plt.close(figure)
    print(folder / "energy.png")


def lower_envelope(points):
    """The best of all operators: the least delta that so many bits, or fewer, reach."""
    best, least = [], math.inf
    for bits, delta in sorted(points):
        if delta < least:
            best.append((bits, delta))
            least = delta
    return best


def deltas(folder):
    rows = rows_of(folder / "delta.csv")
    point_of = lambda row: (float(row["bits_per_element"]), math.log10(max(1, float(row["delta"]))))  # noqa: E731
    envelope = lower_envelope([point_of(row) for row in rows])
    figure, grid = plt.subplots(2, 2, figsize=(11.5, 9.6), dpi=110, sharex="row")
    for axes, (panel, panel_rows) in zip(grid.flat, by(rows, "panel").items()):
        axes.plot(*zip(*envelope), color="#cccccc", linewidth=6, solid_capstyle="round", label="best of all panels", zorder=1)
        plain = 0
        for name, curve in by(panel_rows, "curve").items():
            points = sorted(point_of(row) for row in curve)
            variant = any(word in name for word in (", scaled", ", biased", ", to the nearest")) and len(points) > 1
            if not variant or plain == 0:  # a variant has the color of the curve before it
                plain += 1
            number = plain - 1
            style = {"color": COLORS[number % len(COLORS)], "marker": MARKERS[(number + number // len(COLORS)) % len(MARKERS)], "markersize": 4.5, "linewidth": 1}
            if variant:
                style.update(linestyle=":", markerfacecolor="white")
            if len(points) == 1:
                style.update(markersize=9, linestyle="none", markeredgecolor="black", markeredgewidth=0.8)
            axes.plot(*zip(*points), label=name, zorder=2, **style)
        axes.set_title(panel, fontsize=11)
        axes.set_xscale("log")
        is_sparse = min(bits for bits, _ in map(point_of, panel_rows)) < 0.5
        axes.set_xlim(0.02 if is_sparse else 0.7, 40 if is_sparse else 140)  # room for a legend
        axes.set_xticks([0.03, 0.1, 0.3, 1, 3, 10, 30] if is_sparse else [1, 2, 4, 8, 16, 32])
        axes.xaxis.set_minor_locator(matplotlib.ticker.NullLocator())
        axes.set_ylim(-0.02, 2 if is_sparse else 0.6)
        axes.xaxis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%g"))
        axes.grid(True, color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.legend(fontsize=8, loc="lower left" if panel.endswith("f32") else "upper right")
    for axes in grid[1]:
        axes.set_xlabel("bits per element of the vector (payload, headers included)")
    for axes in grid[:, 0]:
        axes.set_ylabel("log₁₀ δ   (0 is exact)")
    figure.suptitle("Every operator on one vector of 10,000 standard normal numbers\n"
                    "δ = 1 / (1 − ‖C(x) − x‖² / ‖x‖²);  of unbiased operators ‖C(x)‖² / ‖x‖²", fontsize=12)
    figure.tight_layout()
    figure.savefig(folder / "delta.png", metadata=METADATA)
    plt.close(figure)
    print(folder / "delta.png")


def indices(folder):
    coders = by(rows_of(folder / "index_bits.csv"), "coder")
    figure, axes = new_plot("Positions of a random support, tensor of 4,194,304 elements", "density  f = kept / all", "bits per kept element (headers included)")
    rows = sorted(coders["auto"], key=lambda row: float(row["density"]))
    axes.plot([float(row["density"]) for row in rows], [float(row["entropy"]) for row in rows], color="black", linewidth=1.2, label="entropy bound H(f)/f")
    others = [name for name in coders if name != "auto"]
    for number, name in enumerate(["auto", *others]):
        points = sorted((float(row["density"]), float(row["bits_per_kept"])) for row in coders[name])
        # The others lie on `auto` where they are what it takes: a ring around them.
        size = {"markersize": 9, "markerfacecolor": "none", "linestyle": "none"} if name == "auto" else {"markersize": 4, "linewidth": 0.8}
        axes.plot(*zip(*points), color=COLORS[number], marker=MARKERS[number], label=name, **size)
    axes.set_xscale("log")
    axes.set_ylim(0, 40)
    axes.legend(fontsize=9, loc="center left", bbox_to_anchor=(0.02, 0.6))
    save(figure, folder / "index_bits.png")


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: plot_figures.py FOLDER")
    folder = Path(sys.argv[1])
    for draw in (sparsifiers, energies, deltas, indices):
        draw(folder)


main()

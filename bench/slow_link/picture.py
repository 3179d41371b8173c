"""Draws summary.csv: picture.py SUMMARY PNG. A panel for each rate and size. Needs matplotlib."""
import csv
import sys
from collections import defaultdict

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (after the choice of a backend without a screen)
import matplotlib.ticker  # noqa: E402

OURS_COLOR, PEER_COLOR, FLOOR_COLOR, WIRE_COLOR = "#0072b2", "#d55e00", "#7f7f7f", "#000000"
HEIGHT = 0.38


def color_of(name):
    if name.startswith("gradsieve"):
        return OURS_COLOR
    return FLOOR_COLOR if name.startswith("one copy") else PEER_COLOR


def draw_panel(axes, rows, title):
    names = list(dict.fromkeys(row["method"] for row in rows))
    for row in rows:
        place = names.index(row["method"]) + (-HEIGHT / 2 if row["mode"] == "in place" else HEIGHT / 2)
        median, low, high = (float(row[key]) for key in ("median_ms", "p10_ms", "p90_ms"))
        is_framed = row["mode"] != "in place"
        axes.barh(place, median, HEIGHT, color=color_of(row["method"]), alpha=0.45 if is_framed else 1.0,
                  xerr=[[max(median - low, 0)], [max(high - median, 0)]], error_kw={"elinewidth": 0.8, "capsize": 1.5})
        if not is_framed and color_of(row["method"]) != FLOOR_COLOR:
            axes.plot([float(row["wire_ms"])] * 2, [place - HEIGHT / 2, place + 1.5 * HEIGHT], color=WIRE_COLOR, linewidth=1.6)
        axes.annotate(f"{median:,.0f}" if median >= 100 else f"{median:.1f}", (high, place), xytext=(3, 0), textcoords="offset points",
                      va="center", fontsize=6.5)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_ylim(len(names) - 0.4, -0.6)  # the first one on top
    axes.set_xscale("log")
    axes.set_xlim(min(float(row["median_ms"]) for row in rows) / 2, max(float(row["p90_ms"]) for row in rows) * 3)
    axes.xaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_title(title, fontsize=10)
    axes.grid(True, axis="x", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)


def main():
    source, target = sys.argv[1:3]
    panels = defaultdict(list)
    with open(source, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            panels[int(row["parameters"]), row["rate"]].append(row)
    sizes, rates = sorted({size for size, _ in panels}), list(dict.fromkeys(rate for _, rate in panels))
    figure, grid = plt.subplots(len(sizes), len(rates), figsize=(3.2 + 3.4 * len(rates), 1.0 + 4.4 * len(sizes)), dpi=110, sharey=True,
                                squeeze=False)
    for line, size in zip(grid, sizes):
        for axes, rate in zip(line, rates):
            if (size, rate) in panels:
                draw_panel(axes, panels[size, rate], f"{size / 1e6:.3g} M parameters, {rate}bit/s")
            else:
                axes.set_visible(False)
    for axes in grid[-1]:
        axes.set_xlabel("ms a step, logarithmic")
    handles = [plt.Rectangle((0, 0), 1, 1, color=color) for color in (OURS_COLOR, PEER_COLOR, FLOOR_COLOR)]
    handles += [plt.Rectangle((0, 0), 1, 1, color=OURS_COLOR, alpha=0.45), plt.Line2D([], [], color=WIRE_COLOR, linewidth=1.6)]
    names = ["gradsieve", "PyTorch", "copy", "pale: with the framework's copies", "what its bytes take on the wire alone"]
    figure.legend(handles, names, loc="lower center", ncol=5 if len(rates) > 1 else 2, fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, (0.3 if len(rates) > 1 else 0.7) / figure.get_figheight(), 1, 1))
    figure.savefig(target, metadata={"Software": None})


main()

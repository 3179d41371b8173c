"""Draws scaling.csv: picture.py CSV PNG. Bytes and time over the number of nodes, for each model. Needs matplotlib."""
import csv
import sys
from collections import defaultdict

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (after the choice of a backend without a screen)
import matplotlib.ticker  # noqa: E402

COLORS = {"gather": "#d55e00", "sharded": "#0072b2"}


def draw(axes, lines, key, scale):
    for (plan, kind), rows in sorted(lines.items()):
        rows = sorted(rows, key=lambda row: int(row["nodes"]))
        nodes, values = [int(row["nodes"]) for row in rows], [float(row[key]) / scale for row in rows]
        style = {"marker": "o", "linestyle": "none", "markersize": 6} if kind == "measured" else {"linewidth": 1.6, "marker": ".", "markersize": 4}
        axes.plot(nodes, values, color=COLORS[plan], label=f"{plan}, {kind}", **style)
        if key == "sent_mean" and kind == "simulated":
            axes.plot(nodes, [float(row["sent_most"]) / scale for row in rows], color=COLORS[plan], linewidth=0.8, linestyle=":",
                      label=f"{plan}, node with most")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axes.grid(True, which="major", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)


def main():
    source, target = sys.argv[1:3]
    models = defaultdict(lambda: defaultdict(list))
    with open(source, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if not row["fault"]:
                models[row["model"]][row["plan"], row["kind"]].append(row)
    # What was measured first, then the models that were only simulated.
    names = sorted(models, key=lambda name: not any(kind == "measured" for _, kind in models[name]))
    figure, grid = plt.subplots(2, len(names), figsize=(1.0 + 3.7 * len(names), 6.6), dpi=110, squeeze=False)
    for column, name in enumerate(names):
        title = f"{float(name) / 1e6:.3g} M parameters, measured" if name.isdigit() else f"{name} parameters, simulated"
        draw(grid[0][column], models[name], "sent_mean", 1e6)
        draw(grid[1][column], models[name], "step_ms", 1)
        grid[0][column].set_title(title, fontsize=10)
        grid[1][column].set_xlabel("nodes")
    grid[0][0].set_ylabel("MB that a node sends a step")
    grid[1][0].set_ylabel("ms a step")
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncol=3, fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    figure.savefig(target, metadata={"Software": None})


main()

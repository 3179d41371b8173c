"""Draws a task's runs: picture.py RESULTS TASK FOLDER. One picture of results over wire ratios, one of curves. Needs matplotlib."""
import math
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (after the choice of a backend without a screen)
import matplotlib.ticker  # noqa: E402

from .codecs import DENSE  # noqa: E402
from .report import dense_group, groups  # noqa: E402
from .results import Store  # noqa: E402
from .tasks import CLASSES  # noqa: E402

COLORS = plt.get_cmap("tab20").colors
MARKERS = "osD^v<>PX*"
CURVES = ("top-k, entropy", "top-k of the model", "DGC", "DGC of the model", "variance, P2", "top-k with a gate", "PowerSGD", "sign", "dithering", "EF21", "top-k")


def finite(found):
    return [group for group in found if math.isfinite(group.mean)]


def limits(axes, values, is_more_better):
    """Room for all but the worst fifth, which would press the others together."""
    ordered = sorted(values, reverse=is_more_better)
    kept = ordered[:max(2, len(ordered) * 4 // 5)]
    room = 0.06 * (max(kept) - min(kept) or 1)
    axes.set_ylim(min(kept) - room, max(kept) + room)


def draw_results(axes, found, dense, task):
    families = sorted({group.family for group in found if group.run.codec != DENSE})
    for number, family in enumerate(families):
        members = sorted((group for group in found if group.family == family), key=lambda group: group.ratio)
        deviations = [group.deviation if math.isfinite(group.deviation) else 0 for group in members]
        axes.errorbar([group.ratio for group in members], [group.mean for group in members], deviations, linestyle="none",
                      marker=MARKERS[number % len(MARKERS)], markersize=5, color=COLORS[number % len(COLORS)], elinewidth=0.8, label=family)
    front, best = [], -math.inf
    for group in sorted((group for group in found if group.run.codec != DENSE), key=lambda group: -group.ratio):
        if group.score > best:
            best = group.score
            front.append(group)
    axes.step([group.ratio for group in front], [group.mean for group in front], where="pre", color="#999999", linewidth=0.9, zorder=0)
    if dense:
        axes.axhline(dense.mean, color="black", linewidth=0.9, label="uncompressed")
        if math.isfinite(dense.deviation):
            axes.axhspan(dense.mean - dense.deviation, dense.mean + dense.deviation, color="black", alpha=0.1, linewidth=0)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel("wire ratio: bytes of an fp32 ring all-reduce over bytes sent")
    axes.set_ylabel(f"{CLASSES[task].metric}, {CLASSES[task].unit}")
    limits(axes, [group.mean for group in found], CLASSES[task].is_more_better)
    axes.grid(True, color="#dddddd", linewidth=0.6)
    axes.legend(fontsize=7, ncol=2, loc="best")


def best_members(found):
    """Of each family that is drawn, its best run of the first seed at a ratio nearest to 100 or above; in the families' order."""
    for family in CURVES:
        members = [group for group in found if group.family == family]
        if members:
            above = [group for group in members if group.ratio >= 97] or members
            yield max(above, key=lambda group: group.score)


def draw_curves(figure, found, dense, task):
    panels = figure.subplots(1, 2)
    shown = ([dense] if dense else []) + list(best_members(found))
    for number, group in enumerate(shown):
        curve = [point for point in group.records[0]["curve"] if math.isfinite(point["metric"])]
        name = "uncompressed" if group.run.codec == DENSE else f"{group.family}, {group.ratio:,.0f}"
        color = "black" if group.run.codec == DENSE else COLORS[number % len(COLORS)]
        panels[0].plot([point["step"] for point in curve], [point["loss"] for point in curve], color=color, linewidth=1.2)
        panels[1].plot([point["step"] for point in curve], [point["metric"] for point in curve], color=color, linewidth=1.2, label=name)
    for axes, what in zip(panels, ("training loss, nats", f"{CLASSES[task].metric}, {CLASSES[task].unit}")):
        axes.set_xlabel("step")
        axes.set_ylabel(what)
        axes.grid(True, color="#dddddd", linewidth=0.6)
    losses = [point["loss"] for group in shown for point in group.records[0]["curve"][1:] if math.isfinite(point["loss"])]
    metrics = [point["metric"] for group in shown for point in group.records[0]["curve"][1:] if math.isfinite(point["metric"])]
    if losses:
        limits(panels[0], losses, False)
        limits(panels[1], metrics, CLASSES[task].is_more_better)
    panels[1].legend(fontsize=7, title="family, wire ratio", title_fontsize=7)


def main():
    results, task, folder = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    store = Store(results)
    size = "full" if store.of(task=task, size="full") else "quick"
    found = finite(groups(store.of(task=task, optimizer="sgd", size=size)))
    if not found:
        return
    dense = dense_group(store, task, "sgd", size)
    folder.mkdir(parents=True, exist_ok=True)
    figure, axes = plt.subplots(figsize=(9, 6), dpi=110)
    draw_results(axes, found, dense, task)
    figure.tight_layout()
    figure.savefig(folder / f"fidelity_{task}.png", metadata={"Software": None})
    if not all(math.isfinite(point["loss"]) for group in best_members(found) for point in group.records[0]["curve"][1:]):
        print(f"fidelity: {task}: the curves' picture is left as it is: the table has no training losses of these runs")
        return
    figure = plt.figure(figsize=(11, 4.5), dpi=110)
    draw_curves(figure, found, dense, task)
    figure.tight_layout()
    figure.savefig(folder / f"fidelity_{task}_curves.png", metadata={"Software": None})


main()

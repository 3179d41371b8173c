"""Tables, CSV and the page, from the runs that are done. Pure but for the files it writes."""
from __future__ import annotations

import csv
import math
import statistics
from dataclasses import replace
from pathlib import Path

from .codecs import DENSE
from .plan import Run
from .results import Store, curve_text, run_of
from .stages import LONGER, TARGETS, TASKS, family_of, final, finalists_at, longer_steps, score, seedless
from .tasks import CLASSES, COURSES

BEGIN, END = "<!-- written by hand -->", "<!-- from here on by ./dev bench fidelity --publish -->"
COLUMNS = ("task", "size", "optimizer", "family", "codec", "ranks", "micro_batches", "source", "rescale", "local_momentum", "rate", "seed",
           "steps_asked", "steps", "metric", "test_loss", "wire_ratio", "payload_ratio", "kept", "variance_sources", "seconds", "machine",
           "error", "curve")

LONGER_TEXT = ("Runs of four times the steps, with the same peak rates and schedules that stretch with the steps: uncompressed, the best "
               "three families at a wire ratio of at least 100 by all seeds, the best one that uses variance if it is not among them, and the best "
               "at 1,000. Where all of them are still behind, sixteen times the steps. What they gave after the usual steps stands beside it, of "
               "all their seeds. \"Behind it by\": the difference between the means of uncompressed training and the codec, after equally many "
               "steps.", "")


class Group:
    """Runs that differ in the seed alone."""

    def __init__(self, records: list[dict]) -> None:
        self.records = sorted(records, key=lambda record: record["run"]["seed"])
        self.run = run_of(self.records[0])
        self.family = family_of(self.run)
        self.metrics = [final(record) for record in self.records]
        self.ratio = statistics.fmean(record["wire_ratio"] for record in self.records)

    @property
    def mean(self) -> float:
        return statistics.fmean(self.metrics)

    @property
    def deviation(self) -> float:
        """Of the seeds; not known of one."""
        return statistics.stdev(self.metrics) if len(self.metrics) > 1 and all(map(math.isfinite, self.metrics)) else math.nan

    @property
    def score(self) -> float:
        return self.mean if CLASSES[self.run.task].is_more_better else -self.mean


def groups(records: list[dict]) -> list[Group]:
    by_key: dict[str, list[dict]] = {}
    for record in records:
        by_key.setdefault(Run(**{**record["run"], "seed": 0}).key, []).append(record)
    return [Group(found) for found in by_key.values()]


def verdict(left: Group, right: Group) -> str:
    """How `left` stands to `right`: "better", "worse", or "undecided" where twice the standard error of the difference covers it."""
    if len(left.metrics) < 2 or len(right.metrics) < 2:
        return "undecided (one seed)"
    error = math.sqrt(left.deviation**2 / len(left.metrics) + right.deviation**2 / len(right.metrics))
    difference = left.score - right.score
    if not math.isfinite(difference) or not math.isfinite(error):
        return "worse" if math.isfinite(right.score) and not math.isfinite(left.score) else "undecided"
    return "undecided" if abs(difference) <= 2 * error else "better" if difference > 0 else "worse"


def _number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if math.isfinite(value) else "ended"


def _digits(task: str) -> int:
    return 2 if task == "images" else 3


def _spread(group: Group) -> str:
    digits = _digits(group.run.task)
    return _number(group.mean, digits) + (f" +- {group.deviation:.{digits}f}" if math.isfinite(group.deviation) else "")


def _codec(run: Run) -> str:
    return "`" + run.codec.replace("|", "\\|") + "`"


def _options(run: Run) -> str:
    found = [f"rate {run.rate:g}"]
    if run.has_variance:
        found.append("second moments" if run.source == "second moments" else f"{run.ranks} x {run.micro_batches}")
    found += ["rescaled"] * run.rescale + ["local momentum"] * run.local_momentum
    return ", ".join(found + [f"{run.steps:,} steps"] * bool(run.steps))


def dense_group(store: Store, task: str, optimizer: str, size: str = "full") -> "Group | None":
    """The uncompressed runs at the best rate that no seed was lost with, several seeds before one."""
    found = [group for group in groups(store.of(task=task, optimizer=optimizer, size=size, codec=DENSE)) if math.isfinite(group.score)]
    return max(found, key=lambda group: (len(group.metrics) > 1, group.score), default=None)


def standing(store: Store, task: str) -> list[str]:
    """The finalists at each target against the uncompressed runs and against the best top-k without variance."""
    task_class, dense = CLASSES[task], dense_group(store, task, "sgd")
    if dense is None:
        return []
    lines = [f"### {task}: {task_class.metric}, {task_class.unit}", "",
             f"Uncompressed, {len(dense.metrics)} seeds at rate {dense.run.rate:g}: {_spread(dense)}.", "",
             "| at least | codec | family | options | seeds | mean +- deviation | wire ratio | against uncompressed | against the best without variance |",
             "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    found = groups(store.of(task=task, optimizer="sgd", size="full"))
    for target in TARGETS:
        keys = {seedless(run) for run in finalists_at(store, task, target)}
        here = sorted((group for group in found if seedless(group.run) in keys), key=lambda group: -group.score)
        plain = next((group for group in here if not group.run.has_variance), None)
        for group in here:
            against = "-" if plain is None or group is plain else verdict(group, plain)
            lines.append(f"| {target:,} | {_codec(group.run)} | {group.family} | {_options(group.run)} | {len(group.metrics)} | {_spread(group)} | "
                         f"{group.ratio:,.0f} | {verdict(group, dense)} | {against} |")
    return [*lines, ""]


def _plain_table(found: list[Group], task: str) -> list[str]:
    lines = ["| codec | family | options | seeds | " + CLASSES[task].metric + " | wire ratio |", "| --- | --- | --- | --- | --- | --- |"]
    for group in sorted(found, key=lambda group: (group.run.codec != DENSE, -group.score)):
        lines.append(f"| {_codec(group.run)} | {group.family} | {_options(group.run)} | {len(group.metrics)} | {_spread(group)} | {group.ratio:,.1f} |")
    return [*lines, ""]


def adam(store: Store, task: str) -> list[str]:
    found = groups(store.of(task=task, optimizer="adam", size="full"))
    return [f"### {task}", "", *_plain_table(found, task)] if found else []


def ranks(store: Store, task: str) -> list[str]:
    """Codecs that ran with more than one number of ranks or micro-batches."""
    by_codec: dict[str, list[Group]] = {}
    for group in groups(store.of(task=task, optimizer="sgd", size="full")):
        if group.run.has_variance and group.run.source == "groups":
            by_codec.setdefault(group.run.codec, []).append(group)
    found = [group for several in by_codec.values() if len({(group.run.ranks, group.run.micro_batches) for group in several}) > 1 for group in several]
    return [f"### {task}", "", *_plain_table(found, task)] if found else []


def _behind(group: "Group | None", dense: "Group | None") -> str:
    difference = dense.score - group.score if group and dense else math.nan
    return f"{difference:.{_digits(group.run.task)}f}" if math.isfinite(difference) and group is not dense else "-"


def longer(store: Store, task: str) -> list[str]:
    return [line for times in LONGER for line in _longer(store, task, longer_steps(task, times))]


def _longer(store: Store, task: str, steps: int) -> list[str]:
    """Runs of more steps against uncompressed ones of as many, with what the same settings gave after the task's own number of steps."""
    task_class = CLASSES[task]
    found = groups(store.of(task=task, optimizer="sgd", size="full", steps=steps))
    if not found:
        return []
    usual_of = {seedless(group.run): group for group in groups(store.of(task=task, optimizer="sgd", size="full"))}
    dense = max((group for group in found if group.run.codec == DENSE and math.isfinite(group.score)),
                key=lambda group: group.score, default=None)
    usual_dense = usual_of.get(seedless(replace(dense.run, steps=0))) if dense else None
    lines = [f"### {task}, {steps:,} steps: {task_class.metric}, {task_class.unit}", "",
             f"| codec | family | options | seeds | after {steps:,} steps | wire ratio | against uncompressed | behind it by | "
             f"after {COURSES[task, 'full'].steps:,} steps | behind it by |",
             "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for group in sorted(found, key=lambda group: (group.run.codec != DENSE, -group.score)):
        run = replace(group.run, steps=0)
        usual = usual_of.get(seedless(run))
        against = "-" if dense is None or group is dense else verdict(group, dense)
        lines.append(f"| {_codec(run)} | {group.family} | {_options(run)} | {len(group.metrics)} | {_spread(group)} | {group.ratio:,.1f} | "
                     f"{against} | {_behind(group, dense)} | {_spread(usual) if usual else '-'} | {_behind(usual, usual_dense)} |")
    return [*lines, ""]


def every_run(store: Store, size: str) -> list[str]:
    lines = ["| task | optimizer | codec | options | seed | result | wire ratio | payload ratio | sent | seconds |",
             "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for record in sorted(store.of(size=size, steps=None),
                         key=lambda record: (record["run"]["task"], record["run"]["optimizer"], -score(record))):
        run = run_of(record)
        result = record["error"].split(":")[0] or _number(final(record), _digits(run.task))
        lines.append(f"| {run.task} | {run.optimizer} | {_codec(run)} | {_options(run)} | {run.seed} | {result} | {record['wire_ratio']:,.1f} | "
                     f"{record['payload_ratio']:,.1f} | {100 * record['kept']:.3g} % | {record['seconds']:.0f} |")
    return lines


def write_csv(store: Store, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for record in sorted(store.records.values(), key=lambda record: run_of(record).key):
            run = run_of(record)
            last = record["curve"][-1] if record["curve"] else {"metric": "", "test_loss": ""}
            writer.writerow((run.task, run.size, run.optimizer, family_of(run), run.codec, run.ranks, run.micro_batches, run.source, int(run.rescale),
                             int(run.local_momentum), f"{run.rate:g}", run.seed, run.steps or "", record["steps"], last["metric"],
                             last["test_loss"], f"{record['wire_ratio']:.2f}",
                             f"{record['payload_ratio']:.2f}", f"{record['kept']:.6g}", " ".join(record["sources"]), record["seconds"],
                             record["machine"], record["error"], curve_text(record["curve"])))


def _written_by_hand(page: Path) -> str:
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    return text[text.index(BEGIN) + len(BEGIN):text.index(END)].strip() if BEGIN in text and END in text else ""


def page_lines(store: Store, by_hand: str) -> list[str]:
    full, quick = store.of(size="full", steps=None), store.of(size="quick", steps=None)
    machines = sorted({record["machine"] for record in store.records.values()})
    hours = sum(record["seconds"] for record in store.records.values()) / 3600
    lines = ["# Fidelity: what codecs do to training", "", BEGIN, "", by_hand, "", END, "",
             f"{len(full)} full runs and {len(quick)} quick ones, {hours:.1f} hours of runs that were done side by side on {'; '.join(machines)}. "
             "Each row's data, curves included, is in [fidelity.csv](../bench/results/fidelity.csv).", ""]
    if full:
        lines += ["## Where codecs stand", "", "By the first seed the best member of each family and the best families were chosen at wire ratios of at "
                  "least 100 and 1,000; those have more seeds. \"Undecided\": twice the standard error of the difference covers it.", ""]
        for task in TASKS:
            table = standing(store, task)
            if table:
                lines += [*table, f"![{task}: result over wire ratio](figures/fidelity_{task}.png)", "",
                          f"![{task}: curves](figures/fidelity_{task}_curves.png)", ""]
        for title, text, section in (("Longer runs", LONGER_TEXT, longer), ("Adam", (), adam), ("Ranks and micro-batches", (), ranks)):
            found = [line for task in TASKS for line in section(store, task)]
            lines += [f"## {title}", "", *text, *found] if found else []
        lines += ["## Every full run", "", *every_run(store, "full"), ""]
    if quick:
        lines += ["## Every quick run", "", *every_run(store, "quick"), ""]
    return lines


def write(store: Store, page: Path, table: Path) -> None:
    write_csv(store, table)
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("\n".join(page_lines(store, _written_by_hand(page))).rstrip() + "\n", encoding="utf-8")

"""`./dev bench fidelity`: options, and the order of things. docs/fidelity.md says what came out."""
from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from . import results, stages
from .plan import Run
from .pool import Pool

SOURCE = Path(__file__).resolve().parents[2]
# {folder: (a file of it, the Debian package, where that puts it, the tasks that read it)}
DATA = {"fashion-mnist": ("train-images-idx3-ubyte.gz", "dataset-fashion-mnist", "usr/share/datasets/fashion-mnist", ("images",)),
        "perl-doc": ("perlop.pod", "perl-doc", "usr/share/perl/5.*.*/pod", ("text", "words"))}
NO_DEADLINE_S = 10**9


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(prog="./dev bench fidelity", formatter_class=argparse.RawDescriptionHelpFormatter, description="""\
Trains three small models on four nodes of this process, through the real codecs, and says what each codec costs in bytes and loses in
accuracy. What is done is kept, and is not done again. The quick form (--quick) takes minutes on two cores; the full one wants a GPU.""")
    parser.add_argument("--quick", action="store_true", help="small networks, eight codecs, one seed")
    parser.add_argument("--only", action="append", metavar="TEXT", help="runs whose name has this in it; may be given again")
    parser.add_argument("--list", action="store_true", help="run nothing: say what would be run, as far as it is known by now")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, metavar="N", help="runs at a time (default: one per core)")
    parser.add_argument("--device", default="", metavar="NAME", help="cpu or cuda (default: cuda where there is one)")
    parser.add_argument("--deadline", type=float, default=NO_DEADLINE_S, metavar="SECONDS", help="end after so long; runs under way are let go")
    parser.add_argument("--steps", type=int, default=0, metavar="N", help="of every run: whether it works (default: as many as the task has)")
    parser.add_argument("--most", type=int, default=0, metavar="N", help="end after so many runs")
    parser.add_argument("--from", dest="source", type=Path, metavar="FOLDER", help="results of another machine, or the published table in bench/results: taken over first")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="folder of results (default: build/fidelity, build/fidelity-quick)")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="has fashion-mnist and perl-doc (default: what the packages installed)")
    parser.add_argument("--library", type=Path, metavar="FILE", default=SOURCE / "build/release/bench/fidelity/libgradsieve-fidelity.so")
    parser.add_argument("--report", action="store_true", help="run nothing: table, page and pictures from what lies in the folder of results")
    parser.add_argument("--publish", action="store_true", help="run nothing: write docs/fidelity.md, its pictures and bench/results/fidelity.csv")
    options = parser.parse_args(arguments)
    options.output = options.output or SOURCE / "build" / ("fidelity-quick" if options.quick else "fidelity")
    if options.workers < 1:
        parser.error(f"--workers is {options.workers}: allowed is a whole number from 1")
    if options.source and not results_in(options.source):
        parser.error(f"--from {options.source}: no *.jsonl and no {results.TABLE} there; name a folder of results, or bench/results")
    return options


def found_data(options) -> Path:
    """A folder with all data sets; of links where the packages installed them."""
    if options.data:
        return options.data
    folder = options.output / "data"
    folder.mkdir(parents=True, exist_ok=True)
    for name, (file, _, pattern, _) in DATA.items():
        target = next((path for path in sorted(Path("/").glob(pattern)) if (path / file).exists()), None)
        link = folder / name
        if target and not link.exists():
            link.symlink_to(target)
    return folder


def missing(options, data: Path, tasks: set[str]) -> list[str]:
    """What keeps runs of these tasks from being done here, in words."""
    found = [f"Python's {module}: apt install {package}" for module, package in (("torch", "python3-torch"), ("numpy", "python3-numpy"))
             if importlib.util.find_spec(module) is None]
    found += [f"{data / name}/{file}: apt install {package}" for name, (file, package, _, readers) in DATA.items()
              if tasks & set(readers) and not (data / name / file).exists()]
    if not options.library.exists():
        found.append(f"{options.library}: ./dev build")
    return found


def results_in(folder: Path) -> list[Path]:
    return [*sorted(folder.glob("*.jsonl")), *folder.glob(results.TABLE)]


def take_over(source: Path, output: Path) -> None:
    output.mkdir(parents=True, exist_ok=True)
    for path in results_in(source):
        if path.resolve().parent != output.resolve():
            shutil.copy(path, output / f"from-{path.name}")


class Study:
    """Which run is next, and what is said of those that ended."""

    def __init__(self, options, store: results.Store) -> None:
        self._options, self._store = options, store
        self._began, self.done = time.monotonic(), 0
        self.pool: Pool | None = None

    def wanted(self) -> list[Run]:
        runs = (stages.quick if self._options.quick else stages.full)(self._store, self._is_done)
        only = self._options.only or [""]
        if self._options.steps:
            runs = (dataclasses.replace(run, steps=self._options.steps) for run in runs)
        return list({run.key: run for run in runs if any(text in run.key for text in only)}.values())

    def _is_done(self, run: Run) -> bool:
        return self._store.has(run) or (self.pool is not None and self.pool.is_given_up(run))

    def next_run(self, running: set[str]) -> "Run | None":
        if self._options.most and self.done + len(running) >= self._options.most:
            return None
        return next((run for run in self.wanted() if run.key not in running and not self._is_done(run)), None)

    def left(self) -> int:
        return sum(not self._is_done(run) for run in self.wanted())

    def on_done(self, run: Run, outcome: dict, machine: str) -> None:
        self._store.add(results.line_of(run, outcome, machine))
        self.done += 1
        last = outcome["curve"][-1]["metric"] if outcome["curve"] else float("nan")
        print(f"{time.monotonic() - self._began:7.0f} s  {self.done:4d} done, {self.left():4d} left  {last:9.4f} at {outcome['wire_ratio']:8.1f}  "
              f"{outcome['seconds']:6.1f} s  {run.key}{'  ' + outcome['error'] if outcome['error'] else ''}", flush=True)


def run_all(options, store: results.Store) -> int:
    data, study = found_data(options), Study(options, store)
    if found := missing(options, data, {run.task for run in study.wanted()}):
        print("fidelity: needed, and not there:\n  " + "\n  ".join(found), file=sys.stderr)
        return 2
    device = options.device
    if not device:
        import torch
        device = "cuda" if torch.cuda.is_available() else "cpu"
    study.pool = Pool([str(options.library), str(data), device], options.workers, time.monotonic() + options.deadline,
                      lambda text: print(text, file=sys.stderr, flush=True))
    study.pool.work(study.next_run, study.on_done)
    print(f"fidelity: {study.done} runs done, {study.left()} left that are known by now", flush=True)
    return 0


def publish(options) -> int:
    from . import report
    page, table, figures = ((SOURCE / "docs/fidelity.md", SOURCE / "bench/results/fidelity.csv", SOURCE / "docs/figures") if options.publish
                            else (options.output / "fidelity.md", options.output / "fidelity.csv", options.output))
    report.write(results.Store(options.output), page, table)
    for task in stages.TASKS:
        subprocess.run([sys.executable, "-m", "fidelity.picture", str(options.output), task, str(figures)], check=True,
                       env={**os.environ, "PYTHONPATH": str(SOURCE / "bench")})
    print(f"fidelity: {page}, {table}")
    return 0


def main() -> int:
    options = parse_arguments(sys.argv[1:])
    if options.source:
        take_over(options.source, options.output)
    if options.publish or options.report:
        return publish(options)
    store = results.Store(options.output)
    if options.list:
        study = Study(options, store)
        for run in study.wanted():
            print(("done  " if store.has(run) else "      ") + run.key)
        return 0
    return run_all(options, store)


if __name__ == "__main__":
    sys.exit(main())

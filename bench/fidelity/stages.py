"""What is run, most important first, given what has been: rates of the uncompressed runs, one look at every codec, more seeds for
the best of them, Adam, other numbers of ranks, longer runs. Pure but for the store it reads; the same results give the same list."""
from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator

from .codecs import DENSE, Candidate, adam_candidates, candidates, quick_candidates
from .plan import Run
from .results import Store, run_of
from .tasks import CLASSES, COURSES

TASKS = tuple(CLASSES)
SEEDS = (1, 2, 3, 4, 5)
DENSE_RATES = {"sgd": (1.0, 0.5, 2.0, 0.25, 4.0), "adam": (1.0, 0.5, 2.0, 0.25)}
TARGETS = (100, 1000)
REACHED = 0.97  # of a target, to count as reached: a run's ratio is known only behind it
RATES_MOST = 3  # that a candidate is tried at
FINALISTS = 6  # families at each target
RANKS = ((1, 1), (2, 1), (4, 1), (1, 4))
LONGER = {4: {100: 3, 1000: 1}, 16: {100: 2}}  # times the steps: families at each target
LONGER_SEEDS = SEEDS[:3]

IsDone = Callable[[Run], bool]


def final(record: dict) -> float:
    """The metric at the end; the worst where the run ended early, or was no better than guessing."""
    task = CLASSES[record["run"]["task"]]
    metric = record["curve"][-1]["metric"] if record["curve"] and not record["error"] else float("nan")
    if task.is_more_better:
        return metric if metric > task.lost else float("-inf")
    return metric if metric < task.lost else float("inf")


def score(record: dict) -> float:
    """Larger is better, whatever the task."""
    return final(record) if CLASSES[record["run"]["task"]].is_more_better else -final(record)


def dense_runs(task: str, optimizer: str) -> list[Run]:
    return [Run(task, DENSE, optimizer=optimizer, rate=rate) for rate in DENSE_RATES[optimizer]]


def dense_rate(store: Store, task: str, optimizer: str, is_done: IsDone) -> "float | None":
    """The best of the uncompressed runs; None while one is missing."""
    runs = dense_runs(task, optimizer)
    if not all(is_done(run) for run in runs):
        return None
    records = [store.records[run.key] for run in runs if store.has(run)]
    return max(records, key=score)["run"]["rate"] if records else None


def _runs(task: str, optimizer: str, rate: float, candidate: Candidate, place: int) -> list[Run]:
    """At the candidate's rate number `place`."""
    if place >= len(candidate.rates):
        return []
    return [Run(task, candidate.codec, optimizer=optimizer, rate=rate * candidate.rates[place], **dict(candidate.options))]


def _screen(task: str, optimizer: str, rate: float, place: int) -> list[Run]:
    found = candidates(task) if optimizer == "sgd" else adam_candidates(task)
    return [run for candidate in found for run in _runs(task, optimizer, rate, candidate, place)]


def families(task: str) -> dict[tuple, str]:
    """{(codec, options that matter): family}."""
    return {(candidate.codec, candidate.options): candidate.family for candidate in (*candidates(task), *quick_candidates())}


def family_of(run: Run) -> str:
    if run.codec == DENSE:
        return "uncompressed"
    for (codec, options), family in families(run.task).items():
        if codec == run.codec and all(getattr(run, name) == value for name, value in options):
            return family
    return "other"


def seedless(run: Run) -> str:
    return _with_seed(run, 0).key


def lost_ones(store: Store, task: str, optimizer: str) -> set[str]:
    """Settings that some seed did not come through."""
    return {seedless(run_of(record)) for record in store.of(task=task, optimizer=optimizer, size="full") if not math.isfinite(score(record))}


def _is_screened(run: Run) -> bool:
    usual = Run(run.task, run.codec)
    return (run.ranks, run.micro_batches) == (usual.ranks, usual.micro_batches) or family_of(run) in ("variance, P1", "variance, P3")


def finalists_at(store: Store, task: str, target: int, optimizer: str = "sgd") -> list[Run]:
    """The best member of each family that reaches the target and no higher one, of the best families; by the first seed, and of those
    that no seed was lost with."""
    above = min((other for other in TARGETS if other > target), default=math.inf)
    lost = lost_ones(store, task, optimizer)
    best: dict[str, dict] = {}
    for record in store.of(task=task, optimizer=optimizer, size="full", seed=1):
        run = run_of(record)
        family = family_of(run)
        reaches = REACHED * target <= record["wire_ratio"] < REACHED * above
        if not reaches or family == "uncompressed" or seedless(run) in lost or not _is_screened(run):
            continue
        if family not in best or score(record) > score(best[family]):
            best[family] = record
    return [run_of(record) for record in sorted(best.values(), key=score, reverse=True)[:FINALISTS]]


def finalists(store: Store, task: str, optimizer: str = "sgd") -> list[Run]:
    """Of all targets."""
    return [run for target in TARGETS for run in finalists_at(store, task, target, optimizer)]


def dense_reference(store: Store, task: str, optimizer: str) -> "Run | None":
    """The uncompressed run at the best rate that no seed was lost with."""
    lost = lost_ones(store, task, optimizer)
    records = [record for record in store.of(task=task, optimizer=optimizer, size="full", seed=1, codec=DENSE)
               if seedless(run_of(record)) not in lost]
    return run_of(max(records, key=score)) if records else None


def _with_seed(run: Run, seed: int) -> Run:
    return Run(**{**run.__dict__, "seed": seed})


def _with_steps(run: Run, steps: int) -> Run:
    return Run(**{**run.__dict__, "steps": steps})


def _interleaved(lists: list[list[Run]]) -> Iterator[Run]:
    """The first of each, the second of each, ..."""
    for place in range(max(map(len, lists), default=0)):
        yield from (runs[place] for runs in lists if place < len(runs))


def _rank_runs(store: Store, task: str, rate: float) -> list[Run]:
    """The variance codecs among the finalists, with other numbers of ranks and micro-batches."""
    found = [run for run in finalists(store, task) if run.has_variance and run.source == "groups" and run.micro_batches > 1]
    return [Run(**{**run.__dict__, "ranks": ranks, "micro_batches": batches}) for run in found for ranks, batches in RANKS]


def longer_steps(task: str, times: int) -> int:
    return times * COURSES[task, "full"].steps


def _mean_score(store: Store, run: Run, seeds: tuple[int, ...] = SEEDS) -> float:
    records = (store.records[seeded.key] for seeded in (_with_seed(run, seed) for seed in seeds) if store.has(seeded))
    return statistics.fmean(map(score, records))


def _longer_runs(store: Store, task: str, times: int, is_done: IsDone) -> list[Run]:
    """Of the first seed: uncompressed, then the best finalists by all seeds, with the best at the first target that uses variance. None
    while a finalist lacks a seed, or where fewer steps were enough."""
    found, reference = finalists(store, task), dense_reference(store, task, "sgd")
    if not reference or not all(is_done(_with_seed(run, seed)) for run in found for seed in SEEDS):
        return []
    if any(not _is_behind(store, task, shorter, is_done) for shorter in LONGER if shorter < times):
        return []
    chosen = [reference]
    for target, most in LONGER[times].items():
        ordered = sorted(finalists_at(store, task, target), key=lambda run: _mean_score(store, run), reverse=True)
        chosen += ordered[:most]
        if target == TARGETS[0] and not any(run.has_variance for run in chosen):
            chosen += [run for run in ordered if run.has_variance][:1]
    return [_with_steps(run, longer_steps(task, times)) for run in chosen]


def _is_behind(store: Store, task: str, times: int, is_done: IsDone) -> bool:
    """After so many times the steps every codec was further behind uncompressed training than twice what its seeds differ by."""
    dense, *coded = _longer_runs(store, task, times, is_done) or [None]
    if not dense or not all(is_done(_with_seed(run, seed)) for run in (dense, *coded) for seed in LONGER_SEEDS):
        return False
    scores = [score(store.records[seeded.key]) for seeded in (_with_seed(dense, seed) for seed in LONGER_SEEDS) if store.has(seeded)]
    best = max((_mean_score(store, run, LONGER_SEEDS) for run in coded), default=-math.inf)
    return all(map(math.isfinite, scores)) and len(scores) > 1 and statistics.fmean(scores) - best > 2 * statistics.stdev(scores)


def full(store: Store, is_done: IsDone) -> Iterator[Run]:
    """Every stage that can be laid out by now."""
    yield from _interleaved([dense_runs(task, "sgd") for task in TASKS])
    rates = {task: dense_rate(store, task, "sgd", is_done) for task in TASKS}
    known = [task for task in TASKS if rates[task] is not None]
    for place in range(RATES_MOST):
        yield from _interleaved([_screen(task, "sgd", rates[task], place) for task in known])
    reference = {task: dense_reference(store, task, "sgd") for task in known}
    yield from _interleaved([[_with_seed(reference[task], seed) for seed in SEEDS[1:]] for task in known if reference[task]])
    screened = [task for task in known if all(is_done(run) for place in range(RATES_MOST) for run in _screen(task, "sgd", rates[task], place))]
    for seed in SEEDS[1:3]:
        yield from _interleaved([[_with_seed(run, seed) for run in finalists(store, task)] for task in screened])
    yield from _interleaved([dense_runs(task, "adam") for task in TASKS])
    adam = {task: dense_rate(store, task, "adam", is_done) for task in TASKS}
    yield from _interleaved([_screen(task, "adam", adam[task], 0) for task in TASKS if adam[task] is not None])
    yield from _interleaved([_rank_runs(store, task, rates[task]) for task in screened])
    for seed in SEEDS[3:]:
        yield from _interleaved([[_with_seed(run, seed) for run in finalists(store, task)] for task in screened])
    looked_at = [task for task in TASKS if adam[task] is not None and all(map(is_done, _screen(task, "adam", adam[task], 0)))]
    for seed in SEEDS[1:]:
        yield from _interleaved([[_with_seed(run, seed) for run in (dense_reference(store, task, "adam"), *finalists(store, task, "adam")) if run]
                                 for task in looked_at])
    for times in LONGER:
        longer = [runs for task in screened if (runs := _longer_runs(store, task, times, is_done))]
        yield from _interleaved([[_with_seed(dense, seed) for seed in LONGER_SEEDS] for dense, *_ in longer])
        for seed in LONGER_SEEDS:
            yield from _interleaved([[_with_seed(run, seed) for run in coded] for _, *coded in longer])


def quick(store: Store, is_done: IsDone) -> Iterator[Run]:
    """Small networks: whether it works, and roughly what it is like."""
    yield from _interleaved([[Run(task, DENSE, size="quick")] + [Run(task, candidate.codec, size="quick", rate=candidate.rates[0])
                                                                for candidate in quick_candidates()] for task in TASKS])

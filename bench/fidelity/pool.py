"""Worker processes that do runs, some at a time. A worker that dies costs its run and is made anew. One thread; owns them all."""
from __future__ import annotations

import dataclasses
import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from .plan import Run

STOP_S = 10
RUN_LIMIT_S = 3600
FAULTS_MAX = 2  # of one run, before it is left out


class Worker:
    """A process with its run."""

    def __init__(self, arguments: list[str], number: int) -> None:
        self.run: Run | None = None
        self.began = 0.0
        self.machine = ""
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
                       "PYTHONPATH": str(Path(__file__).resolve().parent.parent), "PYTHONDONTWRITEBYTECODE": "1"}
        self.process = subprocess.Popen([sys.executable, "-m", "fidelity.worker", *arguments], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, env=environment)
        self.number = number

    def give(self, run: Run, seconds: float) -> None:
        self.run, self.began = run, time.monotonic()
        try:
            self.process.stdin.write(json.dumps({"run": dataclasses.asdict(run), "seconds": seconds}) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # its end is read as well

    def end(self) -> None:
        self.process.stdin.close()
        try:
            self.process.wait(STOP_S if self.run is None else 0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


class Pool:
    """`next_run(running)` says what is to be done next, or None; `on_done(run, outcome, machine)` hears of each that ended."""

    def __init__(self, arguments: list[str], workers: int, deadline: float, say: Callable[[str], None]) -> None:
        self._arguments, self._count, self._deadline, self._say = arguments, workers, deadline, say
        self._faults: dict[str, int] = {}
        self._workers: list[Worker] = []
        self._selector = selectors.DefaultSelector()

    def is_given_up(self, run: Run) -> bool:
        return self._faults.get(run.key, 0) >= FAULTS_MAX

    def _add(self) -> None:
        worker = Worker(self._arguments, len(self._workers))
        self._workers.append(worker)
        self._selector.register(worker.process.stdout, selectors.EVENT_READ, worker)

    def _drop(self, worker: Worker) -> None:
        self._selector.unregister(worker.process.stdout)
        self._workers.remove(worker)
        worker.end()

    def work(self, next_run: Callable[[set[str]], Run | None], on_done: Callable[[Run, dict, str], None]) -> None:
        """Until nothing is left, or the deadline has passed; what runs then is let go."""
        for _ in range(self._count):
            self._add()
        try:
            while time.monotonic() < self._deadline:
                self._give_out(next_run)
                if not any(worker.run or not worker.machine for worker in self._workers):
                    return
                for key, _ in self._selector.select(max(0.0, min(1.0, self._deadline - time.monotonic()))):
                    self._hear(key.data, on_done)
        finally:
            for worker in list(self._workers):
                self._drop(worker)

    def _give_out(self, next_run: Callable[[set[str]], Run | None]) -> None:
        for worker in self._workers:
            if worker.run is None and worker.machine:
                run = next_run({other.run.key for other in self._workers if other.run})
                if run is None:
                    return
                worker.give(run, min(RUN_LIMIT_S, self._deadline - time.monotonic()))

    def _hear(self, worker: Worker, on_done: Callable[[Run, dict, str], None]) -> None:
        line = worker.process.stdout.readline()
        if not line:
            self._fault(worker, f"the worker ended with status {worker.process.poll()}")
            was_ready = bool(worker.machine)
            self._drop(worker)
            if was_ready:
                self._add()
            elif not self._workers:
                raise RuntimeError("no worker starts; what it says stands above")
            return
        answer = json.loads(line)
        if "ready" in answer:
            worker.machine = answer["ready"]
        elif "fault" in answer:
            self._fault(worker, answer["fault"])
        else:
            run, worker.run = worker.run, None
            on_done(run, answer["outcome"], worker.machine)

    def _fault(self, worker: Worker, text: str) -> None:
        run, worker.run = worker.run, None
        if run is None:
            return
        if not text.startswith("TimeoutError"):
            self._say(f"fidelity: {run.key}: {text}")
            self._faults[run.key] = self._faults.get(run.key, 0) + 1

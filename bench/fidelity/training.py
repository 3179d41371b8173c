"""One run: gradients of every node's ranks, one step of the job, the optimizer. Gives back what a line of results holds."""
import ctypes
import time
from pathlib import Path

import numpy as np
import torch

from .gradients import Gradients
from .library import Job, JobError
from .optimizers import Adam, Sgd, rate_at
from .plan import NODES, Run
from .tasks import CLASSES, COURSES

POINTS = 12  # of each curve
MOMENTUM = 0.9


class Sampler:
    """Which samples each node takes: all of them in a new order each epoch. The same on every device."""

    def __init__(self, samples: int, step_samples: int, seed: int) -> None:
        self._samples, self._step_samples = samples, step_samples
        self._random = np.random.default_rng([seed, 1])
        self._left = np.zeros(0, np.int64)

    def next(self) -> np.ndarray:
        if len(self._left) < self._step_samples:
            # Of long texts every letter begins a sample: an epoch that no run ends need not be laid out.
            self._left = (self._random.permutation(self._samples) if self._samples <= 1 << 20 else
                          self._random.integers(0, self._samples, 1 << 20))
        taken, self._left = self._left[:self._step_samples], self._left[self._step_samples:]
        return taken


class Handover:
    """Between the device's gradients and the job's arrays."""

    def __init__(self, run: Run, elements: int, device: str) -> None:
        self._run, is_cuda = run, device.startswith("cuda")
        samples = run.ranks * run.micro_batches if run.sees_samples else 1

        def made(*shape):
            return torch.zeros(*shape, pin_memory=is_cuda)

        self._samples, self.average = made(NODES, samples, elements), made(elements)
        self._moments = made(NODES, run.ranks, elements) if run.source == "second moments" else None
        self._is_cuda = is_cuda
        self._sums = torch.zeros(NODES, 1, elements, device=device) if run.local_momentum else None

    @property
    def arrays(self):
        return self._samples.numpy(), self.average.numpy(), None if self._moments is None else self._moments.numpy()

    def take(self, found: torch.Tensor) -> None:
        of_nodes = found.unflatten(0, (NODES, -1))
        if self._sums is not None:
            of_nodes = of_nodes + MOMENTUM * self._sums
            self._sums.copy_(of_nodes.mean(1, keepdim=True))
        if self._moments is not None:  # groups of one sample each
            of_ranks = of_nodes.unflatten(1, (self._run.ranks, -1))
            self._moments.copy_(of_ranks.square().sum(2), non_blocking=True)
            self._samples.copy_(of_ranks.mean(2), non_blocking=True)
        else:
            self._samples.copy_(of_nodes if self._run.sees_samples else of_nodes.mean(1, keepdim=True), non_blocking=True)
        if self._is_cuda:
            torch.cuda.synchronize()


class Training:
    def __init__(self, run: Run, library: ctypes.CDLL, task, device: str) -> None:
        self._run, self._task, self._device = run, task, device
        self._course = COURSES[run.task, run.size]
        self._steps = run.steps or self._course.steps
        groups = NODES * (self._course.batch if run.source == "second moments" else run.ranks * run.micro_batches if run.sees_samples else 1)
        each = NODES * self._course.batch // groups
        if each * groups != NODES * self._course.batch:
            raise ValueError(f"{run.ranks} ranks with {run.micro_batches} micro-batches do not share out {self._course.batch} samples")
        self._shape = (groups, each)
        self._gradients = Gradients(task, groups, each, device)
        random = np.random.default_rng([run.seed, 0])
        initial = task.initial(random)
        self._gradients.parameters.copy_(torch.tensor(np.concatenate([values.ravel() for values in initial.values()])))
        self._handover = Handover(run, self._gradients.elements, device)
        self._sampler = Sampler(task.samples, NODES * self._course.batch, run.seed)
        is_one = not run.sees_samples
        self._job = Job(library, run.codec, task.shapes, nodes=NODES, ranks=1 if is_one else run.ranks,
                        samples=1 if is_one or run.source == "second moments" else run.micro_batches,
                        batch_samples=self._course.batch, name=f"{run.task} {run.seed}")
        if run.optimizer == "adam":
            self._optimizer = Adam(self._gradients.parameters)
        else:
            self._optimizer = Sgd(self._gradients.parameters, 0.0 if run.has_own_momentum else MOMENTUM)
        self._loss = torch.zeros((), device=device)
        self._loss_steps = 0

    def _step(self, step: int, rescale: float) -> None:
        indices = torch.from_numpy(self._sampler.next().reshape(self._shape))
        found, losses = self._gradients(indices)
        self._handover.take(found)
        self._loss += losses.mean()
        self._loss_steps += 1
        samples, average, moments = self._handover.arrays
        self._job.step(samples, average, moments, rescale)
        rate = rate_at(step, self._steps, self._course.rates[self._run.optimizer] * self._run.rate)
        self._optimizer.step(self._handover.average.to(self._device, non_blocking=True), rate)

    def _point(self, step: int) -> dict:
        parameters = {name: values[None] for name, values in self._gradients.named(self._gradients.parameters).items()}
        metric, test_loss = self._task.test(parameters)
        loss = self._loss.item() / max(1, self._loss_steps)
        self._loss.zero_()
        self._loss_steps = 0
        counters = self._job.counters
        return {"step": step, "loss": round(loss, 5), "metric": round(metric, 4), "test_loss": round(test_loss, 5),
                "wire_bytes": counters.wire_bytes}

    def outcome(self, deadline_s: float) -> dict:
        """What a line of results holds. Raises TimeoutError beyond the deadline."""
        began = time.monotonic()
        curve, ending, step = [], "", 0
        every = max(1, self._steps // POINTS)
        rates = [rate_at(at, self._steps, 1.0) for at in range(1, self._steps + 1)]
        try:
            for step in range(1, self._steps + 1):
                is_rescaled = self._run.rescale and step > 1
                self._step(step, rates[step - 2] / rates[step - 1] if is_rescaled else 1.0)
                if step % every == 0 and self._steps - step >= every // 2 or step == self._steps:
                    curve.append(self._point(step))
                if time.monotonic() - began > deadline_s:
                    raise TimeoutError(f"step {step} of {self._steps} after {deadline_s:.0f} s")
        except JobError as error:
            ending = str(error)
        counters = self._job.counters
        exact = 2 * (NODES - 1) / NODES * 4 * self._gradients.elements * NODES * step
        result = {"curve": curve, "error": ending, "steps": step, "parameters": self._gradients.elements,
                  "wire_ratio": exact / max(1, counters.wire_bytes),
                  "payload_ratio": 4 * self._gradients.elements * NODES * step / max(1, counters.payload_bytes),
                  "kept": counters.kept_elements / (self._gradients.elements * NODES * max(1, step)),
                  "sources": sorted(set(self._job.variance_sources)), "seconds": round(time.monotonic() - began, 1)}
        self._job.close()
        return result


_tasks: dict[tuple[str, str, str], object] = {}


def train(run: Run, library: ctypes.CDLL, data: Path, device: str, deadline_s: float) -> dict:
    """A task's data is read once a process."""
    key = (run.task, run.size, device)
    if key not in _tasks:
        _tasks.clear()
        _tasks[key] = CLASSES[run.task](data, run.size, device)
    return Training(run, library, _tasks[key], device).outcome(deadline_s)

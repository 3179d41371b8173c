"""Averaging for training loops without DistributedDataParallel: one call after the backward pass. Runs on the caller's
thread, where Ctrl-C ends it."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from ..errors import GradsieveError, InvalidArgument, Timeout
from ..job import Job, NonFinitePolicy
from .checkpoints import Checkpoint, Checkpointed
from .intake import Intake, check_weight
from .member import Member
from .members import Scale, finish_step, trainable
from .refusals import refuse_sharding, refuse_sparse
from .second_moments import SecondMoments


@dataclass
class _OpenStep:
    """A step that was begun and has no outcome."""

    number: int
    pairs: list[tuple[Member, torch.Tensor]]
    weight: float = 1.0
    handed_in: int = 0  # of `pairs`; one more if a signal came right after its hand-in
    is_resumed: bool = False


class Averager(Checkpointed):
    """Averages a model's gradients over all ranks, which have the same model.

    model: any module; each parameter that needs a gradient now is a tensor of the job. job, codec, run_id, non_finite,
    socket_path, prefix, optimizer, grad_scaler, timeout, start_timeout, micro_batches (backward passes between two calls of
    `average_gradients`), second_moments: as gradsieve.torch.State. rank and world_size are torch.distributed's where that is
    initialized, else the launcher's variables. resume: a state_dict of a checkpoint. Errors: State's."""

    def __init__(self, model: torch.nn.Module, job: str | Job, *, codec: str | None = None, run_id: str | None = None,
                 non_finite: NonFinitePolicy = NonFinitePolicy.SKIP_STEP, socket_path: str | None = None, prefix: str = "",
                 optimizer: torch.optim.Optimizer | None = None, grad_scaler: object | None = None,
                 timeout: float = 1800.0, start_timeout: float = 300.0, micro_batches: int = 1,
                 second_moments: SecondMoments | None = None, resume: Mapping[str, Any] | None = None) -> None:
        refuse_sharding(model, optimizer)
        refuse_sparse(model)
        parameters = trainable(model.named_parameters())
        is_own = isinstance(job, str)
        if not is_own and codec is not None:
            raise InvalidArgument(f"codec is {codec!r} beside a Job: allowed with a job's name; give it to the Job")
        has_ranks = dist.is_available() and dist.is_initialized()
        self._make_job = lambda run: Job(job, dist.get_rank() if has_ranks else None, dist.get_world_size() if has_ranks else None,
                                         codec=codec, run_id=run, non_finite=non_finite, socket_path=socket_path)
        self._model = model
        self._make_intake = lambda: Intake(model, self.job, parameters, prefix, Scale(optimizer, grad_scaler),
                                           micro_batches=micro_batches, second_moments=second_moments)
        self._group, self._timeout, self._start_timeout = prefix, timeout, start_timeout
        self._open: _OpenStep | None = None
        self._broadcast = 0  # members that are done in a broadcast that is under way
        self.last_step = 0  # the number of the last step that was begun; 0 before the first
        self._is_own = is_own
        self.job = self._make_job(resume["run_id"] if resume is not None and "run_id" in resume else run_id) \
            if isinstance(job, str) else job
        self._join(None if resume is None else Checkpoint.of(resume, self.job.name, prefix, self.job.world_size))

    def _join(self, checkpoint: Checkpoint | None) -> None:
        self._intake = self._make_intake()
        with self._intake.closed_on_error():
            if checkpoint:
                checkpoint.apply(self.job, self._timeout)
            if self._is_own:
                self.job.start(self._start_timeout)

    def _kept_step(self) -> int:
        return self.last_step

    def close(self, timeout: float = 10.0) -> None:
        """After training: takes hooks off the model and leaves the job, where it was made here. Call it on all ranks after the
        same step. Errors: Job.detach's."""
        self._intake.close()
        if self._is_own:
            self.job.detach(timeout)

    @torch.no_grad()
    def average_gradients(self, weight: float = 1.0) -> int:
        """Hands in every parameter's `grad` (zeros where there is none), multiplied by `weight` (see State.weight), waits, and
        writes the average back; every parameter that is not frozen has a `grad` afterwards. Called by all ranks after each backward pass. Gives back
        the step's number. On a GPU, gradients that stay where they are (`zero_grad(set_to_none=False)`) need not be
        bound again. After Timeout or Ctrl-C the same call again goes on with the step that is open, and gives the
        average of the gradients that were handed in. Errors: FailedPrecondition (a parameter that was frozen when this
        was made has a gradient), and those of Tensor.submit and Tensor.wait."""
        self._open = step = self._begin(check_weight(weight)) if self._open is None else self._open
        self.last_step = step.number
        try:
            self._finish(step)
        except GradsieveError as error:
            step.is_resumed = isinstance(error, Timeout)
            self._open = step if step.is_resumed else None  # a step that failed is over
            raise
        except BaseException:
            step.is_resumed = True
            raise
        self._open = None
        return step.number

    def _begin(self, weight: float) -> _OpenStep:
        for name, parameter in self._model.named_parameters():
            if parameter.grad is not None:
                self._intake.members.of(parameter, name)
        pairs = []
        for member in self._intake.members:
            gradient = member.parameter.grad
            pairs.append((member, torch.zeros_like(member.parameter) if gradient is None else gradient))
        self._intake.members.bind(pairs, self._timeout, weight)
        return _OpenStep(self.last_step + 1 if self.last_step else self.job.first_step(self._group), pairs, weight)

    def _finish(self, step: _OpenStep) -> None:
        for member, gradient in step.pairs[step.handed_in:]:
            if not step.is_resumed or member.tensor.is_ready():
                self._intake.hand_in(member, step.number, gradient, step.weight)
            step.handed_in += 1
        self._intake.end_step()
        addresses = [member.tensor.wait_for_address(self._timeout) for member, _ in step.pairs]
        finish_step(self.job, step.number, self._group, self._timeout)
        for (member, gradient), address in zip(step.pairs, addresses):
            member.deliver(address, gradient)
            if member.parameter.requires_grad:
                member.parameter.grad = gradient

    @torch.no_grad()
    def broadcast_parameters(self, root: int = 0) -> None:
        """Copies rank `root`'s parameters to every rank, as DistributedDataParallel does at its start; between steps.
        Called by all ranks. Gradients are zero afterwards. Buffers, such as BatchNorm's, stay each rank's own. After
        Timeout or Ctrl-C the same call again goes on. Errors: those of Job.broadcast."""
        for member in list(self._intake.members)[self._broadcast:]:
            self._broadcast_one(member, root)
            self._broadcast += 1
        self._broadcast = 0

    def _broadcast_one(self, member: Member, root: int) -> None:
        parameter = member.parameter
        if not member.tensor.on_device:
            member.fill(parameter)
            member.deliver(self.job.broadcast_address(member.tensor, root, self._timeout), parameter)
            return
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        parameter.grad.copy_(parameter)
        self._intake.members.bind([(member, parameter.grad)], self._timeout)
        member.fill(parameter.grad)
        member.deliver(self.job.broadcast_address(member.tensor, root, self._timeout), parameter.grad)
        parameter.copy_(parameter.grad)
        parameter.grad.zero_()

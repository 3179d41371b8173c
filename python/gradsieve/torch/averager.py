"""Averaging for training loops without DistributedDataParallel: one call after the backward pass. Runs on the caller's
thread, where Ctrl-C ends it."""
from __future__ import annotations

import torch
import torch.distributed as dist

from ..errors import InvalidArgument
from ..job import Job, NonFinitePolicy
from .members import Members, Scale, finish_step, trainable
from .refusals import refuse_sharding, refuse_sparse


class Averager:
    """Averages a model's gradients over all ranks, which have the same model.

    model: any module; each parameter that needs a gradient now is a tensor of the job. job, codec, run_id, non_finite,
    socket_path, prefix, optimizer, grad_scaler, timeout, start_timeout: as gradsieve.torch.State. rank and world_size
    are torch.distributed's where that is initialized, else the launcher's variables. Errors: State's."""

    def __init__(self, model: torch.nn.Module, job: str | Job, *, codec: str | None = None, run_id: str | None = None,
                 non_finite: NonFinitePolicy = NonFinitePolicy.SKIP_STEP, socket_path: str | None = None, prefix: str = "",
                 optimizer: torch.optim.Optimizer | None = None, grad_scaler: object | None = None,
                 timeout: float = 1800.0, start_timeout: float = 300.0) -> None:
        refuse_sharding(model, optimizer)
        refuse_sparse(model)
        parameters = trainable(model.named_parameters())
        is_own = isinstance(job, str)
        if not is_own and codec is not None:
            raise InvalidArgument(f"codec is {codec!r} beside a Job: allowed with a job's name; give it to the Job")
        has_ranks = dist.is_available() and dist.is_initialized()
        self.job = Job(job, dist.get_rank() if has_ranks else None, dist.get_world_size() if has_ranks else None,
                       codec=codec, run_id=run_id, non_finite=non_finite, socket_path=socket_path) \
            if isinstance(job, str) else job
        self._model = model
        self._members = Members(self.job, parameters, prefix)
        self._scale = Scale(optimizer, grad_scaler)
        self._group, self._timeout = prefix, timeout
        self.last_step = 0  # the number of the last step that was begun; 0 before the first
        if is_own:
            self.job.start(start_timeout)

    @torch.no_grad()
    def average_gradients(self) -> int:
        """Hands in every parameter's `grad` (zeros where there is none), waits, and writes the average back; every
        parameter that is not frozen has a `grad` afterwards. Called by all ranks after each backward pass. Gives back
        the step's number. On a GPU, gradients that stay where they are (`zero_grad(set_to_none=False)`) need not be
        bound again. Errors: FailedPrecondition (a parameter that was frozen when this was made has a gradient), and
        those of Tensor.submit and Tensor.wait."""
        for name, parameter in self._model.named_parameters():
            if parameter.grad is not None:
                self._members.of(parameter, name)
        self.last_step = self.last_step + 1 if self.last_step else self.job.first_step(self._group)
        pairs = []
        for member in self._members:
            gradient = member.parameter.grad
            pairs.append((member, torch.zeros_like(member.parameter) if gradient is None else gradient))
        self._members.bind(pairs, self._timeout)
        for member, gradient in pairs:
            member.hand_in(self.last_step, gradient, self._scale.of(member.parameter))
        addresses = [member.tensor.wait_for_address(self._timeout) for member, _ in pairs]
        finish_step(self.job, self.last_step, self._group, self._timeout)
        for (member, gradient), address in zip(pairs, addresses):
            if not gradient.is_cuda:
                gradient.copy_(member.average(address))
            if member.parameter.requires_grad:
                member.parameter.grad = gradient
        return self.last_step

    @torch.no_grad()
    def broadcast_parameters(self, root: int = 0) -> None:
        """Copies rank `root`'s parameters to every rank, as DistributedDataParallel does at its start; between steps.
        Called by all ranks. Gradients are zero afterwards. Buffers, such as BatchNorm's, stay each rank's own. Errors:
        those of Job.broadcast."""
        for member in self._members:
            parameter = member.parameter
            if not parameter.is_cuda:
                member.slab().copy_(parameter)
                parameter.copy_(member.average(self.job.broadcast_address(member.tensor, root, self._timeout)))
                continue
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            parameter.grad.copy_(parameter)
            self._members.bind([(member, parameter.grad)], self._timeout)
            self.job.broadcast_address(member.tensor, root, self._timeout)
            parameter.copy_(parameter.grad)
            parameter.grad.zero_()

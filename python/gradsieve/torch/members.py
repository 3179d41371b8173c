"""A model's parameters as tensors of a job: which name belongs to which, and what is known of their steps. State at the
daemon follows these names, never DDP's buckets. One thread at a time."""
from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import Any

import torch

from ..errors import FailedPrecondition, InvalidArgument, NonFinite
from ..job import Job, NonFinitePolicy
from .member import Member
from .refusals import check_parameter


class Scale:
    """loss scale / learning rate of each parameter, by which kept state follows both. 1 where neither is known. A
    learning rate of 0, as at the start of a warm-up, keeps the last scale. The loss scale lies on the GPU, so that it is
    read once a step, whatever the number of parameters."""

    def __init__(self, optimizer: torch.optim.Optimizer | None, grad_scaler: Any) -> None:
        self._groups = {id(parameter): group for group in (optimizer.param_groups if optimizer else [])
                        for parameter in group["params"]}
        self._grad_scaler = grad_scaler
        self._loss_scale, self._step = 1.0, 0  # the step in which it was read
        self._last: dict[int, float] = {}

    def of(self, parameter: torch.nn.Parameter, step: int) -> float:
        """For the hand-in of `parameter` in step `step`."""
        if self._grad_scaler is not None and step != self._step:
            self._loss_scale, self._step = float(self._grad_scaler.get_scale()), step
        group = self._groups.get(id(parameter))
        rate = float(group["lr"]) if group else 1.0
        if rate > 0 and self._loss_scale > 0:
            self._last[id(parameter)] = self._loss_scale / rate
        return self._last.get(id(parameter), 1.0)


def trainable(parameters: Iterable[tuple[str, torch.nn.Parameter]]) -> list[tuple[str, torch.nn.Parameter]]:
    """Those that need a gradient. Errors: InvalidArgument, naming what cannot be averaged."""
    found = [(name, parameter) for name, parameter in parameters if parameter.requires_grad]
    for name, parameter in found:
        check_parameter(name, parameter)
    if not found:
        raise InvalidArgument("the model has 0 parameters that need a gradient: allowed is 1 or more; unfreeze some")
    return found


def finish_step(job: Job, step: int, group: str, timeout: float) -> None:
    """Job.finish, for a step whose averages are there. Under SKIP_STEP a NaN is among them, for loss scalers to see, and
    what `finish` says of it is no news. Errors: Job.finish's."""
    try:
        job.finish(step, timeout, group=group)
    except NonFinite:
        if job.non_finite != NonFinitePolicy.SKIP_STEP:
            raise


class Members:
    """The parameters of a model that need a gradient (see `trainable`). Their tensors are one group of the job, named by
    `prefix`. Those in `moments` get room for a second moment, the others for `slices` micro-batches."""

    def __init__(self, job: Job, parameters: Iterable[tuple[str, torch.nn.Parameter]], prefix: str, *, slices: int = 1,
                 moments: Container[torch.Tensor] = ()) -> None:
        self._by_parameter: dict[torch.Tensor, Member] = {}
        for name, parameter in parameters:
            full_name = f"{prefix}.{name}" if prefix else name
            has_moment = parameter in moments
            own_slices = 1 if has_moment else slices
            tensor = job.add_tensor(full_name, tuple(parameter.shape), group=prefix, on_device=parameter.is_cuda and parameter.numel() > 0,
                                    samples_max=own_slices, has_second_moment=has_moment)
            member = self._by_parameter[parameter] = Member(full_name, parameter, tensor)
            member.reserve(own_slices, has_moment)
        self._job = job

    def __iter__(self) -> Iterator[Member]:
        return iter(self._by_parameter.values())

    def of(self, parameter: torch.Tensor, name: str = "") -> Member:
        """The member of a parameter. Errors: FailedPrecondition, for one that was frozen when the model was registered."""
        member = self._by_parameter.get(parameter)
        if member is None:
            raise FailedPrecondition(f"parameter '{name}' of shape {tuple(parameter.shape)} is not registered: allowed are those that "
                                     "needed a gradient when the model was registered; unfreeze before, or register anew")
        return member

    def bind(self, gradients: Iterable[tuple[Member, torch.Tensor]], timeout: float, weight: float = 1.0) -> None:
        """Binds what moved on a GPU of the gradients, which are to be handed in with `weight` on the current stream, in one
        round trip. Errors: InvalidArgument (a gradient is on another device than its parameter was), Job.bind_devices's."""
        streams: dict[torch.device, int] = {}
        moved = []
        for member, gradient in gradients:
            member.check_device(gradient)
            if not member.tensor.on_device:
                continue
            if gradient.device not in streams:
                streams[gradient.device] = torch.cuda.current_stream(gradient.device).cuda_stream
            buffer = member.buffer_to_bind(gradient, streams[gradient.device], weight)
            if buffer:
                moved.append((member, buffer))
        if moved:
            self._job.bind_devices([(member.tensor, buffer) for member, buffer in moved], timeout)
        for member, buffer in moved:
            member.on_bound(buffer)

"""A model's parameters as tensors of a job: which name belongs to which, how a gradient is handed in, and how its
average is written back. State at the daemon follows these names, never DDP's buckets. One thread hands in, one takes
back; a parameter is never with both at once."""
from __future__ import annotations

import ctypes
import math
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from ..devices import DeviceBuffer, ElementType
from ..errors import FailedPrecondition, InvalidArgument, NonFinite
from ..job import Job, NonFinitePolicy
from ..tensor import Tensor
from .refusals import DTYPES, check_parameter


def _torch_view(address: int, shape: tuple[int, ...], owner: object) -> torch.Tensor:
    """Shared memory as a torch tensor, without a copy. Memory of results is mapped for reading: only read it."""
    if math.prod(shape) == 0:
        return torch.empty(shape)
    memory = (ctypes.c_float * math.prod(shape)).from_address(address)
    setattr(memory, "_owner", owner)
    return torch.frombuffer(memory, dtype=torch.float32).reshape(shape)


def _is_dense(gradient: torch.Tensor) -> bool:
    return gradient.is_contiguous() or (gradient.dim() == 4 and gradient.is_contiguous(memory_format=torch.channels_last))


@dataclass
class Member:
    """One parameter of a model and its tensor of the job."""

    name: str
    parameter: torch.nn.Parameter
    tensor: Tensor
    _slabs: dict[int, torch.Tensor] = field(default_factory=dict)  # by slice
    _results: dict[int, torch.Tensor] = field(default_factory=dict)  # by address: a job has few result areas
    _bound: tuple[int, int] = (0, 0)  # pointer and stream

    def buffer_to_bind(self, gradient: torch.Tensor) -> DeviceBuffer | None:
        """What has to be bound before `gradient`, on a GPU, is handed in; None if it is bound already."""
        if not gradient.is_cuda:
            return None
        if not _is_dense(gradient):
            raise InvalidArgument(f"gradient of '{self.name}' has strides {gradient.stride()}: allowed is dense memory; call "
                                  "contiguous() on it")
        stream = torch.cuda.current_stream(gradient.device).cuda_stream
        if self._bound == (gradient.data_ptr(), stream):
            return None
        return DeviceBuffer(gradient.data_ptr(), gradient.numel(), ElementType(DTYPES[gradient.dtype]), stream, owner=gradient)

    def on_bound(self, buffer: DeviceBuffer) -> None:
        """Notes what is bound now."""
        self._bound = (buffer.pointer, buffer.stream)

    def hand_in(self, step: int, gradient: torch.Tensor, scale: float, weight: float = 1.0, *, slices: int = 0,
                samples: int = 0) -> None:
        """Copies `weight` times a gradient on the host into the slab, widening half types exactly, and submits. On a GPU
        the gradient itself is multiplied. slices: how many were filled already (then `gradient` is not read). samples: how
        many a second moment was summed up over, if there is one. Errors: Busy (the last step is not settled; its gradient
        stays as it is), and those of Tensor.submit."""
        if gradient.is_cuda:
            if weight != 1.0:
                gradient.mul_(weight)
        elif not slices:
            self.fill(gradient)
            if weight != 1.0:
                self.slice(0).mul_(weight)
        self.tensor.submit(step, sample_count=slices or 1, samples=[samples] if samples else None, scale=scale)

    def fill(self, values: torch.Tensor) -> None:
        """Copies values on the host into the slab. Errors: Busy (the daemon reads it still)."""
        self.tensor.require_settled()
        self.slice(0).copy_(values)

    def slice(self, index: int) -> torch.Tensor:
        """The shared memory of a slice."""
        if index not in self._slabs:
            self._slabs[index] = _torch_view(self.tensor.slab_address(index), self.tensor.shape, self.tensor)
        return self._slabs[index]

    def write_second_moment(self, squares: torch.Tensor, samples: int, weight: float) -> None:
        """Hands over the sum over `samples` samples of the squared part of each in the gradient. The daemon takes gradients
        whose mean the gradient is: samples * weight times those parts. Errors: Busy."""
        self.tensor.require_settled()
        place = _torch_view(self.tensor.second_moment_address(), self.tensor.shape, self.tensor)
        torch.mul(squares, (samples * weight) ** 2, out=place)

    def average(self, address: int) -> torch.Tensor:
        """The average at `address` of the result area, for reading."""
        if address not in self._results:
            self._results[address] = _torch_view(address, self.tensor.shape, self.tensor)
        return self._results[address]


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
            tensor = job.add_tensor(full_name, tuple(parameter.shape), group=prefix, on_device=parameter.is_cuda,
                                    samples_max=1 if has_moment else slices, has_second_moment=has_moment)
            self._by_parameter[parameter] = Member(full_name, parameter, tensor)
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

    def bind(self, gradients: Iterable[tuple[Member, torch.Tensor]], timeout: float) -> None:
        """Binds what moved of gradients on a GPU, in one round trip."""
        moved = [(member, buffer) for member, gradient in gradients if (buffer := member.buffer_to_bind(gradient))]
        if moved:
            self._job.bind_devices([(member.tensor, buffer) for member, buffer in moved], timeout)
        for member, buffer in moved:
            member.on_bound(buffer)

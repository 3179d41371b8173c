"""One parameter of a model as a tensor of a job: where its gradient is handed in from, on the host and on a GPU, and how
its average is written back. One thread hands in, one takes back; a parameter is never with both at once. Slabs on the host
are the daemon's shared memory, those on a GPU this process's."""
from __future__ import annotations

import ctypes
import math
from collections.abc import Container
from dataclasses import dataclass, field

import torch

from ..devices import DeviceBuffer, ElementType
from ..errors import InvalidArgument, ResourceExhausted
from ..tensor import Tensor
from .refusals import DTYPES
from .streams import StreamOrder


def _torch_view(address: int, shape: tuple[int, ...], owner: object) -> torch.Tensor:
    """Shared memory as a torch tensor, without a copy. Memory of results is mapped for reading: only read it."""
    if math.prod(shape) == 0:
        return torch.empty(shape)
    memory = (ctypes.c_float * math.prod(shape)).from_address(address)
    setattr(memory, "_owner", owner)
    return torch.frombuffer(memory, dtype=torch.float32).reshape(shape)


def zeros_on(device: torch.device, shape: tuple[int, ...], what: str) -> torch.Tensor:
    """float32 of a GPU's. Errors: ResourceExhausted."""
    try:
        return torch.zeros(shape, dtype=torch.float32, device=device)
    except torch.cuda.OutOfMemoryError as error:
        raise ResourceExhausted(f"{what} of {4 * math.prod(shape)} bytes on {device}: allowed is what the GPU has left; use fewer "
                                f"micro-batches, or a smaller model ({error})") from error


@dataclass
class Member:
    """One parameter of a model and its tensor of the job.

    On the host its slices are shared memory. On a GPU the gradient itself is handed in, and gets the average, where it can be;
    or, as always with several slices, a slab of this process's: float32, in the order of the parameter's indices."""

    name: str
    parameter: torch.nn.Parameter
    tensor: Tensor
    _slabs: dict[int, torch.Tensor] = field(default_factory=dict)  # by slice, on the host
    _results: dict[int, torch.Tensor] = field(default_factory=dict)  # by address: a job has few result areas
    _card_slab: torch.Tensor | None = None  # on a GPU: the slices one after the other
    _card_moment: torch.Tensor | None = None
    _order: StreamOrder = field(default_factory=StreamOrder)  # of both
    _bound: tuple[int, int] = (0, 0)  # pointer and stream

    def reserve(self, slices: int, has_moment: bool) -> None:
        """On a GPU: makes room for several slices, and for a second moment, so that a step does not run out of memory. Errors:
        ResourceExhausted."""
        if self.tensor.on_device and slices > 1:
            self._make_slab(slices)
        if self.tensor.on_device and has_moment:
            self._card_moment = self._zeros(self.tensor.shape, f"second moment of '{self.name}'")

    def _make_slab(self, slices: int) -> None:
        self._card_slab = self._zeros((slices, *self.tensor.shape), f"{slices} slices of '{self.name}'")

    def _zeros(self, shape: tuple[int, ...], what: str) -> torch.Tensor:
        memory = zeros_on(self.parameter.device, shape, what)
        self._order.enter(memory)
        return memory

    def check_device(self, gradient: torch.Tensor) -> None:
        """Errors: InvalidArgument (it moved since the model was registered)."""
        if gradient.is_cuda == self.tensor.on_device or gradient.numel() == 0:
            return
        raise InvalidArgument(f"gradient of '{self.name}' is on {gradient.device}: allowed is {'a GPU' if self.tensor.on_device else 'the host'}, "
                              "where the parameter was when the model was registered; move the model first, or register it anew")

    def buffer_to_bind(self, gradient: torch.Tensor, stream: int, weight: float = 1.0) -> DeviceBuffer | None:
        """What has to be bound before `gradient`, which `stream` makes on a GPU, is handed in with `weight`; None if it is
        bound already. Errors: ResourceExhausted."""
        # Elements lie in the order of indices on all ranks, and half types are not rounded before the average.
        if self._card_slab is None and (not gradient.is_contiguous() or (weight != 1.0 and gradient.dtype != torch.float32)):
            self._make_slab(1)
        memory = gradient if self._card_slab is None else self._card_slab
        if self._bound == (memory.data_ptr(), stream):
            return None
        moment = self._card_moment
        return DeviceBuffer(memory.data_ptr(), gradient.numel(), ElementType(DTYPES[memory.dtype]), stream,
                            second_moment=0 if moment is None else moment.data_ptr(), owner=(memory, moment))

    def on_bound(self, buffer: DeviceBuffer) -> None:
        """Notes what is bound now."""
        self._bound = (buffer.pointer, buffer.stream)

    def hand_in(self, step: int, gradient: torch.Tensor, scale: float, weight: float = 1.0, *, slices: int = 0,
                samples: int = 0) -> None:
        """Hands in `weight` times a gradient, which is bound if it lies on a GPU. There it may be multiplied itself; in slabs
        half types are widened exactly before. slices: how many were filled already (then `gradient` is not read). samples: how
        many a second moment was summed up over, if there is one. Errors: Busy (the last step is not settled; its gradient
        stays as it is), and those of Tensor.submit."""
        if not slices:
            self.fill(gradient)
            if weight != 1.0:
                (gradient if self._is_handed_in_itself() else self.slice(0)).mul_(weight)
        self.tensor.submit(step, sample_count=slices or 1, samples=[samples] if samples else None, scale=scale)

    def _is_handed_in_itself(self) -> bool:
        return self.tensor.on_device and self._card_slab is None

    def fill(self, values: torch.Tensor) -> None:
        """Copies values to where slice 0 is handed in from, unless it is from themselves. Errors: Busy (the daemon reads it
        still)."""
        if not self._is_handed_in_itself():
            self.tensor.require_settled()
            self.write(0, values)

    def write(self, index: int, values: torch.Tensor) -> None:
        """Copies values, where they lie, into a slice of a tensor whose last step is settled."""
        self._enter(self._card_slab)
        self.slice(index).copy_(values)

    def _enter(self, memory: torch.Tensor | None) -> None:
        if memory is not None:
            self._order.enter(memory)

    def slice(self, index: int) -> torch.Tensor:
        """The memory of a slice."""
        if self._card_slab is not None:
            return self._card_slab[index]
        if index not in self._slabs:
            self._slabs[index] = _torch_view(self.tensor.slab_address(index), self.tensor.shape, self.tensor)
        return self._slabs[index]

    def complete(self, filled: Container[int], count: int, factor: float) -> None:
        """Of the first `count` slices: clears those that are not `filled`, and multiplies all."""
        self._enter(self._card_slab)
        parts = [self.slice(index) for index in range(count)]
        for index, part in enumerate(parts):
            if index not in filled:
                part.zero_()
        if factor != 1.0:
            for part in parts if self._card_slab is None else [self._card_slab[:count]]:
                part.mul_(factor)

    def write_second_moment(self, squares: torch.Tensor, samples: int, weight: float) -> None:
        """Hands over the sum over `samples` samples of the squared part of each in the gradient. The daemon takes gradients
        whose mean the gradient is: samples * weight times those parts. Errors: Busy."""
        self.tensor.require_settled()
        self._enter(self._card_moment)
        place = self._card_moment
        if place is None:
            place = _torch_view(self.tensor.second_moment_address(), self.tensor.shape, self.tensor)
        torch.mul(squares, (samples * weight) ** 2, out=place)

    def deliver(self, address: int, gradient: torch.Tensor) -> None:
        """Writes the average that Tensor.wait_for_address gave `address` of into `gradient`, where the daemon has not done so."""
        if not self.tensor.on_device:
            gradient.copy_(self.average(address))
        elif self._card_slab is not None:
            self._order.note(self._card_slab)
            gradient.copy_(self._card_slab[0])

    def average(self, address: int) -> torch.Tensor:
        """The average at `address` of the result area, for reading."""
        if address not in self._results:
            self._results[address] = _torch_view(address, self.tensor.shape, self.tensor)
        return self._results[address]

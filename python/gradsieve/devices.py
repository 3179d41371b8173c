"""Gradients that lie in GPU memory: what `Tensor.bind_device` takes, and how it is read off the arrays of frameworks.
Calls no GPU driver; the memory stays the program's."""
from __future__ import annotations

import ctypes
import enum
import math
from dataclasses import dataclass
from typing import Any

from . import _dlpack
from ._library import RawDeviceBuffer
from .errors import InvalidArgument


class ElementType(enum.IntEnum):
    """How the elements of a gradient lie in GPU memory; numbers of the C ABI."""

    F32 = 0
    F16 = 1
    BF16 = 2


_BY_NAME = {"float32": ElementType.F32, "float16": ElementType.F16, "bfloat16": ElementType.BF16}
_BY_TYPESTR = {"<f4": ElementType.F32, "<f2": ElementType.F16}


@dataclass(frozen=True)
class DeviceBuffer:
    """GPU memory that a tensor's gradient is handed in from and its average written to.

    pointer: slice 0 on the device, aligned to its element. elements: as the tensor was registered. stream: the CUstream
    or cudaStream_t on which the gradient is made; 0 is the legacy default stream. sample_stride_elements: from slice to
    slice; 0 is `elements`. second_moment: `elements` floats on the device, exactly if registered with
    has_second_moment. owner: any object, kept alive while the memory is bound."""

    pointer: int
    elements: int
    element_type: ElementType = ElementType.F32
    stream: int = 0
    sample_stride_elements: int = 0
    second_moment: int = 0
    owner: object = None

    def raw(self) -> RawDeviceBuffer:
        """As the C ABI takes it."""
        return RawDeviceBuffer(ctypes.sizeof(RawDeviceBuffer), self.pointer or None, self.elements, self.stream or None,
                               self.sample_stride_elements, self.second_moment or None, int(self.element_type), 0)


def _element_type(found: ElementType | None, seen: str) -> ElementType:
    if found is None:
        raise InvalidArgument(f"device memory of type {seen}: allowed are float32, float16 and bfloat16; convert it first")
    return found


def _require_contiguous(is_contiguous: bool) -> None:
    if not is_contiguous:
        raise InvalidArgument("device memory is strided: allowed is contiguous memory; make it contiguous first")


def _from_interface(interface: dict[str, Any], owner: object, stream: int | None) -> DeviceBuffer:
    pointer, is_read_only = interface["data"]
    if is_read_only:
        raise InvalidArgument("device memory is read-only: allowed is memory that the average can be written to; pass a "
                              "writable array")
    shape = tuple(interface["shape"])
    element_type = _element_type(_BY_TYPESTR.get(interface["typestr"]), interface["typestr"])
    size = 4 if element_type == ElementType.F32 else 2
    strides = interface.get("strides")
    _require_contiguous(_dlpack.is_contiguous(shape, tuple(s // size for s in strides) if strides else None))
    if stream is None:
        stream = interface.get("stream") or 0
    return DeviceBuffer(pointer, math.prod(shape), element_type, stream, owner=owner)


def device_buffer_of(values: Any, stream: int | None = None) -> DeviceBuffer:
    """A DeviceBuffer for what has `__cuda_array_interface__`, or `__dlpack__` on a CUDA device (bfloat16 comes only
    so), or is one already. `stream`: None takes the interface's own, else the legacy default stream. Errors:
    InvalidArgument (host memory, strided, read-only, another element type)."""
    if isinstance(values, DeviceBuffer):
        return values
    if hasattr(values, "__dlpack__"):
        found = _dlpack.placed(values)
        if found.device_type != _dlpack.CUDA:
            raise InvalidArgument(f"memory on DLPack device type {found.device_type}: allowed is CUDA memory (2); register "
                                  "the tensor without on_device and write into its gradient")
        _require_contiguous(found.is_contiguous)
        element_type = _element_type(_BY_NAME.get(found.type_name), found.type_name)
        return DeviceBuffer(found.address, math.prod(found.shape), element_type, stream or 0, owner=found.owner)
    interface = getattr(values, "__cuda_array_interface__", None)
    if interface is not None:
        return _from_interface(interface, values, stream)
    raise InvalidArgument(f"{type(values).__name__} given: allowed is a DeviceBuffer, or what has __dlpack__ or "
                          "__cuda_array_interface__; pass GPU memory")

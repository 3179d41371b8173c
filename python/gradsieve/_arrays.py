"""Shared memory as arrays, and arrays of others into shared memory. A view keeps the job's memory mapped for as long as
it lives, so that touching one is never a fault; numpy is used where it is installed, memoryview otherwise.
Any thread; two threads that write one slice need a lock of their own."""
from __future__ import annotations

import ctypes
import functools
import math
import struct
from typing import TYPE_CHECKING, Any

from . import _dlpack
from .errors import InvalidArgument

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, numpy.dtype[numpy.float32]] | memoryview
else:
    Array = Any
ArrayLike = Any  # the buffer protocol, or `__dlpack__`

_BUFFER_TYPES = {"f": "float32", "e": "float16"}
_TYPES = ("float32", "float16", "bfloat16")


@functools.cache
def _numpy() -> Any:
    try:
        import numpy
    except ImportError:
        return None
    return numpy


def view(address: int | None, shape: tuple[int, ...], owner: object, *, is_writable: bool) -> Array:
    """The floats at `address` in that shape: a numpy array, or a memoryview where numpy is not installed (flat if it is
    empty). `owner` is kept alive by it and by everything derived from it. Copies nothing."""
    elements = math.prod(shape)
    numpy = _numpy()
    if elements == 0:
        return numpy.empty(shape, numpy.float32) if numpy else memoryview(b"").cast("f")
    memory = (ctypes.c_float * elements).from_address(address or 0)
    setattr(memory, "_owner", owner)  # the array's base chain ends here
    flat = memoryview(memory).cast("B")
    if not is_writable:
        flat = flat.toreadonly()  # so that nobody can make a numpy array of it writable
    return numpy.frombuffer(flat, numpy.float32).reshape(shape) if numpy else flat.cast("f", shape)


def _byte_view(address: int, byte_count: int) -> memoryview:
    return memoryview((ctypes.c_ubyte * byte_count).from_address(address)).cast("B")


def _from_buffer(values: Any) -> tuple[tuple[int, ...], str, Any]:
    source = memoryview(values)
    type_name = _BUFFER_TYPES.get(source.format.lstrip("@=<"), f"buffer format '{source.format}'")
    shape = source.shape or ()
    if 0 in shape:
        return shape, type_name, memoryview(b"")
    return shape, type_name, source.cast("B") if source.c_contiguous else memoryview(source.tobytes())


def _from_dlpack(values: Any) -> tuple[tuple[int, ...], str, Any]:
    found = _dlpack.placed(values)
    if found.device_type not in (_dlpack.CPU, _dlpack.CUDA_HOST):
        raise InvalidArgument(f"values lie on a device (DLPack device type {found.device_type}): allowed is host memory; "
                              "register the tensor with on_device=True and bind_device it, or copy them to the host")
    if not found.is_contiguous:
        raise InvalidArgument("values are strided: allowed are contiguous ones; call contiguous() first")
    if 0 in found.shape:
        return found.shape, found.type_name, memoryview(b"")
    byte_count = math.prod(found.shape) * found.element_bytes
    memory = (ctypes.c_ubyte * byte_count).from_address(found.address)
    setattr(memory, "_owner", found.owner)
    return found.shape, found.type_name, memoryview(memory).cast("B")


def _read(values: Any, label: str) -> tuple[tuple[int, ...], str, Any]:
    try:
        return _from_buffer(values)
    except TypeError:
        if hasattr(values, "__dlpack__"):
            return _from_dlpack(values)
    raise InvalidArgument(f"{label}: {type(values).__name__} given: allowed is a numpy array, or what has the buffer "
                          "protocol or __dlpack__; convert it")


def _widen_halves(target: memoryview, source: memoryview) -> None:
    elements = len(source) // 2
    if numpy := _numpy():
        numpy.frombuffer(target, numpy.float32)[:] = numpy.frombuffer(source, numpy.float16)
    else:
        target.cast("f")[:] = memoryview(struct.pack(f"{elements}f", *struct.unpack(f"{elements}e", source))).cast("f")


def copy_in(address: int | None, shape: tuple[int, ...], values: ArrayLike, label: str) -> None:
    """Writes `values` (float32, float16 or bfloat16; `shape` exactly; host memory) as floats to `address`. Half types
    are widened exactly. Errors: InvalidArgument, naming `label` and what differs."""
    given_shape, type_name, source = _read(values, label)
    if type_name not in _TYPES:
        raise InvalidArgument(f"{label}: values of type {type_name}: allowed are float32, float16 and bfloat16; convert "
                              "them first")
    if tuple(given_shape) != tuple(shape):
        raise InvalidArgument(f"{label}: values of shape {tuple(given_shape)}: allowed is {tuple(shape)}, as the tensor "
                              "was registered; reshape them")
    if len(source) == 0:
        return
    target = _byte_view(address or 0, math.prod(shape) * 4)
    if type_name == "float32":
        target[:] = source
    elif type_name == "float16":
        _widen_halves(target, source)
    else:  # a bfloat16 is the upper half of a float32 (little-endian: the last two bytes)
        target[:] = bytes(len(target))
        target[2::4] = source[0::2]
        target[3::4] = source[1::2]


def byte_parts(parameters: Any) -> tuple[list[Any], list[int], list[int]]:
    """Owners, addresses and sizes in bytes of a list of host arrays, for reading; contiguous or copied."""
    owners, addresses, sizes = [], [], []
    for place, values in enumerate(parameters):
        _, _, source = _read(values, f"parameters[{place}]")
        if len(source) == 0:
            continue
        memory = source if not source.readonly else memoryview(bytearray(source))
        owners.append(memory)
        addresses.append(ctypes.addressof(ctypes.c_ubyte.from_buffer(memory)))
        sizes.append(len(source))
    return owners, addresses, sizes

"""Reads DLPack capsules with ctypes: where an array lies, its shape and its type, so that tensors of any framework can
be handed in without importing that framework. The memory stays the producer's and is valid while the capsule lives.
Any thread."""
from __future__ import annotations

import ctypes
from ctypes import POINTER, c_int32, c_int64, c_uint8, c_uint16, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any

from .errors import InvalidArgument

CPU, CUDA, CUDA_HOST = 1, 2, 3  # DLDeviceType
_FLOAT, _BFLOAT = 2, 4  # DLDataTypeCode
_NO_SYNCHRONIZATION = -1  # of the CUDA stream: who hands in names its stream itself


class _Device(ctypes.Structure):
    _fields_ = [("device_type", c_int32), ("device_id", c_int32)]


class _DataType(ctypes.Structure):
    _fields_ = [("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("device", _Device), ("ndim", c_int32), ("dtype", _DataType),
                ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)), ("byte_offset", c_uint64)]


_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.argtypes, _get_pointer.restype = [ctypes.py_object, ctypes.c_char_p], c_void_p


@dataclass(frozen=True)
class Placed:
    """An array's place. `type_name` is "float32", "float16", "bfloat16", or what else it is."""

    address: int
    device_type: int
    shape: tuple[int, ...]
    type_name: str
    element_bytes: int
    is_contiguous: bool
    owner: object  # keeps the memory valid


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """In elements, last dimension fastest."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...] | None) -> bool:
    """Whether elements lie without gaps; strides of dimensions with one element do not count."""
    if strides is None or 0 in shape:
        return True
    return all(extent == 1 or have == want for extent, have, want in zip(shape, strides, contiguous_strides(shape)))


def _type_name(dtype: _DataType) -> str:
    if dtype.lanes == 1 and dtype.code == _FLOAT:
        return f"float{dtype.bits}"
    if dtype.lanes == 1 and dtype.code == _BFLOAT:
        return f"bfloat{dtype.bits}"
    return f"DLPack type code {dtype.code} of {dtype.bits} bits"


def placed(values: Any) -> Placed:
    """Where `values`, which has `__dlpack__`, lies. Errors: InvalidArgument (no capsule; the producer refuses)."""
    if callable(detach := getattr(values, "detach", None)):
        values = detach()  # the same memory; torch gives no capsule of what needs a gradient
    device_type = int(values.__dlpack_device__()[0])
    try:
        capsule = values.__dlpack__(stream=_NO_SYNCHRONIZATION) if device_type == CUDA else values.__dlpack__()
    except (BufferError, RuntimeError) as error:
        raise InvalidArgument(f"__dlpack__ of {type(values).__name__} refuses ({error}): allowed is an array that can be "
                              "exported; pass what it asks for, or a numpy array") from None
    try:
        tensor = ctypes.cast(_get_pointer(capsule, b"dltensor"), POINTER(_Tensor)).contents
    except ValueError as error:
        raise InvalidArgument(f"__dlpack__ of {type(values).__name__} gave no DLPack capsule ({error}): allowed is a "
                              "capsule named dltensor; pass a numpy array instead") from None
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    strides = tuple(tensor.strides[i] for i in range(tensor.ndim)) if tensor.strides else None
    return Placed((tensor.data or 0) + tensor.byte_offset, device_type, shape, _type_name(tensor.dtype),
                  tensor.dtype.bits * tensor.dtype.lanes // 8, is_contiguous(shape, strides), (values, capsule))

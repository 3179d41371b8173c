"""libgradsieve through ctypes: finds it, checks its version, and declares the functions of gradsieve.h. The only file
that knows the C ABI's types. ctypes releases the GIL during every call. Any thread."""
from __future__ import annotations

import ctypes
import os
import threading
from ctypes import POINTER, c_char_p, c_double, c_float, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p

from .errors import Unavailable, VersionMismatch, error_of

VERSION = "0.1.0"  # of this package; the library's first two numbers are the same
SONAME = "libgradsieve.so.0"
LIBRARY_VARIABLE = "GRADSIEVE_LIBRARY"


class JobOptions(ctypes.Structure):
    """gradsieve_job_options."""

    _fields_ = [("struct_size", c_size_t), ("name", c_char_p), ("run_id", c_char_p), ("rank", c_int64),
                ("world_size", c_int64), ("codec", c_char_p), ("socket_path", c_char_p), ("non_finite", c_int32),
                ("check_every", c_uint32), ("require", c_char_p)]


class TensorOptions(ctypes.Structure):
    """gradsieve_tensor_options."""

    _fields_ = [("struct_size", c_size_t), ("group", c_char_p), ("samples_max", c_uint32),
                ("has_second_moment", c_int32), ("on_device", c_int32), ("reserved", c_int32)]


class RawDeviceBuffer(ctypes.Structure):
    """gradsieve_device_buffer."""

    _fields_ = [("struct_size", c_size_t), ("pointer", c_void_p), ("elements", c_uint64), ("stream", c_void_p),
                ("sample_stride_elements", c_uint64), ("second_moment", c_void_p), ("element_type", c_int32),
                ("reserved", c_int32)]


class SubmitOptions(ctypes.Structure):
    """gradsieve_submit_options."""

    _fields_ = [("struct_size", c_size_t), ("samples", POINTER(c_uint32)), ("scale", c_double),
                ("sample_count", c_uint32), ("reserved", c_uint32)]


class RawSnapshotPart(ctypes.Structure):
    """gradsieve_snapshot_part_info."""

    _fields_ = [("struct_size", c_size_t), ("node", c_char_p), ("ranks", POINTER(c_uint32)), ("rank_count", c_size_t),
                ("digest", c_uint64), ("bytes", c_uint64)]


_Floats = POINTER(POINTER(c_float))
# Names without their prefix, and the types of their arguments; all of them return a gradsieve_status.
_FALLIBLE: dict[str, list[object]] = {
    "job_make": [POINTER(JobOptions), POINTER(c_void_p)],
    "job_add_tensor": [c_void_p, c_char_p, POINTER(c_uint64), c_size_t, POINTER(TensorOptions), POINTER(c_void_p)],
    "job_start": [c_void_p, c_int64],
    "job_first_step": [c_void_p, c_char_p, POINTER(c_uint64)],
    "job_bind_devices": [c_void_p, POINTER(c_void_p), POINTER(POINTER(RawDeviceBuffer)), c_size_t, c_int64],
    "job_finish": [c_void_p, c_uint64, c_char_p, c_int64],
    "job_broadcast": [c_void_p, c_void_p, c_uint32, c_int64, _Floats],
    "job_check_equal": [c_void_p, c_uint64, c_int64],
    "job_check_parameters": [c_void_p, c_uint64, POINTER(c_void_p), POINTER(c_size_t), c_size_t, c_int64],
    "job_request_snapshot": [c_void_p, c_uint64, c_char_p, c_int64, POINTER(c_void_p)],
    "job_resume_from": [c_void_p, c_uint64, c_char_p, c_uint64],
    "job_export_snapshot": [c_void_p, c_uint64, c_char_p, c_int64, POINTER(c_void_p)],
    "job_import_snapshot": [c_void_p, c_char_p, c_size_t, c_int64, POINTER(c_void_p)],
    "job_release_snapshots": [c_void_p, c_uint64, c_char_p, c_int64],
    "snapshot_part": [c_void_p, c_size_t, POINTER(RawSnapshotPart)],
    "job_detach": [c_void_p, c_int64],
    "job_rank": [c_void_p, POINTER(c_uint32)],
    "job_world_size": [c_void_p, POINTER(c_uint32)],
    "tensor_gradient": [c_void_p, c_uint32, _Floats],
    "tensor_second_moment": [c_void_p, _Floats],
    "tensor_unbind_device": [c_void_p, c_int64],
    "tensor_is_staged": [c_void_p, POINTER(c_int32)],
    "tensor_submit": [c_void_p, c_uint64, POINTER(SubmitOptions)],
    "tensor_wait": [c_void_p, c_int64, _Floats],
    "tensor_is_ready": [c_void_p, POINTER(c_int32)],
}
# Likewise, of those that cannot fail: the types of their arguments and of what they give back.
_INFALLIBLE: dict[str, tuple[list[object], object]] = {
    "snapshot_free": ([c_void_p], None),
    "snapshot_step": ([c_void_p], c_uint64),
    "snapshot_part_count": ([c_void_p], c_size_t),
    "bytes_free": ([c_void_p], None),
    "bytes_data": ([c_void_p], c_void_p),
    "bytes_count": ([c_void_p], c_size_t),
}


class Library:
    """The loaded library. Its functions are called through `call`, which turns a status into an exception."""

    def __init__(self, handle: ctypes.CDLL, path: str) -> None:
        self.path = path
        self.version = _version_of(handle, path)
        self._functions = {}
        for name, types in _FALLIBLE.items():
            function = getattr(handle, f"gradsieve_{name}")
            function.argtypes, function.restype = types, c_int32
            self._functions[name] = function
        self.plain = {}
        for name, (types, result) in _INFALLIBLE.items():
            function = getattr(handle, f"gradsieve_{name}")
            function.argtypes, function.restype = types, result
            self.plain[name] = function
        self._last_error = handle.gradsieve_last_error
        self._last_error.argtypes, self._last_error.restype = [], c_char_p
        self.free_job = handle.gradsieve_job_free
        self.free_job.argtypes, self.free_job.restype = [c_void_p], None
        self.digest_of = handle.gradsieve_digest_of
        self.digest_of.argtypes, self.digest_of.restype = [c_void_p, c_size_t], c_uint64

    def status_of(self, name: str, *arguments: object) -> int:
        """The C ABI's status of one call; its words are `last_error`'s, on this thread."""
        return int(self._functions[name](*arguments))

    def last_error(self) -> str:
        """The words to this thread's last call that failed."""
        return str(self._last_error().decode("utf-8", "replace"))

    def call(self, name: str, *arguments: object) -> None:
        """One call; raises what went wrong."""
        if status := self.status_of(name, *arguments):
            raise error_of(status, self.last_error())


def _version_of(handle: ctypes.CDLL, path: str) -> str:
    handle.gradsieve_version.argtypes, handle.gradsieve_version.restype = [], c_char_p
    version = str(handle.gradsieve_version().decode())
    if version.split(".")[:2] != VERSION.split(".")[:2]:
        raise VersionMismatch(f"{path} is version {version}: allowed for the Python package {VERSION} is "
                              f"{'.'.join(VERSION.split('.')[:2])}.x; install packages of one version, or point "
                              f"${LIBRARY_VARIABLE} at a matching library")
    return version


def _open() -> Library:
    path = os.environ.get(LIBRARY_VARIABLE) or SONAME
    try:
        handle = ctypes.CDLL(path)
    except OSError as error:
        raise Unavailable(f"loading {path}: {error}: allowed is the library of Debian's package libgradsieve0, or a "
                          f"file that ${LIBRARY_VARIABLE} names; install the package, or set the variable") from None
    try:
        return Library(handle, path)
    except AttributeError as error:
        raise VersionMismatch(f"{path} has not all functions of gradsieve {VERSION} ({error}): allowed is a library of "
                              f"that version; install it, or point ${LIBRARY_VARIABLE} at one") from None


_lock = threading.Lock()
_library: Library | None = None


def library() -> Library:
    """The library, loaded at the first use. Errors: Unavailable (not found), VersionMismatch."""
    global _library
    with _lock:
        if _library is None:
            _library = _open()
        return _library

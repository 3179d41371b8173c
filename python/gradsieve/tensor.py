"""One gradient that a job averages. Made by `Job.add_tensor`; its memory stays mapped as long as it, or a view of it,
lives. Any thread; in a forked child every call raises FailedPrecondition."""
from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING

from . import _arrays
from ._arrays import Array, ArrayLike
from ._library import SubmitOptions
from .devices import DeviceBuffer, device_buffer_of
from .errors import Busy, FailedPrecondition, InvalidArgument

if TYPE_CHECKING:
    from .job import JobHandle

DEFAULT_TIMEOUT_S = 60.0


class Tensor:
    """A registered gradient: name, shape, and one slab of float32 per sample slice in shared memory, or a place on a
    GPU. Has one open step at a time: `submit`, then `wait`."""

    def __init__(self, handle: JobHandle, pointer: int, name: str, shape: tuple[int, ...], options: dict[str, int]) -> None:
        self._handle = handle
        self._pointer = ctypes.c_void_p(pointer)
        self._options = options
        self._bound: DeviceBuffer | None = None  # kept alive
        self.name = name
        self.shape = shape

    @property
    def on_device(self) -> bool:
        """Whether the gradient lies in GPU memory of the program's, which `bind_device` names."""
        return bool(self._options["on_device"])

    @property
    def gradient(self) -> Array:
        """The slab of slice 0, zero-copy and writable, in the tensor's shape: a numpy array of float32, or a memoryview
        where numpy is not installed. Write it only after the tensor's last step is settled; the daemon reads it until
        then. A view that is held beyond `detach` stays plain memory; asking for one then raises. In a forked child the
        memory is not mapped: do not touch views that were taken before. Errors: FailedPrecondition (not started, left,
        on a device, a forked child)."""
        return self.slice(0)

    def slice(self, sample_index: int) -> Array:
        """`gradient` of one sample slice, 0 <= sample_index < samples_max. Errors: as `gradient`, InvalidArgument."""
        return _arrays.view(self.slab_address(sample_index), self.shape, self._handle, is_writable=True)

    @property
    def second_moment(self) -> Array:
        """Room for the sum of squared per-sample gradients. Errors: as `gradient`, and FailedPrecondition unless
        registered with has_second_moment."""
        return _arrays.view(self.second_moment_address(), self.shape, self._handle, is_writable=True)

    def write(self, values: ArrayLike, sample_index: int = 0) -> None:
        """Copies `values` into a slice: float32, float16 or bfloat16 in host memory, of exactly the tensor's shape, as
        a numpy array or whatever has the buffer protocol or `__dlpack__` (bfloat16 comes only so). Errors: as `slice`,
        InvalidArgument (shape, type, device)."""
        _arrays.copy_in(self.slab_address(sample_index), self.shape, values, f"tensor '{self.name}'")

    def submit(self, step: int, values: ArrayLike | None = None, *, sample_count: int = 1,
               samples: Sequence[int] | None = None, scale: float = 1.0) -> None:
        """Hands in step `step` (the job's first_step, then one more each time). Waits for nobody; a staged tensor's
        stream is waited for. values: written to slice 0 before, as by `write`. sample_count: slices filled. samples:
        training samples behind each slice. scale: loss scale / learning rate, above 0; when it changes, kept state is
        rescaled. Errors: Busy (the last step is not settled: wait for it), InvalidArgument (which step is next),
        PeerFailed, Unavailable (the job has ended)."""
        if values is not None:
            self.require_settled()
            self.write(values)
        counts = None
        if samples is not None:
            if len(samples) != sample_count:
                raise InvalidArgument(f"tensor '{self.name}': samples has {len(samples)} numbers: allowed is one for each "
                                      f"of the {sample_count} slices, or None; correct the list")
            counts = (ctypes.c_uint32 * len(samples))(*samples)
        options = SubmitOptions(ctypes.sizeof(SubmitOptions), counts, scale, sample_count, 0)
        self._handle.call("tensor_submit", self._pointer, step, ctypes.byref(options))

    def require_settled(self) -> None:
        """Whether the slab may be written: the daemon reads it until the last step has an outcome. Errors: Busy."""
        if not self.is_ready():
            raise Busy(f"tensor '{self.name}': its last step has no outcome yet: allowed is submit after wait; wait for it")

    def wait(self, timeout: float = DEFAULT_TIMEOUT_S) -> Array:
        """The average over all ranks of the step handed in last, as a read-only view; it keeps these values until this
        rank submits the tensor again. At most `timeout` seconds; Ctrl-C ends it earlier, and it may be called again.
        A tensor on a device gives an empty view: its average is in the bound memory, final for every stream. The GIL is
        free meanwhile. Errors: Timeout (who is late; nothing is lost, call again), StepFailed, NonFinite, PeerFailed,
        Unavailable (the daemon is gone)."""
        return self.view_of_result(self.wait_for_address(timeout))

    def wait_for_address(self, timeout: float) -> int:
        """`wait`, and where the average lies: floats to be read only; 0 for a tensor on a device or without elements.
        For code that has arrays of its own, such as gradsieve.torch."""
        values = ctypes.POINTER(ctypes.c_float)()
        self._handle.wait(lambda ms: self._handle.status_of("tensor_wait", self._pointer, ms, ctypes.byref(values)), timeout)
        return _address(values) or 0

    def is_ready(self) -> bool:
        """Whether `wait` would not sleep: a result or an error is there, or no step was handed in."""
        found = ctypes.c_int32()
        self._handle.call("tensor_is_ready", self._pointer, ctypes.byref(found))
        return bool(found.value)

    def bind_device(self, memory: DeviceBuffer | object, *, stream: int | None = None,
                    timeout: float = DEFAULT_TIMEOUT_S) -> None:
        """Binds a tensor that was registered with on_device to GPU memory: a DeviceBuffer, or what has `__dlpack__` or
        `__cuda_array_interface__`; before `start` or after it, and again whenever the memory moves. `stream` (an
        integer handle) is the one on which the gradient is made. The memory is kept alive until it is unbound. Errors:
        InvalidArgument, FailedPrecondition (memory that cannot be shared: what to do), Unavailable (no CUDA driver),
        Busy (an open step), Timeout."""
        self._handle.bind_devices([(self, device_buffer_of(memory, stream))], timeout)

    def unbind_device(self, timeout: float = DEFAULT_TIMEOUT_S) -> None:
        """The daemon lets go of the memory. Errors: as `bind_device`."""
        self._handle.wait(lambda ms: self._handle.status_of("tensor_unbind_device", self._pointer, ms), timeout)
        self._bound = None

    def is_staged(self) -> bool:
        """Whether the tensor lies on a device whose memory cannot be shared, and costs two copies a step."""
        found = ctypes.c_int32()
        self._handle.call("tensor_is_staged", self._pointer, ctypes.byref(found))
        return bool(found.value)

    def slab_address(self, sample_index: int = 0) -> int:
        """Where `slice` lies. Errors: the same."""
        self._require_joined()
        values = ctypes.POINTER(ctypes.c_float)()
        if sample_index < 0:
            raise InvalidArgument(f"tensor '{self.name}': sample_index is {sample_index}: allowed is 0 .. "
                                  f"{self._options['samples_max'] - 1}; name a slice")
        self._handle.call("tensor_gradient", self._pointer, sample_index, ctypes.byref(values))
        return _address(values) or 0

    def second_moment_address(self) -> int:
        """Where `second_moment` lies. Errors: the same."""
        self._require_joined()
        values = ctypes.POINTER(ctypes.c_float)()
        self._handle.call("tensor_second_moment", self._pointer, ctypes.byref(values))
        return _address(values) or 0

    def view_of_result(self, address: int) -> Array:
        """An average at `address` as `wait` gives it."""
        shape = (0,) if self.on_device else self.shape
        return _arrays.view(address, shape, self._handle, is_writable=False)

    def _require_joined(self) -> None:
        if self._handle.has_left:
            raise FailedPrecondition(f"tensor '{self.name}': its job was left with detach: allowed before that; copy what "
                                     "is needed first, or make a new job")

    def __repr__(self) -> str:
        return f"<gradsieve.Tensor '{self.name}' {self.shape}>"


def _address(values: object) -> int | None:
    return ctypes.cast(values, ctypes.c_void_p).value  # type: ignore[arg-type]

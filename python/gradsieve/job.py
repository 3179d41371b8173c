"""A job: the ranks, on all machines, that average together. Opens the library's handle, keeps it for as long as
anything that points into its memory lives, and leaves the job in good order. Any thread; a forked child makes a job of
its own."""
from __future__ import annotations

import ctypes
import enum
import os
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any

from . import _arrays, _library
from ._arrays import Array, ArrayLike
from ._waiting import checked_timeout, wait_for
from .devices import DeviceBuffer, device_buffer_of
from .errors import GradsieveError, InvalidArgument, NotFound, Timeout
from .snapshots import Snapshot, take_bytes, take_snapshot
from .status import read_status
from .tensor import DEFAULT_TIMEOUT_S, Tensor

_RUN_ID_VARIABLES = ("GRADSIEVE_RUN_ID", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID")  # as client/options.cpp
_LEAVE_TIMEOUT_S = 2.0  # as the library's own destructors


class NonFinitePolicy(enum.IntEnum):
    """What a step in which a rank hands in a NaN or an infinity gives; equal on all ranks, state untouched in all three.

    FAIL: the step fails on every rank with NonFinite. SKIP_STEP: the tensor comes back as NaN on every rank, so that
    loss scalers back off together. ZERO: that node's contribution to that tensor counts as zero."""

    FAIL = 0
    SKIP_STEP = 1
    ZERO = 2


class JobHandle:
    """The library's job. Freed when the last Job, Tensor and array that point into its memory are gone."""

    def __init__(self, options: _library.JobOptions) -> None:
        self.library = _library.library()
        self._pointer: int | None = None
        pointer = ctypes.c_void_p()
        self.library.call("job_make", ctypes.byref(options), ctypes.byref(pointer))
        self._pointer = pointer.value
        self.has_left = False  # views are refused from then on; those that exist stay plain memory

    @property
    def job(self) -> ctypes.c_void_p:
        """The gradsieve_job."""
        return ctypes.c_void_p(self._pointer)

    def call(self, name: str, *arguments: Any) -> None:
        """One call of the C ABI; raises what went wrong."""
        self.library.call(name, *arguments)

    def status_of(self, name: str, *arguments: Any) -> int:
        """One call of the C ABI; its status."""
        return self.library.status_of(name, *arguments)

    def wait(self, call: Callable[[int], int], timeout: float, *, is_busy_late: bool = False) -> None:
        """`call(timeout_ms)` until it is done or `timeout` seconds are over; see _waiting.py."""
        wait_for(self.library, call, timeout, is_busy_late=is_busy_late)

    def bind_devices(self, bindings: Sequence[tuple[Tensor, DeviceBuffer]], timeout: float) -> None:
        """gradsieve_job_bind_devices; the tensors keep their memory alive from then on."""
        count = len(bindings)
        raw = [buffer.raw() for _, buffer in bindings]
        pointers = (ctypes.POINTER(_library.RawDeviceBuffer) * count)(*(ctypes.pointer(buffer) for buffer in raw))
        tensors = (ctypes.c_void_p * count)(*(tensor._pointer for tensor, _ in bindings))
        self.wait(lambda ms: self.status_of("job_bind_devices", self.job, tensors, pointers, count, ms), timeout)
        for tensor, buffer in bindings:
            tensor._bound = buffer

    def __del__(self) -> None:
        if getattr(self, "_pointer", None):
            self.library.free_job(self._pointer)
            self._pointer = None


def _bytes_or_none(text: str | None, what: str) -> bytes | None:
    if text is None:
        return None
    if not isinstance(text, str):
        raise TypeError(f"{what} is {text!r}: allowed is text; pass a str")
    if "\0" in text:
        raise InvalidArgument(f"{what} is {text!r}: allowed is text without NUL characters; correct it")
    return text.encode("utf-8")


def _whole_ms(timeout: float) -> int:
    """For a call that is made once: in slices it would begin anew each time. Ctrl-C counts when it ends."""
    return round(checked_timeout(timeout) * 1000)


def _run_id_of(run_id: str | None) -> str:
    """As the library resolves it; what is empty counts as not given."""
    return next((text for text in (run_id, *map(os.environ.get, _RUN_ID_VARIABLES)) if text), "default")


class Job:
    """One training process's part in a job.

    name: with the run id, what a job is known by; all ranks give the same two. run_id: None takes $GRADSIEVE_RUN_ID,
    $TORCHELASTIC_RUN_ID, $SLURM_JOB_ID, else "default". rank, world_size: None take the launcher's variables ($RANK and
    $WORLD_SIZE, Slurm's, Open MPI's). codec: None takes $GRADSIEVE_CODEC, else the daemon's default; "all | f32"
    switches compression off. non_finite: one policy for all ranks. check_every: steps between two comparisons of
    `check_parameters`; 0 = never. require: "cuda-ipc" makes `start` fail where GPU memory would be staged.
    socket_path: None takes $GRADSIEVE_SOCKET, else the usual places.

    Talks to nobody until `start`. As a context manager it leaves the job at the end. Errors: InvalidArgument (which
    option, what is allowed), Unavailable and VersionMismatch (the library)."""

    def __init__(self, name: str, rank: int | None = None, world_size: int | None = None, *, run_id: str | None = None,
                 codec: str | None = None, non_finite: NonFinitePolicy = NonFinitePolicy.FAIL, check_every: int = 0,
                 require: str | None = None, socket_path: str | None = None) -> None:
        options = _library.JobOptions(
            ctypes.sizeof(_library.JobOptions), _bytes_or_none(name, "name"), _bytes_or_none(run_id, "run_id"),
            -1 if rank is None else rank, -1 if world_size is None else world_size, _bytes_or_none(codec, "codec"),
            _bytes_or_none(socket_path, "socket_path"), int(non_finite), check_every, _bytes_or_none(require, "require"))
        self._handle = JobHandle(options)
        self._socket_path = socket_path
        self.name = name
        self.run_id = _run_id_of(run_id)
        self.non_finite = NonFinitePolicy(non_finite)

    @property
    def rank(self) -> int:
        """This process's rank, 0 .. world_size - 1."""
        return self._number("job_rank")

    @property
    def world_size(self) -> int:
        """Training processes of the job, on all machines."""
        return self._number("job_world_size")

    def add_tensor(self, name: str, shape: Sequence[int], dtype: object = "float32", *, group: str = "",
                   samples_max: int = 1, has_second_moment: bool = False, on_device: bool = False) -> Tensor:
        """Registers a tensor; before `start`, in any order. shape: may be empty (one element) or contain 0. dtype:
        of the slab, float32 alone; half types are widened as they are handed in, and memory on a device says its own.
        group: tensors that step together. samples_max: micro-batches per step, 1 .. 256. has_second_moment: also hand
        in the sum of squared per-sample gradients. on_device: the gradient lies in GPU memory, see
        `Tensor.bind_device`. Errors: InvalidArgument, AlreadyExists (the name), FailedPrecondition (started)."""
        if str(getattr(dtype, "__name__", dtype)) not in ("float32", "f", "<f4", "float"):
            raise InvalidArgument(f"tensor '{name}': dtype is {dtype!r}: allowed is float32, the type of every slab; "
                                  "register float32 and hand in float16 or bfloat16 values, which are widened exactly")
        extents = tuple(int(extent) for extent in shape)
        if any(extent < 0 for extent in extents):
            raise InvalidArgument(f"tensor '{name}': shape is {extents}: allowed are extents of 0 or more; correct it")
        settings = {"samples_max": samples_max, "has_second_moment": int(has_second_moment), "on_device": int(on_device)}
        options = _library.TensorOptions(ctypes.sizeof(_library.TensorOptions), _bytes_or_none(group, "group"),
                                         samples_max, int(has_second_moment), int(on_device), 0)
        pointer = ctypes.c_void_p()
        self._handle.call("job_add_tensor", self._handle.job, _bytes_or_none(name, "name"),
                          (ctypes.c_uint64 * len(extents))(*extents), len(extents), ctypes.byref(options),
                          ctypes.byref(pointer))
        return Tensor(self._handle, pointer.value or 0, name, extents, settings)

    def start(self, timeout: float = DEFAULT_TIMEOUT_S) -> None:
        """Attaches to the daemon and waits until all ranks are there and agree on tensors and codec. Ctrl-C ends the
        wait; call again to go on. Errors: Unavailable (which socket, what to do), AlreadyExists, Mismatch (the first
        difference between ranks), Timeout (who is missing; call again), VersionMismatch."""
        self._handle.wait(lambda ms: self._handle.status_of("job_start", self._handle.job, ms), timeout, is_busy_late=True)

    def first_step(self, group: str = "") -> int:
        """The step to hand in first: 1 for a fresh job, the next one where the daemons kept state. Errors:
        FailedPrecondition (not started), NotFound (no such group)."""
        return self._number("job_first_step", _bytes_or_none(group, "group"), kind=ctypes.c_uint64)

    def finish(self, step: int, timeout: float = DEFAULT_TIMEOUT_S, *, group: str = "") -> None:
        """Waits until a group's step is committed: it will not fail any more on any rank. Errors: as `Tensor.wait`."""
        name = _bytes_or_none(group, "group")
        self._handle.wait(lambda ms: self._handle.status_of("job_finish", self._handle.job, step, name, ms), timeout)

    def bind_devices(self, bindings: Iterable[tuple[Tensor, DeviceBuffer | object]], timeout: float = DEFAULT_TIMEOUT_S,
                     *, stream: int | None = None) -> None:
        """`Tensor.bind_device` for many tensors of this job in one round trip. Errors: the same."""
        found = [(tensor, device_buffer_of(memory, stream)) for tensor, memory in bindings]
        self._handle.bind_devices(found, timeout)

    def broadcast(self, tensor: Tensor, root: int, timeout: float = DEFAULT_TIMEOUT_S) -> Array:
        """Copies rank `root`'s slice 0, exactly, to every rank: a read-only view, valid until this rank submits the
        tensor; empty for a tensor on a device, whose memory is written. All ranks call it, in the same order; the
        tensor has no open step. After Timeout or Ctrl-C, repeat the same call. Errors: Busy, Timeout, PeerFailed."""
        return tensor.view_of_result(self.broadcast_address(tensor, root, timeout))

    def broadcast_address(self, tensor: Tensor, root: int, timeout: float) -> int:
        """`broadcast`, and where the values lie, as Tensor.wait_for_address."""
        values = ctypes.POINTER(ctypes.c_float)()
        self._handle.wait(lambda ms: self._handle.status_of("job_broadcast", self._handle.job, tensor._pointer, root, ms,
                                                            ctypes.byref(values)), timeout)
        return ctypes.cast(values, ctypes.c_void_p).value or 0

    def check_equal(self, digest: int, timeout: float = DEFAULT_TIMEOUT_S) -> None:
        """Compares a 64-bit number (see `digest_of`) between all ranks; all ranks call it. Errors: Mismatch naming the
        ranks that differ, Timeout (repeat the same call)."""
        self._handle.wait(lambda ms: self._handle.status_of("job_check_equal", self._handle.job, digest, ms), timeout)

    def check_parameters(self, step: int, parameters: Iterable[ArrayLike], timeout: float = DEFAULT_TIMEOUT_S) -> None:
        """Called by every rank after each step with all its parameters (contiguous host arrays of any real type are
        read as bytes): compares them at the job's first call and whenever check_every divides step; else returns at
        once. Errors: Mismatch on every rank, naming step and ranks; Timeout (call again with the same)."""
        owners, addresses, sizes = _arrays.byte_parts(parameters)
        pointers = (ctypes.c_void_p * len(owners))(*addresses)
        counts = (ctypes.c_size_t * len(owners))(*sizes)
        self._handle.wait(lambda ms: self._handle.status_of("job_check_parameters", self._handle.job, step, pointers,
                                                            counts, len(owners), ms), timeout)

    def request_snapshot(self, step: int = 0, timeout: float = DEFAULT_TIMEOUT_S, *, group: str = "") -> Snapshot:
        """Asks every node to keep what it has of a group at a committed step (0: the last one), for a checkpoint, and waits
        until all have it on disk. One rank may ask, or all. It stays, also when all ranks have left, until newer ones are
        complete everywhere or it is released. A node has the last committed step and the one before. Errors: Timeout (call
        again), NotFound, FailedPrecondition (the step is over, on which node), ResourceExhausted (disk, on which node)."""
        pointer = ctypes.c_void_p()
        name = _bytes_or_none(group, "group")
        self._handle.wait(lambda ms: self._handle.status_of("job_request_snapshot", self._handle.job, step, name, ms,
                                                            ctypes.byref(pointer)), timeout)
        return take_snapshot(self._handle.library, pointer, group)

    def resume_from(self, step: int, *, group: str = "", digest: int = 0) -> None:
        """Before `start`: the group goes on from `step`, which every node must have, with the bits of the run that made it;
        else `start` raises NotFound naming the node and what it has. All ranks name the same. digest: of the part of this
        rank's node; 0: any. Step 0 takes it back. Errors: FailedPrecondition (started)."""
        self._handle.call("job_resume_from", self._handle.job, step, _bytes_or_none(group, "group"), digest)

    def export_snapshot(self, step: int, timeout: float = DEFAULT_TIMEOUT_S, *, group: str = "") -> bytes:
        """This node's part of a requested snapshot, to be kept elsewhere. Ctrl-C counts when it is done. Errors: NotFound
        (what is there)."""
        pointer = ctypes.c_void_p()
        self._handle.call("job_export_snapshot", self._handle.job, step, _bytes_or_none(group, "group"), _whole_ms(timeout),
                          ctypes.byref(pointer))
        return take_bytes(self._handle.library, pointer)

    def import_snapshot(self, part: bytes, timeout: float = DEFAULT_TIMEOUT_S) -> None:
        """Hands such bytes to this node, before `start`. They must be of this job's name and run id. Errors:
        InvalidArgument, Corrupt, VersionMismatch, ResourceExhausted."""
        pointer = ctypes.c_void_p()
        self._handle.call("job_import_snapshot", self._handle.job, part, len(part), _whole_ms(timeout), ctypes.byref(pointer))
        take_snapshot(self._handle.library, pointer, "")

    def release_snapshots(self, step: int = 0, timeout: float = DEFAULT_TIMEOUT_S, *, group: str = "") -> None:
        """This node lets go of its requested snapshots of `step`, or of all (0). Errors: NotFound."""
        self._handle.call("job_release_snapshots", self._handle.job, step, _bytes_or_none(group, "group"), _whole_ms(timeout))

    def status(self) -> dict[str, Any]:
        """What the daemon's status document says of this job (docs/status-document.md, one entry of `jobs`): who is
        waited for, wire ratio, tensors. Asks nobody. Errors: NotFound (the daemon does not know it), and read_status's."""
        jobs = read_status(self._socket_path).get("jobs", [])
        others = []
        for entry in jobs:
            if entry["name"] == self.name:
                if entry["run_id"] == self.run_id:
                    return dict(entry)
                others.append(f"'{entry['run_id']}'")
        runs = f" (runs of that name: {', '.join(others)})" if others else ""
        raise NotFound(f"job '{self.name}' (run '{self.run_id}') is not among the {len(jobs)} jobs of the status "
                       f"document{runs}: allowed is a started job; call start first")

    def detach(self, timeout: float = DEFAULT_TIMEOUT_S) -> None:
        """Leaves in good order; the last call on a job. Open steps of other ranks fail after it, so call it on all.
        Views stay mapped until the last one is gone. Errors: Timeout, Unavailable."""
        checked_timeout(timeout)
        try:
            self._handle.wait(lambda ms: self._handle.status_of("job_detach", self._handle.job, ms), timeout)
        except Timeout:
            raise  # may be called again
        except GradsieveError:
            self._handle.has_left = True
            raise
        self._handle.has_left = True

    def __enter__(self) -> Job:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        try:
            self.detach(_LEAVE_TIMEOUT_S)
        except GradsieveError:
            if kind is None:
                raise

    def __repr__(self) -> str:
        return f"<gradsieve.Job '{self.name}'>"

    def _number(self, name: str, *arguments: Any, kind: Any = ctypes.c_uint32) -> int:
        found = kind()
        self._handle.call(name, self._handle.job, *arguments, ctypes.byref(found))
        return int(found.value)


def digest_of(values: ArrayLike) -> int:
    """A 64-bit hash of an array's bytes that is equal on every machine, for `Job.check_equal`."""
    owners, addresses, sizes = _arrays.byte_parts([values])
    return int(_library.library().digest_of(addresses[0] if owners else None, sizes[0] if owners else 0))


def library_version() -> str:
    """The version of the loaded libgradsieve, such as "0.1.0". Errors: Unavailable, VersionMismatch."""
    return _library.library().version

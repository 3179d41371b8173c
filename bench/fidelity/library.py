"""libgradsieve-fidelity.so by ctypes: a job of several nodes in this process. fidelity_library.h says what the calls mean."""
import ctypes
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ERROR_BYTES = 1024


class JobError(RuntimeError):
    """What the library said."""


class _Options(ctypes.Structure):
    _fields_ = [("codec", ctypes.c_char_p), ("job", ctypes.c_char_p), ("nodes", ctypes.c_uint32), ("ranks", ctypes.c_uint32),
                ("samples", ctypes.c_uint32), ("batch_samples", ctypes.c_uint64)]


class _Tensor(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("shape", ctypes.POINTER(ctypes.c_uint64)), ("dimensions", ctypes.c_uint32)]


class _Counters(ctypes.Structure):
    _fields_ = [("wire_bytes", ctypes.c_uint64), ("payload_bytes", ctypes.c_uint64), ("kept_elements", ctypes.c_uint64)]


@dataclass(frozen=True)
class Counters:
    """Sums over nodes and steps."""

    wire_bytes: int
    payload_bytes: int
    kept_elements: int


def load(path: Path) -> ctypes.CDLL:
    found = ctypes.CDLL(str(path))
    found.fidelity_make.restype = ctypes.c_void_p
    found.fidelity_make.argtypes = [ctypes.POINTER(_Options), ctypes.POINTER(_Tensor), ctypes.c_uint32, ctypes.c_char_p, ctypes.c_size_t]
    found.fidelity_step.restype = ctypes.c_int
    found.fidelity_step.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_float, ctypes.c_void_p]
    found.fidelity_error.restype, found.fidelity_error.argtypes = ctypes.c_char_p, [ctypes.c_void_p]
    found.fidelity_read_counters.restype = None
    found.fidelity_read_counters.argtypes = [ctypes.c_void_p, ctypes.POINTER(_Counters)]
    for name in ("fidelity_codec", "fidelity_variance_source"):
        function = getattr(found, name)
        function.restype, function.argtypes = ctypes.c_char_p, [ctypes.c_void_p, ctypes.c_uint32]
    found.fidelity_free.restype, found.fidelity_free.argtypes = None, [ctypes.c_void_p]
    return found


class Job:
    """A formed job. `shapes`: {name: shape}; its order is that of the elements in all arrays."""

    def __init__(self, library: ctypes.CDLL, codec: str, shapes: dict[str, tuple[int, ...]], *, nodes: int, ranks: int, samples: int,
                 batch_samples: int, name: str) -> None:
        self._library, self._nodes, self._ranks, self._samples = library, nodes, ranks, samples
        self._tensors = len(shapes)
        self.elements = sum(int(np.prod(shape)) for shape in shapes.values())
        error = ctypes.create_string_buffer(ERROR_BYTES)
        extents = [(ctypes.c_uint64 * len(shape))(*shape) for shape in shapes.values()]
        tensors = (_Tensor * len(shapes))(*(_Tensor(tensor.encode(), own, len(own)) for tensor, own in zip(shapes, extents)))
        options = _Options(codec.encode(), name.encode(), nodes, ranks, samples, batch_samples)
        self._job = library.fidelity_make(ctypes.byref(options), tensors, len(shapes), error, ERROR_BYTES)
        if not self._job:
            raise JobError(error.value.decode())

    def _address(self, array: np.ndarray, shape: tuple[int, ...]) -> int:
        if array.dtype != np.float32 or array.shape != shape or not array.flags.c_contiguous:
            raise ValueError(f"an array of {array.dtype} with shape {array.shape}; allowed is a contiguous one of float32 with {shape}")
        return array.ctypes.data

    def step(self, samples: np.ndarray, average: np.ndarray, second_moments: "np.ndarray | None" = None, rescale: float = 1.0) -> None:
        """samples (nodes, ranks * samples, elements) become `average` (elements); second_moments (nodes, ranks, elements)."""
        moments = None if second_moments is None else self._address(second_moments, (self._nodes, self._ranks, self.elements))
        if self._library.fidelity_step(self._job, self._address(samples, (self._nodes, self._ranks * self._samples, self.elements)), moments,
                                       rescale, self._address(average, (self.elements,))):
            raise JobError(self._library.fidelity_error(self._job).decode())

    @property
    def counters(self) -> Counters:
        found = _Counters()
        self._library.fidelity_read_counters(self._job, ctypes.byref(found))
        return Counters(found.wire_bytes, found.payload_bytes, found.kept_elements)

    @property
    def codecs(self) -> list[str]:
        """Of each tensor, canonical."""
        return [self._library.fidelity_codec(self._job, tensor).decode() for tensor in range(self._tensors)]

    @property
    def variance_sources(self) -> list[str]:
        """Of each tensor, in the last step."""
        return [self._library.fidelity_variance_source(self._job, tensor).decode() for tensor in range(self._tensors)]

    def close(self) -> None:
        """May be called again."""
        if self._job:
            self._library.fidelity_free(self._job)
            self._job = None

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

"""gradsieve: hand in gradients, get back one average that is bit-identical on every rank.

    with gradsieve.Job("resnet") as job:                    # rank and world size from the launcher
        weights = job.add_tensor("layer1.weight", (128, 784))
        job.start(timeout=60)
        for step in range(job.first_step(), last + 1):
            fill(weights.gradient)                          # shared memory, written in place
            weights.submit(step)
            apply(weights.wait(timeout=60))                 # the same bits on every rank

The machine's daemon, gradsieved, does the work; this package needs libgradsieve (Debian: libgradsieve0) and no
compiler. numpy is used where it is installed. `gradsieve.torch` is for PyTorch. A Job and its Tensors may be used from
several threads; in a forked child every handle is dead and says so. docs/python.md explains all of it.
"""
from __future__ import annotations

from ._arrays import Array, ArrayLike
from ._library import VERSION as __version__
from .devices import DeviceBuffer, ElementType
from .errors import (AlreadyExists, Busy, Cancelled, Corrupt, FailedPrecondition, GradsieveError, InternalError,
                     InvalidArgument, Mismatch, NonFinite, NotFound, PeerFailed, PermissionDenied, ResourceExhausted,
                     StepFailed, Timeout, Unavailable, Unimplemented, VersionMismatch)
from .job import Job, NonFinitePolicy, digest_of, library_version
from .snapshots import Snapshot, SnapshotPart
from .status import read_status
from .tensor import Tensor

__all__ = [
    "AlreadyExists", "Array", "ArrayLike", "Busy", "Cancelled", "Corrupt", "DeviceBuffer", "ElementType",
    "FailedPrecondition", "GradsieveError", "InternalError", "InvalidArgument", "Job", "Mismatch", "NonFinite",
    "NonFinitePolicy", "NotFound", "PeerFailed", "PermissionDenied", "ResourceExhausted", "Snapshot", "SnapshotPart", "StepFailed",
    "Tensor", "Timeout", "Unavailable", "Unimplemented", "VersionMismatch", "__version__", "digest_of", "library_version",
    "read_status",
]

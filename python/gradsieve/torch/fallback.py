"""The plain path: torch's own all-reduce, for when the daemon is missing and `fallback="allreduce"` was asked for. All
ranks take it at the same bucket, because they agree on it through a process group of its own, on the waiter thread
alone. Counted, and warned of once."""
from __future__ import annotations

import warnings

import torch
import torch.distributed as dist

from ..errors import Busy, GradsieveError, InvalidArgument, PeerFailed, Timeout, Unavailable, Unimplemented
from ..job import Job

_LEAVE_TIMEOUT_S = 2.0
_REASON_TIMEOUT_S = 2.0  # for a daemon to say on this rank what it said on another
MISSING = (Unavailable, PeerFailed)  # what says that the job cannot go on; a failed step does not


def check_fallback(fallback: str | None) -> bool:
    """Errors: InvalidArgument."""
    if fallback not in (None, "allreduce"):
        raise InvalidArgument(f"fallback is {fallback!r}: allowed is None (an error) or 'allreduce'; choose one")
    return fallback is not None


class Fallback:
    """Made on all ranks at once. Used by one thread at a time. Errors: Unimplemented (a model of a part of the ranks)."""

    def __init__(self, process_group: dist.ProcessGroup) -> None:
        self._world_size = dist.get_world_size(process_group)
        # A group of its own: on the model's, the collectives of two threads would meet in another order on each rank.
        # All ranks have to make it, with one list, which several models of a part of the ranks each could not.
        if self._world_size != dist.get_world_size():
            raise Unimplemented(f"fallback is 'allreduce' for a model over {self._world_size} of {dist.get_world_size()} ranks: "
                                "allowed is a model over all ranks; use fallback=None, or no process_group of its own")
        self._group = dist.new_group(backend=dist.get_backend(process_group))
        self.is_taken = False
        self.steps = 0  # averaged on the plain path

    def start(self, job: Job, timeout: float, device: torch.device) -> None:
        """Starts the job, or takes the plain path on all ranks if a daemon is missing on one. A daemon that is there is
        seen at once, so that nobody waits for ranks that will not come. Errors: Job.start's, on all ranks if on one;
        PeerFailed on those that had none, up to two seconds later."""
        for is_last in (False, True):
            error = self._start_error(job, timeout if is_last else 0.0, is_last)
            missing = error if isinstance(error, MISSING) else None
            if not self._all(error is missing, device):
                error = error or self._start_error(job, min(timeout, _REASON_TIMEOUT_S), False)
                raise error or PeerFailed("another rank could not start the job: allowed is a start on all ranks; see that "
                                          "rank's error")
            if self.agree(missing, device):
                self._leave(job)
                return

    @staticmethod
    def _start_error(job: Job, timeout: float, is_last: bool) -> GradsieveError | None:
        try:
            job.start(timeout)
        except GradsieveError as error:
            return error if is_last or not isinstance(error, (Timeout, Busy)) else None
        return None

    @staticmethod
    def _leave(job: Job) -> None:
        try:
            job.detach(_LEAVE_TIMEOUT_S)
        except GradsieveError as error:
            warnings.warn(f"gradsieve: leaving the job that is not needed: {error}", RuntimeWarning, stacklevel=3)

    def agree(self, missing: GradsieveError | None, device: torch.device) -> bool:
        """Whether the plain path is taken from here on: it is if any rank misses its daemon."""
        if not self.is_taken:
            if not self._all(missing is None, device):
                self.is_taken = True
                warnings.warn("gradsieve: gradients are averaged by torch's own all-reduce from now on, uncompressed: "
                              f"{missing or 'another rank misses its daemon'}", RuntimeWarning, stacklevel=2)
        return self.is_taken

    def _all(self, is_so: bool, device: torch.device) -> bool:
        """Whether it is so on all ranks, which all call this."""
        flag = torch.tensor([float(is_so)], device=device)
        dist.all_reduce(flag, dist.ReduceOp.MIN, group=self._group)
        return flag.item() == 1.0

    def average(self, buffer: torch.Tensor) -> None:
        """The mean over all ranks, in place."""
        buffer.div_(self._world_size)
        dist.all_reduce(buffer, group=self._group)

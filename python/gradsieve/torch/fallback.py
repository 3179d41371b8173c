"""The plain path: torch's own all-reduce, for when the daemon is missing and `fallback="allreduce"` was asked for. All
ranks take it at the same bucket, because they agree on it through a process group of its own, on the waiter thread
alone. Counted, and warned of once."""
from __future__ import annotations

import warnings

import torch
import torch.distributed as dist

from ..errors import Busy, GradsieveError, InvalidArgument, PeerFailed, Timeout, Unavailable
from ..job import Job

_LEAVE_TIMEOUT_S = 2.0
MISSING = (Unavailable, PeerFailed)  # what says that the job cannot go on; a failed step does not


def check_fallback(fallback: str | None) -> bool:
    """Errors: InvalidArgument."""
    if fallback not in (None, "allreduce"):
        raise InvalidArgument(f"fallback is {fallback!r}: allowed is None (an error) or 'allreduce'; choose one")
    return fallback is not None


class Fallback:
    """Made on all ranks at once. Used by one thread at a time."""

    def __init__(self, process_group: dist.ProcessGroup) -> None:
        ranks = [dist.get_global_rank(process_group, rank) for rank in range(dist.get_world_size(process_group))] \
            if process_group is not dist.group.WORLD else None
        self._group = dist.new_group(ranks)
        self._world_size = dist.get_world_size(process_group)
        self.is_taken = False
        self.steps = 0  # averaged on the plain path

    def start(self, job: Job, timeout: float, device: torch.device) -> None:
        """Starts the job, or takes the plain path on all ranks if a daemon is missing on one. A daemon that is there is
        seen at once, so that nobody waits for ranks that will not come."""
        for attempt_s in (0.0, timeout):
            missing: GradsieveError | None = None
            try:
                job.start(attempt_s)
            except MISSING as error:
                missing = error
            except (Timeout, Busy):
                if attempt_s > 0:
                    raise
            if self.agree(missing, device):
                self._leave(job)
                return

    @staticmethod
    def _leave(job: Job) -> None:
        try:
            job.detach(_LEAVE_TIMEOUT_S)
        except GradsieveError as error:
            warnings.warn(f"gradsieve: leaving the job that is not needed: {error}", RuntimeWarning, stacklevel=3)

    def agree(self, missing: GradsieveError | None, device: torch.device) -> bool:
        """Whether the plain path is taken from here on: it is if any rank misses its daemon."""
        if not self.is_taken:
            flag = torch.tensor([0.0 if missing else 1.0], device=device)
            dist.all_reduce(flag, dist.ReduceOp.MIN, group=self._group)
            if flag.item() < 1.0:
                self.is_taken = True
                warnings.warn("gradsieve: gradients are averaged by torch's own all-reduce from now on, uncompressed: "
                              f"{missing or 'another rank misses its daemon'}", RuntimeWarning, stacklevel=2)
        return self.is_taken

    def average(self, buffer: torch.Tensor) -> None:
        """The mean over all ranks, in place."""
        buffer.div_(self._world_size)
        dist.all_reduce(buffer, group=self._group)

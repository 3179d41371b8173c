"""Probed steps: the same gradients averaged a second time, exactly, by torch's own all-reduce, and what the daemon's average
lacks of it, tensor by tensor. Works on the waiter thread through a process group of its own."""
from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.distributed as dist

from ..errors import InvalidArgument, Unimplemented


@dataclass(frozen=True)
class Probe:
    """How one tensor's average differed from the exact mean in a probed step.

    cosine: of the angle between both, -1 .. 1. relative_error: norm of the difference over the norm of the exact mean.
    None where they are not defined (a mean of zeros, a step that is not finite). With error feedback the average holds
    what earlier steps kept back, too, so that an error above 1 is no fault by itself."""

    step: int
    cosine: float | None
    relative_error: float | None


def compare(step: int, average: torch.Tensor, exact: torch.Tensor) -> Probe:
    """In float64."""
    one, other = average.double().flatten(), exact.double().flatten()
    norms = float(one.norm()), float(other.norm())
    cosine, error = float(one @ other) / (norms[0] * norms[1]) if all(norms) else math.nan, math.nan
    if norms[1]:
        error = float((one - other).norm()) / norms[1]
    return Probe(step, cosine if math.isfinite(cosine) else None, error if math.isfinite(error) else None)


def check_probe_every(probe_every: int) -> int:
    """Errors: InvalidArgument."""
    if not isinstance(probe_every, int) or probe_every < 0:
        raise InvalidArgument(f"probe_every is {probe_every!r}: allowed is 0 (never) or a number of steps; correct it")
    return probe_every


class Prober:
    """Made on all ranks at once. `copy` is called on autograd's thread, `finish` on the waiter thread, by all ranks for the
    same buckets in the same order. Errors: Unimplemented (a model of a part of the ranks)."""

    def __init__(self, process_group: dist.ProcessGroup, every: int) -> None:
        self._every, self._world_size = every, dist.get_world_size(process_group)
        if self._world_size != dist.get_world_size():  # all ranks have to make the group
            raise Unimplemented(f"probe_every is {every} for a model over {self._world_size} of {dist.get_world_size()} ranks: "
                                "allowed is a model over all ranks; use probe_every=0, or no process_group of its own")
        self._group = dist.new_group(backend=dist.get_backend(process_group))
        self.found: dict[str, Probe] = {}  # the newest of each tensor

    def copy(self, step: int, buffer: torch.Tensor, weight: float) -> torch.Tensor | None:
        """A bucket's gradients as they are handed in, where the step is probed."""
        return buffer.to(torch.float32, copy=True).mul_(weight) if step % self._every == 0 else None

    def mean(self, exact: torch.Tensor) -> torch.Tensor:
        """Of a bucket's copies over all ranks, in place."""
        dist.all_reduce(exact, group=self._group)
        return exact.div_(self._world_size)

    def finish(self, step: int, name: str, gradient: torch.Tensor, buffer: torch.Tensor, exact: torch.Tensor) -> None:
        """Notes what became of `gradient`, a view of `buffer` that holds the daemon's average; `exact` is as `buffer`."""
        own = exact.as_strided(gradient.size(), gradient.stride(), gradient.storage_offset() - buffer.storage_offset())
        self.found[name] = compare(step, gradient, own)

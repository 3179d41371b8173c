"""How a model's gradients are handed in: with which weight and scale, as the slices of micro-batches, with second moments.
Shared by State and Averager. One thread hands in; hooks run on autograd's thread."""
from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator

import torch

from ..errors import InvalidArgument
from ..job import Job
from .member import Member
from .members import Members, Scale
from .micro_batches import MicroBatches, check_micro_batches
from .second_moments import SecondMoments


def check_weight(weight: float) -> float:
    """Errors: InvalidArgument."""
    if not isinstance(weight, (int, float)) or not math.isfinite(weight) or weight < 0:
        raise InvalidArgument(f"weight is {weight!r}: allowed is a finite number of 0 or more; give this rank's samples x ranks / "
                              "all ranks' samples")
    return float(weight)


class Intake:
    """A model's members and what goes in with their gradients.

    micro_batches: see MicroBatches. second_moments: of the same model. is_wanted: whether gradients go to the daemon at
    all. Errors: InvalidArgument, ResourceExhausted (no room on the GPU), Job.add_tensor's."""

    def __init__(self, model: torch.nn.Module, job: Job, parameters: list[tuple[str, torch.nn.Parameter]], prefix: str, scale: Scale, *,
                 micro_batches: int = 1, second_moments: SecondMoments | None = None,
                 is_wanted: Callable[[], bool] = lambda: True) -> None:
        check_micro_batches(micro_batches)
        self._scale, self._moments = scale, second_moments
        covered = [parameter for _, parameter in parameters if second_moments is not None and parameter in second_moments]
        if second_moments is not None and not covered:
            raise InvalidArgument("second_moments covers 0 of the model's parameters: allowed is SecondMoments(model) of the same "
                                  "model; make it of this one, or leave it out")
        self.members = Members(job, parameters, prefix, slices=micro_batches, moments=second_moments or ())
        self._micro_batches = MicroBatches(model, self._without_moment(), micro_batches, is_wanted) if micro_batches > 1 else None

    def _without_moment(self) -> Iterable[Member]:
        return [member for member in self.members if self._moments is None or member.parameter not in self._moments]

    def hand_in(self, member: Member, step: int, gradient: torch.Tensor, weight: float) -> None:
        """`weight` times the gradient, or the slices that were filled. Errors: Member.hand_in's."""
        slices = self._micro_batches.settle(member, weight) if self._micro_batches else 0
        samples = 0
        if self._moments is not None and member.parameter in self._moments:
            squares, samples = self._moments.take(member.parameter)
            if squares is not None:
                member.write_second_moment(squares, samples, weight)
        member.hand_in(step, gradient, self._scale.of(member.parameter, step), weight, slices=slices, samples=samples)

    @contextlib.contextmanager
    def closed_on_error(self) -> Iterator[None]:
        """Around a start: a model whose job did not start is left as it was."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    def end_step(self) -> None:
        """After all members were handed in."""
        if self._micro_batches:
            self._micro_batches.end_step()

    def close(self) -> None:
        """Takes its hooks away; those of second_moments are its maker's. May be called again."""
        if self._micro_batches:
            self._micro_batches.close()

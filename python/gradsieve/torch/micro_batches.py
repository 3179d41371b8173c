"""Gradient accumulation whose micro-batches are variance samples. DDP's bucket holds only their sum, so a hook on each
parameter copies every micro-batch's gradient into a slice of its own, on a GPU without leaving it. Hooks run on autograd's
thread; slices are handed in on the thread of the communication hook, or Averager's."""
from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

import torch

from ..errors import GradsieveError, InvalidArgument
from .member import Member

MOST = 256  # slices of a tensor, as the C ABI allows


def check_micro_batches(most: int) -> int:
    """Errors: InvalidArgument (its range)."""
    if not isinstance(most, int) or not 1 <= most <= MOST:
        raise InvalidArgument(f"micro_batches is {most!r}: allowed is 1 .. {MOST}; give the most backward passes of one step")
    return most


class MicroBatches:
    """The slices of one step at a time.

    members: those with room for `most` slices each. A backward pass belongs to a new micro-batch if the model was called
    since the last gradient came, or once a parameter gets its second one. is_wanted: whether gradients go to the daemon at all. Errors of a backward pass:
    InvalidArgument (more than `most` passes in a step). A slab that cannot be written (its last step has no outcome, the
    daemon is gone) is no error of the pass: the step's sum is handed in instead, which says what is wrong, and may fall back."""

    def __init__(self, model: torch.nn.Module, members: Iterable[Member], most: int,
                 is_wanted: Callable[[], bool] = lambda: True) -> None:
        self._most, self._is_wanted = most, is_wanted
        self._at = 0  # the micro-batch at hand
        self._was_called = False  # since the last gradient came
        self._seen: set[str] = set()  # members that have their gradient of it
        self._filled: dict[str, set[int]] = {}  # slices by member
        self._lost: set[str] = set()  # members of which a slice could not be written in this step
        self._hooks = [member.parameter.register_hook(functools.partial(self._capture, member)) for member in members]
        self._hooks.append(model.register_forward_pre_hook(self._on_call))

    def _on_call(self, *_: object) -> None:
        self._was_called |= torch.is_grad_enabled()

    def _capture(self, member: Member, gradient: torch.Tensor) -> None:
        if not self._is_wanted():
            return
        if member.name in self._seen or (self._was_called and self._seen):
            self._at += 1
            self._seen.clear()
        self._was_called = False
        if self._at >= self._most:
            self.end_step()
            raise InvalidArgument(f"tensor '{member.name}': {self._most + 1} backward passes in a step: allowed are {self._most}; "
                                  "register the model with a larger micro_batches, or step more often")
        self._seen.add(member.name)
        filled = self._filled.setdefault(member.name, set())
        try:
            if not filled:
                member.tensor.require_settled()
            member.write(self._at, gradient.detach())
            filled.add(self._at)
        except GradsieveError:
            self._lost.add(member.name)

    def settle(self, member: Member, weight: float) -> int:
        """Makes a member's slices ready to be handed in, so that their mean is `weight` times the sum of all micro-batches,
        and says how many they are. 0 if no pass reached the parameter, or a slice is missing: `grad` holds the sum."""
        filled = self._filled.pop(member.name, set())
        if member.name in self._lost:
            return 0
        count = self._at + 1 if filled else 0
        if count:
            member.complete(filled, count, count * weight)
        return count

    def end_step(self) -> None:
        """After all members are handed in: what comes next belongs to the next step."""
        self._at = 0
        self._seen.clear()
        self._filled.clear()
        self._lost.clear()

    def close(self) -> None:
        """Takes the hooks away. May be called again."""
        for hook in self._hooks:
            hook.remove()

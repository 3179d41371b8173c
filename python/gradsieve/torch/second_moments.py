"""Sums of squared per-sample gradients, computed beside the backward pass, for codecs that decide by variance. Hooks run
on autograd's thread. Calls nothing of torch that is not public."""
from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from .squares import KINDS, SquaresFunction, reason_against
from .streams import StreamOrder


@dataclass
class _Entry:
    """One parameter of a layer that is covered."""

    name: str
    squares_of: SquaresFunction
    parameter: torch.nn.Parameter
    squares: torch.Tensor | None = None  # sum over samples of (its part of the gradient)^2
    samples: int = 0
    calls: int = 0  # of the layer in the backward pass at hand
    order: StreamOrder = field(default_factory=StreamOrder)  # of squares


class SecondMoments:
    """The sum of squared per-sample gradients of a model's Linear, Conv2d and Embedding layers.

    model: any module, or a DistributedDataParallel; the first dimension of a layer's input is the sample. Give it to
    gradsieve.torch.register, State or Averager (`second_moments=`): a variance codec then knows each sample's part
    (its provider P1), where it otherwise compares micro-batches and ranks (P2). The loss may be a mean over the batch or
    a sum: what is handed in is scaled by the number of samples, which it counts itself.

    Costs one more matrix product of the weight gradient's size for a Linear layer on vectors; for the others per-sample
    gradients of one layer at a time, in pieces of a few MB. Source: the variance paper's efficient computation.

    `missing` names the parameters that fall back to P2, and why; the status document says so too (`variance_source`).
    Besides other kinds of layers: a parameter of two layers; and, noticed in a backward pass and warned of once, a layer
    that was called several times in a pass, or whose parameter is used without calling it."""

    def __init__(self, model: torch.nn.Module) -> None:
        inner = model.module if isinstance(model, DistributedDataParallel) else model
        self.missing: dict[str, str] = {}
        self._entries: dict[torch.Tensor, _Entry] = {}
        self._hooks: list[Any] = []
        owners: dict[torch.Tensor, list[str]] = {}
        for layer, module in inner.named_modules():
            for parameter in module.parameters(recurse=False):
                owners.setdefault(parameter, []).append(layer)
        names = {parameter: name for name, parameter in inner.named_parameters()}
        for module in inner.modules():
            against = reason_against(module)
            for own_name, parameter in module.named_parameters(recurse=False):
                layers = owners[parameter]
                reason = f"shared by the layers {', '.join(map(repr, layers))}" if len(layers) > 1 else against
                if parameter.requires_grad and reason:
                    self.missing[names[parameter]] = reason
                elif parameter.requires_grad:
                    self._add(_Entry(names[parameter], KINDS[type(module)], parameter), module, own_name)

    def _add(self, entry: _Entry, module: torch.nn.Module, own_name: str) -> None:
        self._entries[entry.parameter] = entry
        self._hooks += [module.register_forward_hook(functools.partial(self._on_forward, entry, own_name)),
                        entry.parameter.register_hook(functools.partial(self._on_last_call, entry))]

    def __contains__(self, parameter: object) -> bool:
        """Whether the parameter is covered."""
        return parameter in self._entries

    @torch.no_grad()
    def _add_squares(self, entry: _Entry, module: torch.nn.Module, own_name: str, values: torch.Tensor,
                     gradient: torch.Tensor) -> None:
        entry.calls += 1
        if entry.name in self.missing:
            return
        entry.order.enter(gradient)
        squares, samples = entry.squares_of(module, own_name, values, gradient)
        entry.squares = squares if entry.squares is None else entry.squares.add_(squares)
        entry.samples += samples

    def _on_forward(self, entry: _Entry, own_name: str, module: torch.nn.Module, inputs: tuple[torch.Tensor, ...],
                    output: torch.Tensor) -> None:
        if output.requires_grad and entry.name not in self.missing:
            output.register_hook(functools.partial(self._add_squares, entry, module, own_name, inputs[0].detach()))

    def _on_last_call(self, entry: _Entry, _: torch.Tensor) -> None:
        """The parameter's gradient of a backward pass is whole: all calls of its layer have been seen."""
        calls, entry.calls = entry.calls, 0
        if calls != 1 and entry.name not in self.missing:
            self.missing[entry.name] = (f"its layer was called {calls} times in a backward pass; allowed is once" if calls else
                                        "it is used without a call of its layer")
            entry.squares, entry.samples = None, 0
            warnings.warn(f"gradsieve: no second moments of '{entry.name}' from now on: {self.missing[entry.name]}",
                          RuntimeWarning, stacklevel=2)

    def take(self, parameter: torch.Tensor) -> tuple[torch.Tensor | None, int]:
        """What was summed up since the last call, and over how many samples: the squares of what each sample adds to the
        parameter's gradient, float32, of its shape, on its device, for the calling thread's current stream. (None, 0) if
        there is nothing."""
        entry = self._entries[parameter]
        found = (entry.squares, entry.samples)
        if entry.squares is not None:
            entry.order.hand_over(entry.squares)
        entry.squares, entry.samples = None, 0
        return found

    def close(self) -> None:
        """Takes the hooks away. May be called again."""
        for hook in self._hooks:
            hook.remove()

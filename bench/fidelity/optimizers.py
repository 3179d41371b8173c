"""Momentum SGD and Adam on one flat array, and the rate's course. On the array's device; owns its own state."""
import math

import torch

WARM_UP_SHARE, LAST_SHARE = 0.05, 0.01


def rate_at(step: int, steps: int, peak: float) -> float:
    """Of steps from 1: up along a straight line, then down along a cosine to a hundredth."""
    warm_up = max(1, round(steps * WARM_UP_SHARE))
    if step <= warm_up:
        return peak * step / warm_up
    share = (step - warm_up) / max(1, steps - warm_up)
    return peak * (LAST_SHARE + (1 - LAST_SHARE) * (1 + math.cos(math.pi * share)) / 2)


class Sgd:
    """u = momentum u + g; parameters -= rate u."""

    def __init__(self, parameters: torch.Tensor, momentum: float) -> None:
        self._parameters, self._momentum = parameters, momentum
        self._sums = torch.zeros_like(parameters)

    def step(self, gradient: torch.Tensor, rate: float) -> None:
        self._sums.mul_(self._momentum).add_(gradient)
        self._parameters.sub_(self._sums, alpha=rate)


class Adam:
    """Kingma and Ba 2015, algorithm 1, with its constants."""

    def __init__(self, parameters: torch.Tensor) -> None:
        self._parameters, self._step = parameters, 0
        self._mean, self._square = torch.zeros_like(parameters), torch.zeros_like(parameters)

    def step(self, gradient: torch.Tensor, rate: float) -> None:
        self._step += 1
        self._mean.mul_(0.9).add_(gradient, alpha=0.1)
        self._square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        root = (self._square / (1 - 0.999**self._step)).sqrt_().add_(1e-8)
        self._parameters.addcdiv_(self._mean, root, value=-rate / (1 - 0.9**self._step))

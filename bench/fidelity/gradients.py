"""Gradients of groups of samples, of all groups at once: on a GPU captured once and replayed. Owns its arrays; one thread."""
import sys

import torch

EAGER_STEPS = 3  # before a capture, which must meet nothing for the first time


class Gradients:
    """`groups` gradients of a task's loss, each of `each` samples and in one flat array."""

    def __init__(self, task, groups: int, each: int, device: str) -> None:
        self._task = task
        self.elements = sum(torch.Size(shape).numel() for shape in task.shapes.values())
        self.parameters = torch.zeros(self.elements, device=device)
        self._indices = torch.zeros(groups, each, dtype=torch.long, device=device)
        self._is_capturable = device.startswith("cuda")
        self._graph, self._calls = None, 0
        self._found, self._losses = None, None

    def named(self, flat: torch.Tensor) -> dict[str, torch.Tensor]:
        """Views of one flat array (..., elements) by name."""
        views, begin = {}, 0
        for name, shape in self._task.shapes.items():
            size = torch.Size(shape).numel()
            views[name] = flat[..., begin:begin + size].unflatten(-1, shape)
            begin += size
        return views

    def _compute(self) -> None:
        groups = len(self._indices)
        own = {name: values.expand(groups, *values.shape).detach().requires_grad_() for name, values in self.named(self.parameters).items()}
        losses = self._task.losses(own, self._task.batch(self._indices))
        parts = torch.autograd.grad(losses.sum(), list(own.values()))
        self._found = torch.cat([part.reshape(groups, -1) for part in parts], dim=1)
        self._losses = losses.detach()

    def __call__(self, indices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(groups, elements) and the groups' losses; valid until the next call."""
        self._indices.copy_(indices, non_blocking=True)
        self._calls += 1
        if self._graph is not None:
            self._graph.replay()
        elif not self._is_capturable or self._calls <= EAGER_STEPS:
            self._compute()
        else:
            self._capture()
        return self._found, self._losses

    def _capture(self) -> None:
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                self._compute()
        except RuntimeError as error:
            print(f"fidelity: not captured, so slower: {error}", file=sys.stderr, flush=True)
            self._is_capturable = False
            self._compute()
            return
        self._graph = graph
        graph.replay()

"""The order of work that several CUDA streams do on one piece of memory. Waits for nothing on the host, and copies nothing.
Annotated tensors may lie on the host, where there is nothing to order."""
from __future__ import annotations

import torch


class StreamOrder:
    """What was enqueued last on a piece of GPU memory, so that what is enqueued next, on whatever stream, comes behind it.
    One thread at a time."""

    def __init__(self) -> None:
        self._last: torch.cuda.Stream | None = None

    def enter(self, memory: torch.Tensor) -> None:
        """Before work on `memory` is enqueued on the calling thread's current stream of its device."""
        if not memory.is_cuda:
            return
        last, current = self._last, torch.cuda.current_stream(memory.device)
        if last is not None and last != current:
            current.wait_stream(last)
        self._last = current

    def note(self, memory: torch.Tensor) -> None:
        """The same where nothing is pending on `memory`, as after a wait of the host's."""
        if memory.is_cuda:
            self._last = torch.cuda.current_stream(memory.device)

    def hand_over(self, memory: torch.Tensor) -> None:
        """`enter`, and from then on the current stream alone uses `memory`, which was made on another one and may be freed."""
        if memory.is_cuda:
            self.enter(memory)
            memory.record_stream(torch.cuda.current_stream(memory.device))

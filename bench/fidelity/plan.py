"""Every run there is, most important first. Plain values."""
from __future__ import annotations

from dataclasses import dataclass

NODES = 4


@dataclass(frozen=True)
class Run:
    """One training. Equal runs are one."""

    task: str
    codec: str
    size: str = "full"
    optimizer: str = "sgd"
    seed: int = 1
    rate: float = 1.0  # of the task's
    ranks: int = 2  # of a node
    micro_batches: int = 2  # of a rank
    source: str = "groups"  # "second moments": sums of squared gradients of single samples are handed in
    rescale: bool = False  # what waits is kept in units of the rate
    local_momentum: bool = False  # ranks hand in 0.9 of their node's sum of gradients with each gradient; the optimizer has none
    steps: int = 0  # 0: the task's

    @property
    def has_variance(self) -> bool:
        return "variance" in self.codec or "gate=" in self.codec

    @property
    def sees_samples(self) -> bool:
        """Whether the codec tells samples apart; others get their mean, which is the same to rounding."""
        return self.has_variance

    @property
    def has_own_momentum(self) -> bool:
        """Then the optimizer has none."""
        return self.local_momentum or "momentum(" in self.codec

    @property
    def key(self) -> str:
        return "/".join(map(str, (self.task, self.size, self.optimizer, f"{self.ranks}x{self.micro_batches}", self.source,
                                  f"rate {self.rate:g}", f"rescale {int(self.rescale)}", f"local {int(self.local_momentum)}",
                                  f"steps {self.steps}", f"seed {self.seed}", self.codec)))

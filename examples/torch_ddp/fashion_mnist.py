"""Fashion-MNIST as Debian's package dataset-fashion-mnist ships it, or random pictures of the same shape. Host memory;
the caller's thread."""
from __future__ import annotations

import gzip
from pathlib import Path

import torch

FOLDER = Path("/usr/share/datasets/fashion-mnist")
CLASSES, SIDE = 10, 28


def _read(path: Path, header_bytes: int) -> torch.Tensor:
    return torch.frombuffer(bytearray(gzip.decompress(path.read_bytes())[header_bytes:]), dtype=torch.uint8)


def load(part: str) -> tuple[torch.Tensor, torch.Tensor]:
    """`part` is "train" or "t10k": pictures as floats of mean 0 (n, 1, 28, 28), and labels (n)."""
    pictures = _read(FOLDER / f"{part}-images-idx3-ubyte.gz", 16).reshape(-1, 1, SIDE, SIDE).float()
    return (pictures / 255 - 0.286) / 0.353, _read(FOLDER / f"{part}-labels-idx1-ubyte.gz", 8).long()


def synthetic(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Pictures of a class are noise around a pattern of that class, so that there is something to learn."""
    patterns = torch.randn(CLASSES, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    return patterns[labels] * 0.5 + torch.randn(count, 1, SIDE, SIDE, generator=generator), labels

"""Task `images`: Fashion-MNIST by a convolutional network after VGG (3 x 3 filters, halved between them, two dense layers behind).
Owns its arrays; one process."""
import gzip
import math
from pathlib import Path

import numpy as np
import torch

from .grouped import convolution, halved, linear, losses

FOLDER = "fashion-mnist"
MEAN, DEVIATION = 0.286, 0.353  # of the training images' pixels
TEST_BATCH = 1000


def read(path, header):
    with gzip.open(path) as file:
        return np.frombuffer(file.read(), dtype=np.uint8, offset=header)


class Images:
    """`size` "full": 28 x 28 pixels and 836 k parameters; "quick": 14 x 14, 12,000 images and 20 k."""

    name, metric, unit, is_more_better = "images", "test accuracy", "%", True
    lost = 12  # no better than guessing one of ten

    def __init__(self, data: Path, size: str, device: str) -> None:
        self._device, self._is_quick = device, size == "quick"
        self.side = 14 if self._is_quick else 28
        self.train, self._test = (self._load(data / FOLDER, kind) for kind in ("train", "t10k"))
        self.samples = len(self.train[1])
        widths = (1, 16, 32, 32) if self._is_quick else (1, 32, 64, 128, 128)
        self._halvings = (1, 2, 3) if self._is_quick else (1, 2, 4)
        side = self.side
        for _ in self._halvings:
            side //= 2
        dense = 128 if self._is_quick else 512
        self.shapes: dict[str, tuple[int, ...]] = {}
        for layer, (inputs, outputs) in enumerate(zip(widths, widths[1:]), 1):
            self.shapes[f"conv{layer}.weight"] = (outputs, 9 * inputs)
            self.shapes[f"conv{layer}.bias"] = (outputs,)
        self._convolutions = len(widths) - 1
        for layer, (inputs, outputs) in enumerate(((side * side * widths[-1], dense), (dense, 10)), 1):
            self.shapes[f"dense{layer}.weight"] = (outputs, inputs)
            self.shapes[f"dense{layer}.bias"] = (outputs,)

    def _load(self, folder, kind):
        images = read(folder / f"{kind}-images-idx3-ubyte.gz", 16).reshape(-1, 28, 28).astype(np.float32) / 255
        labels = read(folder / f"{kind}-labels-idx1-ubyte.gz", 8).astype(np.int64)
        if self._is_quick:
            images = images.reshape(-1, 14, 2, 14, 2).mean((2, 4))
            kept = 12_000 if kind == "train" else 4_000
            images, labels = images[:kept], labels[:kept]
        return (torch.tensor((images - MEAN) / DEVIATION, device=self._device)[..., None], torch.tensor(labels, device=self._device))

    def initial(self, random):
        """{name: float32 array}, by an rng of numpy's."""
        return {name: np.zeros(shape, np.float32) if name.endswith("bias") else
                random.normal(0, math.sqrt(2 / shape[1]), shape).astype(np.float32) for name, shape in self.shapes.items()}

    def batch(self, indices):
        """What `scores` and `losses` take, of samples (groups, each)."""
        return self.train[0][indices], self.train[1][indices]

    def _scores(self, parameters, images):
        values = images
        for layer in range(1, self._convolutions + 1):
            values = torch.relu(convolution(values, parameters[f"conv{layer}.weight"], parameters[f"conv{layer}.bias"]))
            if layer in self._halvings:
                values = halved(values)
        values = values.flatten(2)
        values = torch.relu(linear(values, parameters["dense1.weight"], parameters["dense1.bias"]))
        return linear(values, parameters["dense2.weight"], parameters["dense2.bias"])

    def losses(self, parameters, batch):
        return losses(self._scores(parameters, batch[0]), batch[1])

    @torch.no_grad()
    def test(self, parameters):
        """(test accuracy in percent, test loss in nats); parameters of one group."""
        right, loss, count = 0.0, 0.0, len(self._test[1])
        for begin in range(0, count, TEST_BATCH):
            labels = self._test[1][begin:begin + TEST_BATCH][None]
            scores = self._scores(parameters, self._test[0][begin:begin + TEST_BATCH][None])
            right += (scores.argmax(-1) == labels).sum().item()
            loss += losses(scores, labels).item() * labels.numel()
        return 100 * right / count, loss / count

"""Task `words`: a word of Perl's manual from the eight around it, by two embedding tables (continuous bag of words, Mikolov et al.
2013). Most rows of the first table get no gradient in a step. Owns its arrays; one process."""
import math
import re
from collections import Counter
from pathlib import Path

import numpy as np
import torch

from .grouped import linear, losses
from .text import FOLDER, manual, tested_share

AROUND = (-4, -3, -2, -1, 1, 2, 3, 4)
TEST_WORDS = 8192


class Words:
    """`size` "full": 4,096 words in 96 dimensions, 0.79 M parameters; "quick": 1,024 in 24, 50 k. Other words are left out."""

    name, metric, unit, is_more_better = "words", "test loss", "bits a word", False
    lost = 13  # no better than guessing one of 8,192 words

    def __init__(self, data: Path, size: str, device: str) -> None:
        self._known, self._width = (1024, 24) if size == "quick" else (4096, 96)
        text = manual(data / FOLDER)
        test_begin = int(len(text) * (1 - tested_share(data / FOLDER)))
        train, test = (re.findall(r"[a-z]+|[0-9]+|[^\sa-z0-9]", part.lower()) for part in (text[:test_begin], text[test_begin:]))
        number_of = {word: number for number, (word, _) in enumerate(Counter(train).most_common(self._known))}
        self._train, self._test = (torch.tensor([number_of[word] for word in words if word in number_of], device=device)
                                   for words in (train, test))
        self._around = torch.tensor(AROUND, device=device)
        self.samples = len(self._train) - 8
        self.shapes = {"around.weight": (self._known, self._width), "middle.weight": (self._known, self._width),
                       "middle.bias": (self._known,)}

    def initial(self, random):
        return {"around.weight": random.normal(0, 1 / math.sqrt(self._width), self.shapes["around.weight"]).astype(np.float32),
                "middle.weight": np.zeros(self.shapes["middle.weight"], np.float32),
                "middle.bias": np.zeros(self.shapes["middle.bias"], np.float32)}

    def _of(self, words, places):
        around = words[places[..., None] + 4 + self._around]
        counts = torch.zeros(*places.shape, self._known, device=places.device)
        return counts.scatter_add_(-1, around, torch.full(around.shape, 1 / len(AROUND), device=places.device)), words[places + 4]

    def batch(self, indices):
        return self._of(self._train, indices)

    def _scores(self, parameters, counts):
        return linear(linear(counts, parameters["around.weight"].transpose(1, 2)), parameters["middle.weight"], parameters["middle.bias"])

    def losses(self, parameters, batch):
        return losses(self._scores(parameters, batch[0]), batch[1])

    @torch.no_grad()
    def test(self, parameters):
        """(bits a word, nats); parameters of one group."""
        total, count = 0.0, min(TEST_WORDS, len(self._test) - 8)
        places = torch.linspace(0, len(self._test) - 9, count, device=self._test.device).long()
        for begin in range(0, count, 1024):
            counts, middle = self._of(self._test, places[None, begin:begin + 1024])
            total += losses(self._scores(parameters, counts), middle).item() * middle.numel()
        return total / count / math.log(2), total / count

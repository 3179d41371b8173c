"""Task `text`: the next letter of Perl's manual (Debian package perl-doc) by a small transformer. Owns its arrays; one process."""
import math
import re
from pathlib import Path

import numpy as np
import torch

from .grouped import attention, linear, losses, normalized, one_hot

FOLDER = "perl-doc"
LEFT_OUT = ("perltoc.pod", "perluniprops.pod", "perlapi.pod")  # lists without sentences
LETTERS = 128  # of ASCII; others become one of them
TEST_PIECES = 256


def manual(folder: Path) -> str:
    """All pages one behind the other, by name; "" if there are none. Every tenth page is for tests, and comes last."""
    pages = [path for path in sorted(folder.glob("perl*.pod")) if path.name not in LEFT_OUT and not re.search(r"\d+delta", path.name)]
    ordered = [page for number, page in enumerate(pages) if number % 10] + pages[::10]
    return "".join(page.read_text(encoding="utf-8", errors="replace") for page in ordered)


def tested_share(folder: Path) -> float:
    """Of the manual, by letters."""
    pages = [path for path in sorted(folder.glob("perl*.pod")) if path.name not in LEFT_OUT and not re.search(r"\d+delta", path.name)]
    sizes = [page.stat().st_size for page in pages]
    return sum(sizes[::10]) / sum(sizes)


class Text:
    """`size` "full": 128 letters, four layers of width 128, 0.83 M parameters; "quick": 32 letters, two of width 48, 70 k."""

    name, metric, unit, is_more_better = "text", "test loss", "bits a letter", False
    lost = 8  # no better than guessing a byte

    def __init__(self, data: Path, size: str, device: str) -> None:
        is_quick = size == "quick"
        self._length, self._layers, self._width, self._heads = (32, 2, 48, 3) if is_quick else (128, 4, 128, 4)
        letters = np.frombuffer(manual(data / FOLDER).encode("ascii", errors="replace"), dtype=np.uint8)
        test_begin = int(len(letters) * (1 - tested_share(data / FOLDER)))
        self._letters = torch.tensor(letters.astype(np.int64), device=device)
        self.samples = test_begin - self._length - 1  # one begins at each letter
        places = np.linspace(test_begin, len(letters) - self._length - 2, TEST_PIECES).astype(np.int64)
        self._test = self.batch(torch.tensor(places[None], device=device))
        width = self._width
        self.shapes: dict[str, tuple[int, ...]] = {"letters.weight": (LETTERS, width), "places.weight": (self._length, width)}
        for layer in range(self._layers):
            at = f"layer{layer}."
            for name, shape in (("norm1.gain", (width,)), ("norm1.bias", (width,)), ("mix.weight", (3 * width, width)),
                                ("out.weight", (width, width)), ("norm2.gain", (width,)), ("norm2.bias", (width,)),
                                ("up.weight", (4 * width, width)), ("up.bias", (4 * width,)), ("down.weight", (width, 4 * width)),
                                ("down.bias", (width,))):
                self.shapes[at + name] = shape
        self.shapes |= {"norm.gain": (width,), "norm.bias": (width,), "head.weight": (LETTERS, width)}

    def initial(self, random):
        made = {}
        for name, shape in self.shapes.items():
            if name.endswith("gain"):
                made[name] = np.ones(shape, np.float32)
            elif name.endswith("bias"):
                made[name] = np.zeros(shape, np.float32)
            else:
                deviation = 0.5 if name in ("letters.weight", "places.weight") else 1 / math.sqrt(shape[1])
                deviation /= math.sqrt(2 * self._layers) if name.endswith(("out.weight", "down.weight")) else 1
                deviation /= 10 if name == "head.weight" else 1  # so that the first scores are about equal
                made[name] = random.normal(0, deviation, shape).astype(np.float32)
        return made

    def batch(self, indices):
        pieces = self._letters[indices[..., None] + torch.arange(self._length + 1, device=indices.device)]
        return pieces[..., :-1], pieces[..., 1:]

    def _scores(self, parameters, letters):
        values = linear(one_hot(letters, LETTERS), parameters["letters.weight"].transpose(1, 2)) + parameters["places.weight"][:, None]
        for layer in range(self._layers):
            def own(name, at=f"layer{layer}."):
                return parameters[at + name]
            mixed = linear(normalized(values, own("norm1.gain"), own("norm1.bias")), own("mix.weight"))
            values = values + linear(attention(*mixed.chunk(3, -1), self._heads), own("out.weight"))
            inner = linear(normalized(values, own("norm2.gain"), own("norm2.bias")), own("up.weight"), own("up.bias"))
            values = values + linear(torch.nn.functional.gelu(inner), own("down.weight"), own("down.bias"))
        return linear(normalized(values, parameters["norm.gain"], parameters["norm.bias"]), parameters["head.weight"])

    def losses(self, parameters, batch):
        return losses(self._scores(parameters, batch[0]), batch[1])

    @torch.no_grad()
    def test(self, parameters):
        """(bits a letter, nats); parameters of one group."""
        total = 0.0
        pieces = 64
        for begin in range(0, TEST_PIECES, pieces):
            letters, following = (array[:, begin:begin + pieces] for array in self._test)
            total += losses(self._scores(parameters, letters), following).item() * letters.shape[1]
        return total / TEST_PIECES / math.log(2), total / TEST_PIECES

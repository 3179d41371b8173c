"""The gradients of the comparison: a convolutional network with exactly as many parameters as are asked for trains on
Fashion-MNIST, on two ranks' batches, and the gradients of some steps are kept, whole, in a file. Nothing is tiled or made up.
Run as a program it writes that file: network.py PARAMETERS FILE RECORDED."""
import gzip
import os
import sys
import time
from pathlib import Path

DATA = Path("/usr/share/datasets/fashion-mnist")
SEED = 7
RANKS = 2
BATCH = 64  # pictures per rank and step
LEARNING_RATE, MOMENTUM = 0.02, 0.9
STEPS_BEFORE = 24  # steps of training before the first gradient that is kept
CLASSES = 10
FIRST_CHANNELS = 16
SMALLEST = 50_000


def widths_of(parameters):
    """Channels of the second convolution and units of two hidden layers, so that the network has exactly `parameters`; of the
    choices that one whose hidden layers differ least. Errors: ValueError."""
    best = None
    for channels in range(16, 65):
        convolutions = 9 * FIRST_CHANNELS + FIRST_CHANNELS + 9 * FIRST_CHANNELS * channels + channels
        for second in range(16, 4097):
            # weights and biases of three layers: (49 c + 1) a + (a + 1) b + (b + 1) classes
            left = parameters - convolutions - second - CLASSES * second - CLASSES
            first, rest = divmod(left, 49 * channels + 1 + second)
            if first < 16:
                break
            if rest == 0:
                unlikeness = max(first, second) / min(first, second)
                if best is None or unlikeness < best[0]:
                    best = unlikeness, (channels, first, second)
    if best is None:
        raise ValueError(f"no network has exactly {parameters} parameters: allowed are most numbers from {SMALLEST}; take another one")
    return best[1]


def make_network(parameters):
    """Two convolutions that halve 28 x 28 twice, and three linear layers."""
    import torch
    channels, first, second = widths_of(parameters)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(1, FIRST_CHANNELS, 3, stride=2, padding=1), torch.nn.ReLU(),
        torch.nn.Conv2d(FIRST_CHANNELS, channels, 3, stride=2, padding=1), torch.nn.ReLU(), torch.nn.Flatten(),
        torch.nn.Linear(49 * channels, first), torch.nn.ReLU(), torch.nn.Linear(first, second), torch.nn.ReLU(),
        torch.nn.Linear(second, CLASSES))
    assert sum(parameter.numel() for parameter in network.parameters()) == parameters
    return network


def _pictures():
    """All pictures of the training set, float32 with mean 0 and variance 1, and their labels."""
    import numpy
    import torch
    with gzip.open(DATA / "train-images-idx3-ubyte.gz") as file:
        pixels = numpy.frombuffer(file.read(), numpy.uint8, offset=16).reshape(-1, 1, 28, 28)
    with gzip.open(DATA / "train-labels-idx1-ubyte.gz") as file:
        labels = numpy.frombuffer(file.read(), numpy.uint8, offset=8)
    pictures = torch.from_numpy(pixels.astype(numpy.float32))
    return (pictures - pictures.mean()) / pictures.std(), torch.from_numpy(labels.astype(numpy.int64))


def record(parameters, path, recorded):
    """Trains and writes float32 [RANKS][recorded][parameters] to `path`, complete or not at all."""
    import numpy
    import torch
    torch.manual_seed(SEED)
    network = make_network(parameters)
    optimizer = torch.optim.SGD(network.parameters(), LEARNING_RATE, MOMENTUM)
    pictures, labels = _pictures()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(SEED))
    draft = Path(f"{path}.{os.getpid()}")
    kept = numpy.lib.format.open_memmap(draft, "w+", numpy.float32, (RANKS, recorded, parameters))
    last_said = time.monotonic()
    for step in range(STEPS_BEFORE + recorded):
        mean = torch.zeros(parameters)
        for rank in range(RANKS):
            rows = order[(step * RANKS + rank) * BATCH:][:BATCH]
            network.zero_grad()
            loss = torch.nn.functional.cross_entropy(network(pictures[rows]), labels[rows])
            loss.backward()
            gradient = torch.cat([parameter.grad.reshape(-1) for parameter in network.parameters()])
            mean += gradient / RANKS
            if step >= STEPS_BEFORE:
                kept[rank, step - STEPS_BEFORE] = gradient.numpy()
        place = 0
        for parameter in network.parameters():
            parameter.grad.copy_(mean[place:place + parameter.numel()].view_as(parameter))
            place += parameter.numel()
        optimizer.step()
        if time.monotonic() - last_said > 5:
            last_said = time.monotonic()
            print(f"   recording gradients of {parameters:,} parameters: step {step + 1} of {STEPS_BEFORE + recorded}, "
                  f"loss {loss.item():.2f}", file=sys.stderr, flush=True)
    kept.flush()
    draft.rename(path)


def file_name(parameters, recorded):
    """Under which a recording is kept: another recipe has another name."""
    return f"gradients-{parameters}-{recorded}-seed{SEED}-batch{BATCH}-after{STEPS_BEFORE}.npy"


if __name__ == "__main__":
    record(int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))

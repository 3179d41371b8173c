#!/usr/bin/env python3
"""gradsieve.torch.SecondMoments against autograd, one sample at a time; without daemons. Prints what it costs. Skipped as
a whole where Debian's python3-torch is not installed."""
import statistics
import time
import unittest
import unittest.mock
import warnings

from python_cluster import require_module

require_module("torch", "python3-torch")
import torch
from torch import nn

from gradsieve.torch import SecondMoments
from gradsieve.torch import squares

SAMPLES = 6
TOLERANCE = 1e-5  # relative to the largest; both sum in float32, in another order


def per_sample_squares(model, inputs, loss_of):
    """By backward passes of one sample each: {name: sum over samples of the squared gradient}."""
    sums = {name: torch.zeros_like(parameter) for name, parameter in model.named_parameters()}
    for index in range(len(inputs)):
        model.zero_grad()
        loss_of(model(inputs[index:index + 1])).backward()
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                sums[name] += parameter.grad ** 2
    return sums


class Positions(nn.Module):
    """Sums up over positions, so that Linear sees three dimensions."""

    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, indices):
        return self.layers(indices).sum(1)


class SquaresTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(3)

    def check(self, model, inputs, divisor=1):
        """The loss is a sum over samples, divided by `divisor`."""
        def loss_of(outputs):
            return (outputs.tanh() ** 2).sum() / divisor

        moments = SecondMoments(model)
        self.assertEqual(moments.missing, {})
        wanted = per_sample_squares(model, inputs, loss_of)
        for parameter in model.parameters():
            moments.take(parameter)  # those of the passes above
        loss_of(model(inputs)).backward()
        for name, parameter in model.named_parameters():
            found, samples = moments.take(parameter)
            self.assertEqual(samples, len(inputs), name)
            self.assertEqual(found.shape, parameter.shape)
            self.assertGreater(float(wanted[name].max()), 0, name)
            self.assertLess(float((found - wanted[name]).abs().max() / wanted[name].max()), TOLERANCE, name)
            self.assertEqual(moments.take(parameter), (None, 0))
        moments.close()

    def test_linear_layers_on_vectors(self):
        self.check(nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)), torch.randn(SAMPLES, 5))

    def test_a_mean_over_the_batch_divides_each_samples_part(self):
        self.check(nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)), torch.randn(SAMPLES, 5), divisor=SAMPLES)

    def test_a_relu_in_place_behind_a_layer(self):
        self.check(nn.Sequential(nn.Linear(5, 7), nn.ReLU(inplace=True), nn.Linear(7, 3)), torch.randn(SAMPLES, 5))

    def test_embeddings_and_linear_layers_over_positions(self):
        for padding_idx in (None, 2):
            model = Positions(nn.Embedding(9, 4, padding_idx=padding_idx), nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))
            self.check(model, torch.randint(9, (SAMPLES, 8)))  # indices that come twice in a sample

    def test_convolutions_with_strides_padding_dilation_and_groups(self):
        for options in ({}, {"stride": 2, "padding": 1}, {"dilation": 2, "padding": (2, 1)}, {"groups": 2, "padding": "valid"}):
            with self.subTest(**options):
                self.check(nn.Sequential(nn.Conv2d(4, 6, 3, **options), nn.ReLU(), nn.Conv2d(6, 2, (1, 2))), torch.randn(SAMPLES, 4, 8, 8))

    def test_work_in_pieces_gives_the_same(self):
        with unittest.mock.patch.object(squares, "PIECE_ELEMENTS", 1):
            self.test_convolutions_with_strides_padding_dilation_and_groups()
            self.test_embeddings_and_linear_layers_over_positions()

    def test_micro_batches_add_up(self):
        model, inputs = nn.Linear(5, 3), torch.randn(SAMPLES, 5)
        wanted = per_sample_squares(model, inputs, lambda outputs: (outputs ** 2).sum())
        moments = SecondMoments(model)
        for part in inputs.split(2):
            (model(part) ** 2).sum().backward()
        found, samples = moments.take(model.weight)
        self.assertEqual(samples, SAMPLES)
        self.assertLess(float((found - wanted["weight"]).abs().max() / wanted["weight"].max()), TOLERANCE)


class MissingTest(unittest.TestCase):
    def test_layers_that_are_not_covered_are_named_with_the_reason(self):
        shared = nn.Linear(4, 4)
        same = nn.Linear(4, 4)
        same.weight = shared.weight
        model = nn.ModuleDict({"norm": nn.BatchNorm2d(2), "same": nn.Conv2d(1, 1, 3, padding="same"), "circular": nn.Conv2d(
            1, 1, 3, padding=1, padding_mode="circular"), "scaled": nn.Embedding(3, 2, scale_grad_by_freq=True), "a": shared, "b": same,
            "frozen": nn.LayerNorm(2).requires_grad_(False)})
        missing = SecondMoments(model).missing
        self.assertEqual(set(missing), {"norm.weight", "norm.bias", "same.weight", "same.bias", "circular.weight", "circular.bias",
                                        "scaled.weight", "a.weight"})
        self.assertEqual(missing["norm.weight"], "BatchNorm2d is not covered: Linear, Conv2d and Embedding are")
        self.assertEqual(missing["a.weight"], "shared by the layers 'a', 'b'")
        self.assertIn("padding 'same'", missing["same.weight"])
        self.assertIn("mode 'circular'", missing["circular.weight"])
        self.assertIn("scale_grad_by_freq", missing["scaled.weight"])

    def see(self, run):
        """What `run` makes of a layer: (found, samples, reason), and one warning."""
        model = nn.Linear(3, 3, bias=False)
        moments = SecondMoments(model)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):
                run(model).sum().backward()
        self.assertEqual(len(caught), 1)
        return (*moments.take(model.weight), moments.missing["weight"])

    def test_a_layer_that_is_called_twice_in_a_pass_falls_back(self):
        result = self.see(lambda model: model(model(torch.ones(2, 3))))
        self.assertEqual(result, (None, 0, "its layer was called 2 times in a backward pass; allowed is once"))

    def test_a_parameter_that_is_used_without_its_layer_falls_back(self):
        result = self.see(lambda model: nn.functional.linear(torch.ones(2, 3), model.weight))
        self.assertEqual(result, (None, 0, "it is used without a call of its layer"))

    def test_a_forward_pass_alone_counts_nothing(self):
        model = nn.Linear(3, 3, bias=False)
        moments = SecondMoments(model)
        model(torch.ones(2, 3))
        with torch.no_grad():
            model(torch.ones(2, 3))
        model(torch.ones(5, 3)).sum().backward()
        found, samples = moments.take(model.weight)
        self.assertEqual((samples, found.tolist(), moments.missing), (5, [[5.0] * 3] * 3, {}))


class OverheadTest(unittest.TestCase):
    """Prints the overhead; asserts only that there is a figure, since times are no matter of a test."""

    def seconds(self, model, inputs, repetitions=7):
        """CPU time of a forward and a backward pass, the median: other programs' load is none of it."""
        times = []
        for _ in range(repetitions):
            model.zero_grad()
            started = time.process_time()
            model(inputs).square().mean().backward()
            times.append(time.process_time() - started)
        return statistics.median(times)

    def test_the_overhead_is_printed(self):
        torch.set_num_threads(1)
        torch.manual_seed(1)
        perceptron = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
        convolutions = nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1),
                                     nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64 * 49, 128), nn.ReLU(), nn.Linear(128, 10))
        text = Positions(nn.Embedding(5000, 128), nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 128))
        for name, model, inputs in (("perceptron", perceptron, torch.randn(128, 784)), ("convolutions", convolutions, torch.randn(32, 1, 28, 28)),
                                    ("embedding, 32 positions", text, torch.randint(5000, (32, 32)))):
            without = self.seconds(model, inputs)
            moments = SecondMoments(model)
            with_moments = self.seconds(model, inputs)
            moments.close()
            self.assertGreater(without, 0)
            print(f"overhead of second moments, {name}: {1000 * without:.1f} ms without, {1000 * with_moments:.1f} ms with, "
                  f"{100 * (with_moments / without - 1):.0f} % more", flush=True)


if __name__ == "__main__":
    unittest.main()

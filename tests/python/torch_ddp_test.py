#!/usr/bin/env python3
"""examples/torch_ddp on two daemons and four ranks, launched as torchrun and as Slurm do. Skipped as a whole where Debian's
python3-torch is not installed."""
import re
import unittest

from python_cluster import SLURM, SOURCE, TORCHRUN, Cluster, require_module

require_module("torch", "python3-torch")
require_module("numpy", "python3-numpy")

PROGRAM = SOURCE / "examples" / "torch_ddp" / "train.py"
LINE = re.compile(r"^rank (\d): accuracy (\S+), .* ms a step, wire ratio (\S+), parameters (\w{16})$", flags=re.M)
WIRE_RATIO = 100  # what the README of the project promises of compressed training
GUESSING = 0.1  # ten classes


class TorchDdpTest(unittest.TestCase):
    def train(self, launcher, *options):
        """(accuracy, wire ratio, hash of the parameters) of each rank."""
        with Cluster(2) as cluster:
            ranks = cluster.start_programs([PROGRAM, "--synthetic", *options], 4, launcher)
            for rank in ranks:
                self.assertEqual(rank.wait_for_exit(), 0, rank.output)
            found = [LINE.search(rank.output) for rank in ranks]
        self.assertEqual([line and line.group(1) for line in found], ["0", "1", "2", "3"])
        return [(float(line.group(2)), float(line.group(3)), line.group(4)) for line in found]

    def test_ranks_of_torchrun_end_with_the_same_bits_at_a_hundredth_of_the_bytes(self):
        results = self.train(TORCHRUN, "--steps", "60", "--batch", "16")
        self.assertEqual(len({hashed for _, _, hashed in results}), 1)
        for accuracy, ratio, _ in results:
            self.assertGreater(accuracy, 5 * GUESSING)
            self.assertGreater(ratio, WIRE_RATIO)

    def test_ranks_of_slurm_find_each_other(self):
        results = self.train(SLURM, "--steps", "3", "--batch", "16", "--codec", "all | f32")
        self.assertEqual(len({hashed for _, _, hashed in results}), 1)


if __name__ == "__main__":
    unittest.main()

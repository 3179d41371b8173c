#!/usr/bin/env python3
"""gradsieve.torch with gradients in device memory, on the emulated card: micro-batches, second moments, weights and other memory orders
give the bits that the same training gives through host memory, also where one node has a card and the other none. Two processes on two
daemons. Skipped as a whole where Debian's python3-torch is not installed, and in builds without the emulated card."""
import os
import unittest

from python_cluster import Cluster, require_module, skip_program

require_module("torch", "python3-torch")
if not os.environ.get("GRADSIEVE_CUDA_DRIVER"):
    skip_program("this build has no emulated card (--preset emulated)")

SCENARIOS = {
    "plain": ["averaged", {}],
    "micro_batches": ["averaged", {"passes": 3}],
    "second_moments": ["averaged", {"has_moments": True}],
    "all_at_once": ["averaged", {"passes": 2, "has_moments": True, "weight": 0.5, "channels_last": True}],
    "weighted_halves": ["averaged", {"weight": 0.7, "dtype": "bfloat16", "codec": "topk(0.1) | pow2(bits=4) | auto"}],
    "halves": ["averaged", {"passes": 2, "dtype": "bfloat16"}],
    "channels_last": ["averaged", {"channels_last": True, "codec": "lowrank(2, columns=square)"}],
    "hooked": ["hooked", {}]}
COVERED = ("0.weight", "0.bias", "3.weight", "3.bias", "6.weight", "6.bias")
OTHER = ("4.weight", "4.bias")


def run(*places, only=tuple(SCENARIOS), extra=""):
    scenarios = {key: [name, {**options, "places": places}] for key, (name, options) in SCENARIOS.items() if key in only}
    with Cluster(2, extra) as cluster:
        ran = cluster.run_ranks("torch_ranks:scenarios", 2, timeout_s=200, module="torch_card_ranks", **scenarios)
    return {key: [result[key] for result in ran] for key in scenarios}


class SameBitsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.host, cls.card, cls.mixed = run("host", "host"), run("card", "card"), run("card", "host")

    def test_averages_on_the_card_are_those_of_host_memory_on_every_rank(self):
        for key in SCENARIOS:
            with self.subTest(key):
                wanted = self.host[key][0]["hashes"]
                self.assertGreater(len(set(wanted)), 3)
                for results in (self.host, self.card, self.mixed):
                    self.assertEqual([result["hashes"] for result in results[key]], [wanted, wanted])

    def test_gradients_were_taken_from_the_card_and_not_staged(self):
        for key in SCENARIOS:
            self.assertEqual([result["places"] for result in self.host[key]], [["host"]] * 2, key)
            self.assertEqual([result["places"] for result in self.card[key]], [["gpu"]] * 2, key)
            self.assertEqual([result["places"] for result in self.mixed[key]], [["gpu"], ["host"]], key)

    def test_the_daemon_tells_the_same_of_the_noise(self):
        for key in SCENARIOS:
            for results in (self.card, self.mixed):
                self.assertEqual([result["sources"] for result in results[key]], [result["sources"] for result in self.host[key]], key)
        for result in self.card["second_moments"] + self.card["all_at_once"]:
            self.assertEqual({result["sources"][name] for name in COVERED}, {"second moment"})
        for result in self.card["hooked"]:
            self.assertEqual({result["sources"][name] for name in COVERED + OTHER}, {"groups, pooled"})
        # In the last step rank 0 has two passes, rank 1 one.
        self.assertEqual([set(result["sources"].values()) for result in self.card["micro_batches"]], [{"groups, pooled"}, {"single gradient"}])


class StagedTest(unittest.TestCase):
    def test_tensors_that_the_host_codes_have_the_same_bits_from_slabs_and_second_moments(self):
        only = ("plain", "micro_batches", "all_at_once", "hooked")
        host, card = (run(place, place, only=only, extra='[codec]\nplan = "sharded"') for place in ("host", "card"))
        for key in only:
            self.assertEqual([result["hashes"] for result in card[key]], [host[key][0]["hashes"]] * 2, key)
            self.assertEqual([result["places"] for result in card[key]], [["staged"]] * 2, key)


class LostRankTest(unittest.TestCase):
    def test_a_rank_that_ends_between_its_micro_batches_is_named(self):
        with Cluster(1) as cluster:
            ran = cluster.run_ranks("torch_card_ranks:lost", 2, timeout_s=100, places=["card", "card"])
        self.assertRegex(ran[0]["text"], "rank 1")


if __name__ == "__main__":
    unittest.main()

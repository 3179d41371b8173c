#!/usr/bin/env python3
"""gradsieve.torch with batches of different sizes, micro-batches and second moments as what a variance codec reads, and probed
steps; two processes on two daemons. Skipped as a whole where Debian's python3-torch is not installed."""
import unittest

from python_cluster import Cluster, require_module

require_module("torch", "python3-torch")

ROUNDING = 2e-6  # gradients of the tests' model are below 1; sums in float32, in another order
TOPK = "topk(0.05) | pow2(bits=4) | auto"
COVERED = ("0.weight", "0.bias", "3.weight", "3.bias")
OTHER = ("1.weight", "1.bias")


def run(nodes, world, scenarios):
    with Cluster(nodes) as cluster:
        ran = cluster.run_ranks("torch_ranks:scenarios", world, timeout_s=120, module="torch_batches_ranks", **scenarios)
    return {key: [result[key] for result in ran] for key in scenarios}


class TwoRanksTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.results = run(2, 2, {
            "weighted": ["weighted", {}], "weighted_plain": ["weighted", {"fallback": "allreduce"}],
            "weighted_averager": ["weighted_averager", {}], "joined": ["joined", {}],
            "joined_with_all": ["joined", {"probe_every": 1, "micro_batches": 2, "fallback": "allreduce"}], "micro_batches": ["micro_batches", {}],
            "second_moments": ["second_moments_with_ddp", {}], "two_models": ["two_models", {}], "probed": ["probed", {"codec": TOPK}],
            "probed_exact": ["probed", {"codec": "all | f32"}]})

    def test_weights_give_the_mean_over_all_samples(self):
        for result in self.results["weighted"] + self.results["weighted_plain"]:
            self.assertLess(max(result["differences"]), ROUNDING)
            self.assertRegex(result["text"], "weight is nan: allowed is a finite number of 0 or more; give")
        self.assertEqual([result["plain_steps"] for result in self.results["weighted_plain"]], [2, 2])
        for difference in self.results["weighted_averager"]:
            self.assertLess(difference, ROUNDING)

    def test_a_weight_makes_up_for_a_rank_that_has_finished(self):
        for result in self.results["joined"] + self.results["joined_with_all"]:
            self.assertEqual(result["last_step"], 3)
            self.assertLess(result["difference"], ROUNDING)

    def test_micro_batches_are_slices_and_their_sum_is_averaged(self):
        for rank, result in enumerate(self.results["micro_batches"]):
            self.assertLess(result["difference"], ROUNDING)
            self.assertLess(result["slice_difference"], ROUNDING)
            self.assertEqual((result["counts"], result["last_step"]), ([(3, 2)[rank]], 2))

    def test_models_of_one_job_have_their_own_options(self):
        for result in self.results["two_models"]:
            self.assertEqual((result["steps"], result["plain_probes"]), ([1, 3], 0))
            self.assertEqual(result["probes"], sorted(f"d.{name}" for name in COVERED + OTHER))
            self.assertLess(result["difference"], ROUNDING)

    def test_status_names_what_falls_back_to_micro_batches(self):
        for found in self.results["second_moments"]:
            self.assertEqual({found[name] for name in COVERED}, {"second moment"})
            self.assertEqual({found[name] for name in OTHER}, {"groups, pooled"})

    def test_probed_steps_tell_the_angle_and_the_error_of_each_tensor(self):
        for result in self.results["probed"] + self.results["probed_exact"]:
            self.assertEqual((result["before"], result["steps"], result["names"], result["is_told"]), (0, [2], True, True))
            self.assertLess(result["difference"], ROUNDING)
        for result in self.results["probed_exact"]:
            self.assertLess(max(result["errors"]), ROUNDING)
            self.assertGreater(min(result["cosines"]), 1 - ROUNDING)
        self.assertEqual(*(result["errors"] for result in self.results["probed"]))
        self.assertGreater(max(self.results["probed"][0]["errors"]), 0.1)


class OneRankTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.results = run(1, 1, {
            "one_pass": ["second_moments", {}], "weighted": ["second_moments", {"weight": 4.0}],
            "three_passes": ["second_moments", {"passes": 3}], "too_many": ["too_many_passes", {}], "failed_start": ["failed_start", {}]})

    def test_the_daemon_sends_what_the_rule_sends_with_per_sample_gradients(self):
        for name in ("one_pass", "weighted", "three_passes"):
            result, = self.results[name]
            self.assertEqual(result["wrong"], 0, name)
            self.assertLess(result["values_differ"], 4 * ROUNDING)
            self.assertTrue(0 < result["sent"] < result["of"], result["sent"])
            self.assertEqual({result["sources"][parameter] for parameter in COVERED}, {"second moment"})
            self.assertEqual(set(result["missing"]), set(OTHER))
            self.assertEqual({result["sources"][parameter] for parameter in OTHER},
                             {"groups, pooled" if name == "three_passes" else "single gradient"})

    def test_a_model_whose_job_did_not_start_can_be_trained(self):
        self.assertRegex(self.results["failed_start"][0]["text"], "unavailable: .*/nowhere")

    def test_more_passes_than_slices_are_refused_and_the_next_step_is_a_good_one(self):
        result, = self.results["too_many"]
        self.assertRegex(result["text"], "3 backward passes in a step: allowed are 2; register .*larger micro_batches")
        self.assertLess(result["difference"], ROUNDING)


if __name__ == "__main__":
    unittest.main()

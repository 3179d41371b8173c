#!/usr/bin/env python3
"""gradsieve.torch: DistributedDataParallel over Gloo with two processes on two daemons, and what it does to
gradients. Skipped as a whole where Debian's python3-torch is not installed."""
import signal
import unittest

from python_cluster import Cluster, require_module, result_of

require_module("torch", "python3-torch")

FP32_ROUNDING = 1e-6  # gradients of the tests' model are below 1; both means round each addition once


class DdpTest(unittest.TestCase):
    """Two processes go through all scenarios once; each test looks at one of them."""

    SCENARIOS = {
        "exact": ["exact_codec", {}], "bucket_views": ["exact_codec", {"gradient_as_bucket_view": True}],
        "compressed": ["train", {"codec": "topk(0.05) | pow2(bits=4) | auto"}], "unused": ["unused", {}],
        "no_sync": ["without_sync", {}], "uneven": ["uneven", {}], "two_models": ["two_models", {}],
        "non_finite": ["non_finite", {}], "missing": ["daemon_missing", {"missing_on": [0, 1]}],
        "fallback": ["daemon_missing", {"missing_on": [0, 1], "fallback": "allreduce"}],
        "fallback_of_one": ["daemon_missing", {"missing_on": [1], "fallback": "allreduce"}],
        "frozen": ["frozen", {}], "averager": ["averager", {}], "float16": ["halves", {"dtype": "float16"}],
        "bfloat16": ["halves", {"dtype": "bfloat16"}], "start_mismatch": ["start_differs", {"run": "mismatch"}],
        "start_timeout": ["start_differs", {"run": "timeout"}], "one_start_fails": ["one_start_fails", {}],
    }

    @classmethod
    def setUpClass(cls):
        with Cluster(2) as cluster:
            ran = cluster.run_ranks("torch_ranks:scenarios", 2, timeout_s=120, **cls.SCENARIOS)
        cls.results = {key: [result[key] for result in ran] for key in cls.SCENARIOS}

    def test_exact_codec_gives_the_means_bits_and_ddps_values_over_rebuilt_buckets(self):
        results = self.results["exact"]
        self.assertEqual(results[0]["hash"], results[1]["hash"])
        for result in results:
            self.assertTrue(result["is_exact"])
            self.assertLess(result["against_ddp"], FP32_ROUNDING)
            self.assertEqual(result["last_step"], 4)
            self.assertGreater(result["buckets"], 1)
            self.assertTrue(result["were_rebuilt"])

    def test_exact_codec_with_gradients_as_bucket_views(self):
        self.assertEqual([result["is_exact"] for result in self.results["bucket_views"]], [True, True])

    def test_compressed_training_converges_to_the_same_bits_everywhere(self):
        results = self.results["compressed"]
        self.assertEqual(results[0]["hash"], results[1]["hash"])
        self.assertLess(results[0]["after"], 0.5 * results[0]["before"])
        self.assertEqual(results[0]["last_step"], 60)

    def test_unused_parameters_count_as_zero(self):
        self.assertEqual(self.results["unused"], [{"is_none": True, "is_half": True, "last_step": 2}] * 2)

    def test_no_sync_accumulates_into_one_step(self):
        for result in self.results["no_sync"]:
            self.assertLess(result["difference"], FP32_ROUNDING)
            self.assertEqual(result["last_step"], 1)

    def test_join_lets_a_finished_rank_contribute_zeros(self):
        for result in self.results["uneven"]:
            self.assertLess(result["difference"], FP32_ROUNDING)
            self.assertEqual(result["last_step"], 3)

    def test_two_models_of_a_job_step_on_their_own(self):
        self.assertEqual(self.results["two_models"], [{"steps": [2, 10], "difference": 0.0}] * 2)

    def test_a_nan_comes_back_on_every_rank_and_the_next_step_holds(self):
        self.assertEqual(self.results["non_finite"], [{"are_nan": True, "difference": 0.0}] * 2)

    def test_a_missing_daemon_is_an_error_that_says_what_to_do(self):
        for result in self.results["missing"]:
            self.assertRegex(result["error"], "unavailable: .*/nowhere/gradsieved.sock.*start it")

    def test_fallback_is_taken_by_all_ranks_if_one_misses_its_daemon(self):
        for result in self.results["fallback"] + self.results["fallback_of_one"]:
            self.assertEqual(result["error"], "")
            self.assertLess(result["difference"], FP32_ROUNDING)
            self.assertEqual((result["plain_steps"], result["warnings"]), (2, 1))

    def test_with_a_fallback_a_start_that_fails_raises_on_every_rank(self):
        for text in self.results["start_mismatch"]:
            self.assertRegex(text, "mismatch: .*weight")
        for text in self.results["start_timeout"]:
            self.assertRegex(text, "timeout: .*call again")
        other, failed = self.results["one_start_fails"]
        self.assertEqual(failed, "version-mismatch: too old")
        self.assertRegex(other, "another rank could not start .*: allowed is .*; see that rank's error")

    def test_averager_without_ddp_gives_the_means_bits(self):
        self.assertEqual(self.results["averager"], [{"is_broadcast": True, "is_exact": True, "last_step": 3}] * 2)

    def test_frozen_parameters_are_left_alone_and_an_unfrozen_one_is_named(self):
        for result in self.results["frozen"]:
            self.assertTrue(result["is_left_alone"])
            self.assertRegex(result["text"], r"'spare.weight' of shape \(3, 3\) is not registered: allowed are .*; unfreeze")

    def test_half_types_are_rounded_once(self):
        self.assertEqual(self.results["float16"] + self.results["bfloat16"], [True] * 4)


class LostDaemonTest(unittest.TestCase):
    """One of two daemons is killed between two steps."""

    def kill_one(self, network="", **arguments):
        """The two ranks, about to take their second step."""
        cluster = Cluster(2, network=network)
        self.addCleanup(cluster.close)
        ranks = cluster.start_ranks("torch_ranks:daemon_dies", 2, **arguments)
        for rank in ranks:
            rank.wait_for_line("stepped")
        cluster.kill_daemon(1)
        for rank in ranks:
            rank.send_signal(signal.SIGUSR1)
        return ranks

    def test_backward_raises_the_librarys_words(self):
        result = result_of(self.kill_one()[1])
        self.assertRegex(result["texts"][0], "unavailable: .*gradsieved")
        self.assertEqual(result["error"], "Unavailable")

    def test_fallback_goes_on_with_all_reduce(self):
        for options in ({}, {"micro_batches": 2, "probe_every": 1}):
            for result in map(result_of, self.kill_one(network="peer_timeout_s = 1", fallback="allreduce", **options)):
                self.assertEqual(result["texts"], ["", ""], options)
                self.assertLess(result["difference"], FP32_ROUNDING)
                self.assertEqual((result["plain_steps"], result["warnings"]), (2, 1))

    def test_fallback_on_a_card_loses_the_step_on_every_rank_and_goes_on_with_the_next(self):
        ranks = self.kill_one(network="peer_timeout_s = 1", fallback="allreduce", as_on_card=True)
        for result in map(result_of, ranks):
            lost, after = result["texts"]
            self.assertRegex(lost, "unavailable: |peer-failed: |another rank lost its daemon")
            self.assertEqual(after, "")
            self.assertLess(result["difference"], FP32_ROUNDING)
            self.assertEqual((result["plain_steps"], result["warnings"]), (1, 1))


class EndTest(unittest.TestCase):
    """A program that ends leaves its job, whatever else keeps it alive."""

    def test_a_job_is_left_in_good_order_without_close(self):
        with Cluster() as cluster:
            cluster.run_ranks("torch_ranks:ends_without_close", 2)
            ended = cluster.daemons[0].wait_for_words("job ended: ")
        self.assertEqual(ended, "job ended: all ranks detached JOB=torch")


class LateRankTest(unittest.TestCase):
    """Two ranks on one node; the second one comes late."""

    @classmethod
    def setUpClass(cls):
        scenarios = {"late": ["late", {}], "open_gradient": ["open_gradient", {}]}
        with Cluster() as cluster:
            ran = cluster.run_ranks("torch_ranks:scenarios", 2, **scenarios)
        cls.results = {key: [result[key] for result in ran] for key in scenarios}

    def test_the_same_call_after_a_timeout_goes_on_with_the_first_gradients(self):
        for rank, result in enumerate(self.results["late"]):
            self.assertEqual(result, {"seen": [[2.0], [15.0]], "last_step": 2, "was_late": rank == 0})

    def test_a_gradient_that_the_daemon_has_to_read_still_is_not_overwritten(self):
        zero, one = self.results["open_gradient"]
        self.assertRegex(zero["text"], "busy: .*'weight': its last step has no outcome yet: allowed is submit after wait; wait")
        self.assertEqual([zero["is_first"], one["is_first"]], [True, True])


class LocalTest(unittest.TestCase):
    """One process, one daemon."""

    @classmethod
    def setUpClass(cls):
        with Cluster() as cluster:
            cls.results, = cluster.run_ranks("torch_ranks:scenarios", 1, learning_rate=["learning_rate", {}],
                                             dlpack=["handed_in_by_dlpack", {}])

    def test_a_changed_learning_rate_rescales_what_was_kept(self):
        result = self.results["learning_rate"]
        self.assertIn(result["sent"], range(1, 8))
        self.assertAlmostEqual(result["factor"], 2.0)

    def test_torch_tensors_are_handed_in_by_dlpack(self):
        result = self.results["dlpack"]
        self.assertEqual(result["seen"], [True] * 3)
        one, same, other = result["digests"]
        self.assertEqual(one, same)
        self.assertNotEqual(one, other)
        for text, words in zip(result["texts"], ("strided", r"shape \(6,\)", "float64"), strict=True):
            self.assertRegex(text, f"invalid-argument: .*{words}.*: allowed")


if __name__ == "__main__":
    unittest.main()

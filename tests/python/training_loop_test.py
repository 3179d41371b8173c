#!/usr/bin/env python3
"""What docs/training-loop.md says, row by row; two processes on two daemons. The measured runs are short here: with
GRADSIEVE_MEASURED_STEPS and GRADSIEVE_MEASURED_SEEDS they print the page's tables. Skipped as a whole where Debian's
python3-torch is not installed."""
import os
import shutil
import statistics
import tempfile
import unittest
from pathlib import Path

from python_cluster import Cluster, require_module

require_module("torch", "python3-torch")

ROUNDING = 2e-6  # gradients of the tests' model are below 1; sums in float32, in another order
DATASET = Path("/usr/share/datasets/fashion-mnist")
STEPS = int(os.environ.get("GRADSIEVE_MEASURED_STEPS", "60"))
SEEDS = int(os.environ.get("GRADSIEVE_MEASURED_SEEDS", "1"))
CODECS = {"dense": "all | f32", "compressed": "topk(0.02) | pow2(bits=4) | auto"}
LOOPS = {"sgd": {}, "clipping after": {"clip_after": 1.0}, "clipping before": {"clip_before": 1.0}, "weight decay": {"decay": 5e-4},
         "adam": {"optimizer": "adam"}, "schedule": {"has_schedule": True},
         "schedule and clipping after": {"has_schedule": True, "clip_after": 1.0},
         "schedule, optimizer not given": {"has_schedule": True, "knows_optimizer": False}}


def run(cluster, world, timeout_s=120, **scenarios):
    ran = cluster.run_ranks("torch_ranks:scenarios", world, timeout_s=timeout_s, module="training_loop_ranks", **scenarios)
    return {key: [result[key] for result in ran] for key in scenarios}


class LoopTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with Cluster(2) as cluster:
            cls.results = run(cluster, 2, clipped_after=["clipped_after", {}], clipped_before=["clipped_before", {}],
                              clipped_in_hook=["clipped_in_the_hook", {}], weight_decay=["weight_decay", {}],
                              ddp_norm=["batch_norm", {"with_ddp": True}], averager_norm=["batch_norm", {"with_ddp": False}])
        with Cluster() as cluster:
            cls.results |= run(cluster, 1, schedule=["schedule", {"knows_optimizer": True}], blind=["schedule", {"knows_optimizer": False}])

    def test_clipping_after_averaging_sees_one_norm_on_all_ranks(self):
        zero, one = self.results["clipped_after"]
        self.assertEqual(zero, one)
        self.assertGreater(max(zero["norms"]), 0.1)  # so that something was clipped

    def test_clipping_before_averaging_is_of_each_ranks_own_gradient(self):
        for result in self.results["clipped_before"]:
            self.assertLess(result["difference"], ROUNDING)
            self.assertGreater(result["against_unclipped"], 1e-3)
        for difference in self.results["clipped_in_hook"]:
            self.assertLess(difference, ROUNDING)

    def test_weight_decay_reaches_weights_whose_gradient_was_not_sent(self):
        for result in self.results["weight_decay"]:
            self.assertGreater(result["silent"], 0.8 * result["of"])
            self.assertLess(result["difference"], ROUNDING)

    def test_buffers_are_ddps_matter_and_each_ranks_own_without_it(self):
        for name in ("ddp_norm", "averager_norm"):
            zero, one = self.results[name]
            self.assertNotEqual(zero["own"], one["own"], name)
            self.assertEqual(zero["parameters"], one["parameters"], name)
        zero, one = self.results["averager_norm"]
        self.assertEqual(zero["shared"], one["shared"])

    def test_a_schedule_rescales_what_was_kept_where_the_optimizer_is_known(self):
        (known,), (blind,) = self.results["schedule"], self.results["blind"]
        self.assertIn(known["sent"], range(1, 8))
        self.assertAlmostEqual(known["factor"], 2.0)
        self.assertAlmostEqual(blind["factor"], 1.0)


class ResumeTest(unittest.TestCase):
    """A run that is killed and started again."""

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="gradsieve-resume-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.arguments = {"checkpoint": str(self.folder / "checkpoint"), "steps": 5}

    def kill(self, cluster):
        """Five steps, a checkpoint, and the end of both ranks: the hash of their parameters."""
        ranks = cluster.start_ranks("training_loop_ranks:resumed", 2, dies=True, **self.arguments)
        hashes = [rank.wait_for_line("stepped ") for rank in ranks]
        for rank in ranks:
            rank.wait_for_exit()
        for daemon in cluster.daemons:
            daemon.wait_for_words("job ended: ")
        self.assertEqual(*hashes)

    def test_a_resumed_run_ends_with_the_bits_of_one_that_was_not_interrupted(self):
        with Cluster(2) as cluster:
            whole = cluster.run_ranks("training_loop_ranks:resumed", 2, checkpoint=str(self.folder / "none"), steps=10)
        with Cluster(2) as cluster:
            self.kill(cluster)
            ran = cluster.run_ranks("training_loop_ranks:resumed", 2, **self.arguments)
        for result in ran:
            self.assertEqual((result["first_step"], result["done"], result["last_step"]), (6, 5, 10))
            self.assertEqual(result["hash"], whole[0]["hash"])

    def test_a_job_that_was_left_in_good_order_begins_anew(self):
        with Cluster(2) as cluster:
            for _ in range(2):
                ran = cluster.run_ranks("training_loop_ranks:resumed", 2, **self.arguments)
                self.assertEqual([(result["first_step"], result["last_step"]) for result in ran], [(1, 5)] * 2)

    def test_a_changed_world_size_begins_anew_and_status_says_why(self):
        with Cluster(2) as cluster:
            self.kill(cluster)
            ran = cluster.run_ranks("training_loop_ranks:resumed", 4, world_changes=True, **self.arguments)
        for result in ran:
            self.assertEqual((result["first_step"], result["done"], result["last_step"]), (1, 5, 5))
            self.assertNotEqual(result["told"], "")
        self.assertEqual(len({result["hash"] for result in ran}), 1)
        print(f"status says: {ran[0]['told']}")


class CheckpointTest(unittest.TestCase):
    """A run of seven steps that kept a checkpoint of its fifth and was left in good order; then one that goes on from there."""

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="gradsieve-checkpoint-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.path = str(self.folder / "checkpoint")

    def keep(self, cluster, **options):
        for result in cluster.run_ranks("training_loop_ranks:checkpointed", 2, checkpoint=self.path, steps=7, save_at=5, **options):
            self.assertEqual((result["error"], result["done"], result["last_step"]), ("", 0, 7))
            small = result["small"]
            self.assertEqual([small[key] for key in ("job", "run_id", "group", "step", "world_size")], ["torch", "one", "", 5, 2])
            self.assertEqual([part["node"] for part in small["parts"]], ["a", "b"])
            self.assertEqual(result["bytes"] > 0, options.get("portable", False))

    def go_on(self, cluster, load="resume", **options):
        return cluster.run_ranks("training_loop_ranks:checkpointed", 2, checkpoint=self.path, steps=10, load=load, **options)

    @staticmethod
    def pinned(cluster, node):
        return list((cluster.folder / node).glob("*.pinned"))

    def expect_the_bits_of_a_whole_run(self, results, with_ddp=True):
        with Cluster(2) as cluster:
            whole = cluster.run_ranks("training_loop_ranks:checkpointed", 2, checkpoint=self.path, steps=10, with_ddp=with_ddp)
        for result in results:
            self.assertEqual((result["error"], result["done"], result["last_step"]), ("", 5, 10))
            self.assertEqual(result["hash"], whole[0]["hash"])

    def test_a_checkpoint_that_is_older_than_the_last_step_is_gone_on_from_with_the_same_bits(self):
        with Cluster(2) as cluster:
            self.keep(cluster)
            results = self.go_on(cluster)
            loaded = self.go_on(cluster, load="load_state_dict")
        self.expect_the_bits_of_a_whole_run(results + loaded)

    def test_an_averagers_checkpoint_likewise(self):
        with Cluster(2) as cluster:
            self.keep(cluster, with_ddp=False)
            results = self.go_on(cluster, with_ddp=False)
        self.expect_the_bits_of_a_whole_run(results, with_ddp=False)

    def test_a_node_that_lacks_it_is_named_on_every_rank_and_nothing_starts(self):
        with Cluster(2) as cluster:
            self.keep(cluster)
            for path in self.pinned(cluster, "b"):
                path.unlink()
            results = self.go_on(cluster)
        for result in results:
            self.assertRegex(result["error"], "^NotFound: .*step 5 is named to go on from, and node b has no snapshot of it")

    def test_a_portable_one_holds_the_bytes_and_goes_on_where_no_daemon_has_it(self):
        with Cluster(2) as cluster:
            self.keep(cluster, portable=True)
        with Cluster(2) as cluster:
            results = self.go_on(cluster, portable=True)
            self.assertEqual([len(self.pinned(cluster, node)) for node in "ab"], [1, 1])
        self.expect_the_bits_of_a_whole_run(results)


class MeasuredTest(unittest.TestCase):
    """Prints what it measures; asserts that ranks stay equal and that something is learned."""

    def test_loops_with_and_without_compression(self):
        if not DATASET.is_dir():
            self.skipTest("dataset-fashion-mnist is not installed")
        scenarios = {f"{loop}, {name}, {seed}": ["measured", {"codec": codec, "steps": STEPS, "seed": seed, **LOOPS[loop]}]
                     for loop in LOOPS for name, codec in CODECS.items() for seed in range(SEEDS)}
        with Cluster(2) as cluster:
            results = run(cluster, 2, timeout_s=max(120, 2 * STEPS), **scenarios)
        for key, (zero, one) in results.items():
            self.assertEqual(zero["hash"], one["hash"], key)
            self.assertGreater(zero["accuracy"], 0.3, key)  # guessing is 0.1
        for loop in LOOPS:
            cells = []
            for name in CODECS:
                ran = [results[f"{loop}, {name}, {seed}"][0] for seed in range(SEEDS)]
                accuracy = " ".join(f"{result['accuracy']:.3f}" for result in ran)
                norms = [statistics.median(result[f"norm_{kind}"] for result in ran) for kind in ("median", "largest")]
                cells.append(f"{accuracy} | {norms[0]:.2f}, {norms[1]:.2f}")
            print(f"| {loop} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    unittest.main()
